"""What a run's metrics and scores show: charts, the proposal's history, alarms, and comparisons of runs."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from priormatch.report.charts import IntervalChart, LineChart, Series, interval_chart, line_chart
from priormatch.report.run_folder import OF_EACH, Estimate, Line, RunRecord, Score, is_number, values
from priormatch.runs.results import NAMES, START

Chart = TypeVar("Chart")

STAGE_NAMES = NAMES | {"supervised-longer": "supervised, longer", "prior": "prior"}
TONES = {name: tone for tone, name in enumerate(name for name in STAGE_NAMES if name != START)}
TONES[START] = TONES["supervised-longer"]  # the two are never in one chart
MEASURES: dict[str, Callable[[Score], Estimate | None]] = {
    "word error rate, %": lambda score: score.wer,
    "character error rate, %": lambda score: score.cer,
    "share of the gap closed (WERR), %": lambda score: score.werr,
}
"""The charted measures of a score, by chart title."""

# Thresholds of the alarms.
SHORT = 0.9  # length of the heaviest hypotheses over the reference length
FEW = 0.5  # share of utterances without a hypothesis after the filter
UNDECIDED = 0.9  # of the largest possible entropy
WORSE = 1.1  # times the best validation score
DIAGNOSTICS = ("length_ratio", "share_without_survivor", "local_prior_entropy")


@dataclass(frozen=True)
class Decision:
    """One decision whether the online model replaces the proposal."""

    update: int
    online: float
    before: float | None
    taken: bool
    label_wer: float | None


def rate_charts(record: RunRecord) -> list[IntervalChart]:
    """Chart each measure on each test set, if it is known."""
    charts = []
    for title, measure in MEASURES.items():
        for test, systems in record.scores.tests.items():
            found = {system: measure(score) for system, score in systems.items()}
            rows = [(NAMES[system], TONES[system], each) for system, each in found.items() if each]
            charts.append(interval_chart(f"{test}: {title}", {"": rows}))
    return known(charts)


def teaching_charts(lines: Sequence[Line], settings: dict[str, Any]) -> list[LineChart]:
    """Chart what matching teaches over its updates; vertical marks are refreshes of the proposal."""
    marks = [line["update"] for line in lines if line.get("proposal_refreshed") is True]
    until = max((line["update"] for line in lines), default=1)

    def chart(
        title: str, *names: tuple[str, str], level: tuple[float, str] | None = None
    ) -> LineChart | None:
        series = [
            Series(label, values(lines, name), 0 if name == "proposal_cer" else 2) for name, label in names
        ]
        return line_chart(title, series, level, marks, until)

    beam, most = settings.get("matching.beam_size"), largest_entropy(settings)
    charts = [
        chart("Validation CER, %", ("proposal_cer", "proposal"), ("validation_score", "online model")),
        chart("Word error rate of the labels, %", ("label_wer", "proposal, greedy")),
        chart(
            "Entropy of the local prior, nats",
            ("local_prior_entropy", "mean of the utterances"),
            level=(most, f"log {beam}: uniform weights") if most else None,
        ),
        chart("Hypotheses left after the filter", ("survivors", "of an utterance's beam")),
        chart("Share of utterances without hypotheses", ("share_without_survivor", "no hypothesis left")),
        chart(
            "Length over the reference length",
            ("length_ratio", "heaviest hypothesis"),
            level=(1.0, "equal length"),
        ),
    ]
    return known(charts)


def learning_charts(record: RunRecord) -> list[LineChart]:
    """Chart the validation scores of all recognizers, the perplexity of the prior, and the loss of every stage."""

    def name_of(stage: str) -> str:
        return STAGE_NAMES.get(stage, stage)

    def series(stage: str, name: str) -> Series:
        return Series(name_of(stage), values(record.metrics.get(stage, []), name), TONES.get(stage, 0))

    recognizers = [stage for stage in record.metrics if stage != "prior"]
    scores = [series(stage, "validation_score") for stage in recognizers]
    losses = {name_of(stage): series(stage, "loss") for stage in record.metrics}
    charts = [
        line_chart("Validation CER, mean of the sets, %", scores),
        line_chart(f"Validation WER of {name_of(record.matching_stage)}, %", by_set(record.matching)),
        line_chart("Perplexity of the prior on held-out text", [series("prior", "perplexity")]),
        *(line_chart(f"Training loss of {name}", [loss]) for name, loss in losses.items()),
    ]
    return known(charts)


def by_set(lines: Sequence[Line]) -> list[Series]:
    """Return the WER of each validation set as a series."""
    points: dict[str, list[tuple[float, float]]] = {}
    for line in lines:
        sets = line.get("validation")
        for name, each in sets.items() if isinstance(sets, dict) else ():
            found = points.setdefault(name, [])
            if isinstance(each, dict) and is_number(each.get("wer")):
                found.append((line["update"], each["wer"]))
    return [Series(name, points[name], tone % len(TONES)) for tone, name in enumerate(points)]


def refreshes(lines: Sequence[Line]) -> list[Decision]:
    """Return the proposal's history, one decision per validation, with its CER before."""
    history, before = [], None
    for line in lines:
        if "proposal_refreshed" in line and is_number(line.get("validation_score")):
            taken, label_wer = line["proposal_refreshed"] is True, number(line, "label_wer")
            history.append(Decision(line["update"], line["validation_score"], before, taken, label_wer))
            before = number(line, "proposal_cer")
    return history


