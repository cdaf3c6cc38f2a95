"""The charts of a run: its error rates, what matching teaches, and the learning curves of all stages."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from priormatch.report.alarms import largest_entropy
from priormatch.report.charts import IntervalChart, LineChart, Series, interval_chart, line_chart
from priormatch.report.run_folder import Line, RunRecord, is_number, values
from priormatch.report.scores import Estimate, Score
from priormatch.runs.results import NAMES

STAGE_NAMES = NAMES | {
    "supervised-longer": "supervised, longer",
    "prior": "prior",
}
TONES = {name: tone for tone, name in enumerate(STAGE_NAMES)}
MEASURES: dict[str, Callable[[Score], Estimate | None]] = {
    "word error rate, %": lambda score: score.wer,
    "character error rate, %": lambda score: score.cer,
    "share of the gap closed (WERR), %": lambda score: score.werr,
}
"""The charted measures of a score, by chart title."""


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
            rows = [
                (NAMES[system], TONES[system], each)
                for system, score in systems.items()
                if (each := measure(score))
            ]
            charts.append(interval_chart(f"{test}: {title}", rows))
    return [chart for chart in charts if chart is not None]


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
    return [each for each in charts if each is not None]


def learning_charts(record: RunRecord) -> list[LineChart]:
    """Chart the validation scores of all recognizers, the perplexity of the prior, and the loss of every stage."""
    recognizers = {stage: lines for stage, lines in record.metrics.items() if stage != "prior"}

    def series(stage: str, lines: Sequence[Line], name: str) -> Series:
        return Series(STAGE_NAMES.get(stage, stage), values(lines, name), TONES.get(stage, 0))

    charts = [
        line_chart(
            "Validation CER, mean of the sets, %",
            [series(stage, lines, "validation_score") for stage, lines in recognizers.items()],
        ),
        *(
            line_chart(f"Validation WER of {STAGE_NAMES.get(stage, stage)}, %", by_set(lines))
            for stage, lines in recognizers.items()
            if stage == record.matching_stage
        ),
        line_chart(
            "Perplexity of the prior on held-out text",
            [series("prior", record.metrics.get("prior", []), "perplexity")],
        ),
        *(
            line_chart(f"Training loss of {STAGE_NAMES.get(stage, stage)}", [series(stage, lines, "loss")])
            for stage, lines in record.metrics.items()
        ),
    ]
    return [each for each in charts if each is not None]


def by_set(lines: Sequence[Line]) -> list[Series]:
    """Return the WER of each validation set as a series."""
    told = [line for line in lines if isinstance(line.get("validation"), dict)]
    names = list(dict.fromkeys(name for line in told for name in line["validation"]))
    return [
        Series(
            name,
            [
                (line["update"], each["wer"])
                for line in told
                if isinstance(each := line["validation"].get(name), dict) and is_number(each.get("wer"))
            ],
            tone % len(TONES),
        )
        for tone, name in enumerate(names)
    ]


def refreshes(lines: Sequence[Line]) -> list[Decision]:
    """Return the proposal's history, one decision per validation, with its CER before."""
    told = [
        line for line in lines if "proposal_refreshed" in line and is_number(line.get("validation_score"))
    ]
    history, before = [], None
    for line in told:
        label_wer = line.get("label_wer")
        history.append(
            Decision(
                line["update"],
                line["validation_score"],
                before,
                line["proposal_refreshed"] is True,
                label_wer if is_number(label_wer) else None,
            )
        )
        before = line["proposal_cer"] if is_number(line.get("proposal_cer")) else None
    return history