def number(line: Line, name: str) -> float | None:
    """Return a metric of a line, or None if it is not a finite number."""
    value = line.get(name)
    return value if is_number(value) else None


def known(charts: Sequence[Chart | None]) -> list[Chart]:
    """Return the charts that have anything to show."""
    return [each for each in charts if each is not None]


@dataclass(frozen=True)
class Comparison:
    """The scores of runs on a test set, by system and run, and their charts."""

    test: str
    systems: dict[str, dict[str, Score]]
    charts: list[IntervalChart]


def compared(runs: Mapping[str, RunRecord]) -> list[Comparison]:
    """Compare runs, given by their labels, on every test set."""
    tests = dict.fromkeys(test for record in runs.values() for test in record.scores.tests)
    return [
        compare(test, {label: record.scores.tests.get(test, {}) for label, record in runs.items()})
        for test in tests
    ]


def compare(test: str, runs: Mapping[str, Mapping[str, Score]]) -> Comparison:
    """Compare runs on one test set, given their scores by system."""
    found = {
        system: {label: scores[system] for label, scores in runs.items() if system in scores}
        for system in NAMES
    }
    systems = {system: scores for system, scores in found.items() if scores}
    charts = []
    for title, measure in MEASURES.items():
        groups = {
            NAMES[system]: [
                (label, TONES[system], rate) for label, score in scores.items() if (rate := measure(score))
            ]
            for system, scores in systems.items()
        }
        charts.append(interval_chart(f"{test}: {title}", groups))
    return Comparison(test, systems, known(charts))


def differing(records: Sequence[RunRecord]) -> dict[str, list[str]]:
    """Return the settings that differ, with each run's value; "unknown" for a run without settings."""
    names = dict.fromkeys(name for record in records for name in record.settings if name not in OF_EACH)
    rows = {
        name: [str(record.settings.get(name, "–")) if record.settings else "unknown" for record in records]
        for name in names
    }
    return {name: row for name, row in rows.items() if len({*row} - {"unknown"}) > 1}


def alarms(run: RunRecord) -> list[str]:
    """Return the alarms of a run as sentences, each with what to do."""
    return [*skipped_updates(run.metrics), *matching_alarms(run.matching, run.settings)]


def skipped_updates(metrics: Mapping[str, Sequence[Line]]) -> Iterator[str]:
    """Report stages with updates skipped because their gradients were not finite."""
    for stage, lines in metrics.items():
        bad = [update for update, share in values(lines, "skipped") if share > 0]
        if bad:
            yield (
                f"{stage}: updates were skipped before update {bad[0]:,.0f}, as their gradients were not finite:"
                " lower the learning rate, or look for damaged audio."
            )


def matching_alarms(lines: Sequence[Line], settings: Mapping[str, Any]) -> Iterator[str]:
    """Report problems of matching that show long before the error rate does."""
    searched = settings.get("matching.hypotheses") == "asr_lm"
    stays = settings.get("matching.refresh") == "never" or settings.get("matching.baseline") == "topipl"
    alone = "let the proposal search without the prior (matching.hypotheses=asr)"  # it may drift to the prior's words
    last = {name: found[-1][1] for name in DIAGNOSTICS if (found := values(lines, name))}
    if last.get("length_ratio", 1.0) < SHORT:
        yield (
            f"The hypotheses with the largest weights are {last['length_ratio']:.2f} times as long as the"
            " reference lengths: outputs are getting shorter; narrow matching.length_filter, or lower the"
            " learning rate."
        )
    if last.get("share_without_survivor", 0.0) > FEW:
        advice = alone if searched else "widen matching.length_filter"
        yield (
            f"{last['share_without_survivor']:.0%} of the unlabeled utterances have no hypothesis left after the"
            f" filter, and contribute nothing: {advice}, or start from a better model."
        )
    most = largest_entropy(settings)
    if most and last.get("local_prior_entropy", 0.0) > UNDECIDED * most:
        yield (
            f"The prior weighs the hypotheses almost equally (entropy {last['local_prior_entropy']:.2f} of at most"
            f" {most:.2f} nats): it needs more text or updates, or text of this domain."
        )
    scores = values(lines, "validation_score")
    if scores and scores[-1][1] > WORSE * (best := min(score for _, score in scores)):
        advice = f"{alone}, or try" if searched else "try"
        yield (
            f"The online model ends at a validation CER of {scores[-1][1]:.1f} %, after {best:.1f} % at its best, which"
            f" was kept: {advice} fewer updates or a lower learning rate."
        )
    labels = values(lines, "label_wer")
    if labels and labels[-1][1] > labels[0][1]:
        yield (
            f"The labels got worse, from {labels[0][1]:.1f} to {labels[-1][1]:.1f} % WER: check in the beams below"
            " what the prior prefers."
        )
    decisions = [line for line in lines if line["update"] > 0 and "proposal_refreshed" in line]
    if decisions and not stays and not any(line["proposal_refreshed"] for line in decisions):
        yield (
            "No online model has replaced the proposal: matching still learns from the model it started from."
        )


def largest_entropy(settings: Mapping[str, Any]) -> float:
    """Return the largest entropy of weights over a beam in nats, log k; 0 if k is unknown."""
    beam = settings.get("matching.beam_size")
    return math.log(beam) if is_number(beam) and beam >= 1 else 0.0
