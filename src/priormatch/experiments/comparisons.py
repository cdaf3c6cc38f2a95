"""Comparisons of rows, with 95 % intervals: with plain matching, with the toplines, and as the claims state."""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from priormatch.experiments.layout import Grid, markdown
from priormatch.experiments.measure import Found
from priormatch.experiments.table import MISSING, RECOVERED, Cells, Claim, Row, is_better_lower
from priormatch.progress import say, track
from priormatch.scoring.bootstrap import (
    ScoredTexts,
    paired_bootstrap,
    perplexity_interval,
    recovered_interval,
)
from priormatch.scoring.error_rates import ErrorCounts, grouped, summed, word_error_rate_recovered

BASE_HOURS, TOP_HOURS = "100", "460"  # labeled hours of the supervised row and of the topline
BASE, TOP = "Supervised", "Topline"  # their methods in tables without labeled hours

HEADING = """\
## The claims, and whether they held

Each line claims that the first row is better than the second. The columns show the figure of the first row minus that
of the second: the paper's difference, and ours with the 95 % confidence interval of a paired bootstrap over utterances,
seeds pooled (for perplexities, their mean). A claim *held* if the interval is below zero, is *reversed* if it is above
zero, and *open* if it contains zero. The interval is that of a difference between these trained models; only more seeds
show what other seeds would give. A perplexity without stored utterances has no interval: it is *open*, with the
difference of each seed in parentheses.
"""


@dataclass(frozen=True)
class Measured:
    """A row with its measurements, one for each seed."""

    row: Row
    seeds: Sequence[Found]


@dataclass(frozen=True)
class Estimate:
    """A figure of a row with its confidence interval, over all seeds.

    Either the difference of an error rate (in points) or of a perplexity from that of the row `against`, or a
    recovered word error rate in percent, without `against`. The interval resamples utterances; `by_speaker` resamples
    speakers, where they are known.
    """

    row: Row
    column: str
    value: float
    interval: tuple[float, float]
    seeds: int
    against: int | None = None
    by_speaker: tuple[float, float] | None = None

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval excludes zero."""
        low, high = self.interval
        return low > 0 or high < 0


def differences(table: str, measured: Sequence[Measured], start: str = "C") -> list[Estimate]:
    """The error rates of each row minus those of the row that it names for this."""
    pairs = [(each, plain) for each in measured if (plain := plain_of(each.row, measured, start)) is not None]
    estimates: list[Estimate] = []
    for mine, plain in track(pairs, f"{table}: paired differences"):
        all_columns = (difference(column, mine, plain) for column in mine.row.cells)
        estimates += [each for each in all_columns if each is not None]
    return estimates


def plain_of(row: Row, measured: Sequence[Measured], start: str = "C") -> Measured | None:
    """The row of plain matching that a row is compared with, if it is another one that is run.

    In the table of starting points, its online model has the start of the scale, `start`; the paper's is C.
    """
    if row.system is None or row.minus is None:
        return None
    name = row.minus.format(start=start)
    plain = next((each for each in measured if each.row.name == name), None)
    return None if plain is None or plain.row.system is None or plain.row is row else plain


def difference(column: str, mine: Measured, other: Measured) -> Estimate | None:
    """A row's error rate or perplexity minus that of another; None without per-utterance data of both."""
    ours, others = in_common(column, mine.seeds, other.seeds)
    if ours:
        test, speakers, by_speaker = paired_bootstrap(ours, others), speakers_of(column, mine, other), None
        if speakers is not None:
            mine_by, theirs_by = ([grouped(each, speakers) for each in its] for its in (ours, others))
            by_speaker = paired_bootstrap(mine_by, theirs_by).interval
        return Estimate(
            mine.row, column, test.difference, test.interval, len(ours), other.row.number, by_speaker
        )
    if pairs := scored_in_common(column, mine.seeds, other.seeds):
        value = statistics.fmean(a.perplexity - b.perplexity for a, b in pairs)
        return Estimate(mine.row, column, value, perplexity_interval(pairs), len(pairs), other.row.number)
    return None


def in_common(column: str, *rows: Sequence[Found]) -> list[list[ErrorCounts]]:
    """The errors of a column for each of several rows, for the seeds that all of them have.

    Empty if they are of different utterances, because some could not be read in one of the runs.
    """
    whole = [each for each in zip(*rows, strict=True) if all(column in found.errors for found in each)]
    seeds = [[found.errors[column] for found in each] for each in whole]
    if any(not np.array_equal(each.lengths, seeds[0][0].lengths) for seed in seeds for each in seed):
        say(f"{column}: rows scored on different utterances are not compared")
        seeds = []
    return [list(its) for its in zip(*seeds, strict=True)] or [[] for _ in rows]


def speakers_of(column: str, *rows: Measured) -> list[int] | None:
    """The speaker of each utterance of a column; None unless all rows and seeds that have the column agree on them."""
    found = [each.speakers.get(column) for row in rows for each in row.seeds if column in each.errors]
    return found[0] if found and all(each == found[0] for each in found) else None


def scored_in_common(
    column: str, mine: Sequence[Found], theirs: Sequence[Found]
) -> list[tuple[ScoredTexts, ScoredTexts]]:
    """The prior's scores of two rows' transcripts, for the seeds that both have; empty if utterances are missing."""
    both = [each for each in zip(mine, theirs, strict=True) if all(column in found.texts for found in each)]
    pairs = [(a.texts[column], b.texts[column]) for a, b in both]
    if len({len(each.pieces) for pair in pairs for each in pair}) > 1:
        say(f"{column}: rows were scored on different utterances, so their difference has no interval")
        return []
    return pairs


def ends_of(rows: Sequence[Cells], row: Cells, column: str) -> tuple[str, int, int] | None:
    """For a column of recovered rates: the column of WER, and the positions of the supervised row and the topline."""
    if not (match := RECOVERED.fullmatch(column)):
        return None
    found = {
        (each.get("labeled_hours", each["method"]), each["decode_lm"]): position
        for position, each in enumerate(rows)
        if each["method"] in (BASE, TOP) and each.get("source", "ours") in ("this", "ours")
    }
    ends = (BASE_HOURS, match["top"] or TOP_HOURS) if "labeled_hours" in row else (BASE, TOP)
    base, top = (found.get((end, row["decode_lm"])) for end in ends)
    return None if base is None or top is None else (match["wer"], base, top)


def with_recovered(measured: Sequence[Measured]) -> list[list[dict[str, float]]]:
    """The figures of each row and seed, with the word error rates recovered between supervised row and topline."""
    rows = [each.row.cells for each in measured]
    values = [[dict(found.values) for found in each.seeds] for each in measured]
    for row, seeds in zip(rows, values, strict=True):
        for column in row:
            if (ends := ends_of(rows, row, column)) is not None:
                wer, base, top = ends
                for low, mine, high in zip(values[base], seeds, values[top], strict=True):
                    if all(wer in each for each in (low, mine, high)):
                        mine[column] = word_error_rate_recovered(low[wer], mine[wer], high[wer])
    return values


def recovered(measured: Sequence[Measured]) -> list[Estimate]:
    """The recovered word error rates of all rows except the supervised row and the topline."""
    rows, estimates = [each.row.cells for each in measured], []
    for position, each in enumerate(measured):
        for column in each.row.cells:
            ends = ends_of(rows, each.row.cells, column)
            if ends is None or position in ends[1:]:
                continue
            wer, base, top = ends
            seeds = in_common(wer, measured[base].seeds, each.seeds, measured[top].seeds)
            if seeds[0]:
                low, mine, high = map(summed, seeds)
                value = word_error_rate_recovered(low.rate, mine.rate, high.rate)
                interval, by_speaker = recovered_interval(low, mine, high), None
                if (speakers := speakers_of(wer, measured[base], each, measured[top])) is not None:
                    by_speaker = recovered_interval(*(grouped(its, speakers) for its in (low, mine, high)))
                found = Estimate(each.row, column, value, interval, len(seeds[0]), by_speaker=by_speaker)
                estimates.append(found)
    return estimates


def table_of(estimates: Sequence[Estimate]) -> Grid:
    """A table of estimates with a column for each figure; bold if the interval excludes zero."""
    columns = list(dict.fromkeys(each.column for each in estimates))
    compared = any(each.against is not None for each in estimates)
    body = []
    for number, first in {each.row.number: each for each in estimates}.items():
        mine = {each.column: each for each in estimates if each.row.number == number}
        against = [str(first.against)] if compared else []
        shown = [in_words(mine[column]) if column in mine else "" for column in columns]
        body.append([str(number), first.row.description, *against, *shown])
    head = ["row", "system", *(["minus row"] if compared else [])]
    return [[*head, *(column.replace("_", " ") for column in columns)], *body]


def in_words(estimate: Estimate) -> str:
    """A figure with its intervals; a difference is bold if the interval over utterances excludes zero."""
    if math.isnan(estimate.value):
        return ""
    form = ".1f" if estimate.against is None else "+.2f"
    both = [estimate.interval] + ([] if estimate.by_speaker is None else [estimate.by_speaker])
    ends = "; over speakers ".join(f"{low:{form}} to {high:{form}}" for low, high in both)
    words = f"{estimate.value:{form}} ({ends})"
    return f"**{words}**" if estimate.against is not None and estimate.excludes_zero else words


def for_machines(estimates: Sequence[Estimate]) -> Grid:
    """Estimates in machine-readable form, one per line; with intervals over speakers where one has them."""
    head = ["row", "less_row", "column", "seeds", "value", "low", "high", "excludes_zero"]
    speakers = any(each.by_speaker is not None for each in estimates)
    head += ["low_speakers", "high_speakers"] if speakers else []
    body = [
        [
            str(each.row.number),
            MISSING if each.against is None else str(each.against),
            each.column,
            str(each.seeds),
            *(f"{number:.3f}" for number in (each.value, *each.interval)),
            MISSING if each.against is None else "yes" if each.excludes_zero else "no",
            *(_ends(each.by_speaker) if speakers else []),
        ]
        for each in estimates
    ]
    return [head, *body]


def _ends(interval: tuple[float, float] | None) -> list[str]:
    return [MISSING] * 2 if interval is None else [f"{end:.3f}" for end in interval]


@dataclass(frozen=True)
class Verdict:
    """A claim about two rows in one column: the paper's difference (NaN if it has none), and ours in words."""

    claim: Claim
    rows: tuple[int, int]
    column: str
    paper: float
    ours: str
    held: str


def verdicts(claims: Sequence[Claim], measured: Sequence[Measured]) -> list[Verdict]:
    """Whether the claims held, in measured columns where the paper's own figures support them."""
    rows = {each.row.name: each for each in measured}
    judged = (
        verdict(claim, column, rows[claim.better], rows[claim.than])
        for claim in claims
        if claim.better in rows and claim.than in rows
        for column in filter(is_better_lower, rows[claim.better].row.cells)
    )
    return [each for each in judged if each is not None]


def verdict(claim: Claim, column: str, better: Measured, than: Measured) -> Verdict | None:
    """Whether a claim held in a column; None if the paper has it otherwise or one of the rows was not measured."""
    figures = [each.row.cells[column] for each in (better, than)]
    paper = math.nan if MISSING in figures else float(figures[0]) - float(figures[1])
    rows = better.row.number, than.row.number
    if paper >= 0:
        return None
    if (estimate := difference(column, better, than)) is not None:
        return Verdict(claim, rows, column, paper, in_words(estimate).strip("*"), judgment(estimate))
    values = [
        (a.values.get(column), b.values.get(column)) for a, b in zip(better.seeds, than.seeds, strict=True)
    ]
    apart = [a - b for a, b in values if a is not None and b is not None]
    if not apart or any(column in each.errors for each in (*better.seeds, *than.seeds)):
        return None
    each = ", ".join(f"{value:+.2f}" for value in apart)
    return Verdict(claim, rows, column, paper, f"{statistics.fmean(apart):+.2f} ({each})", "open")


def judgment(estimate: Estimate) -> str:
    """Whether a row is better as claimed, by the interval of its difference."""
    if not estimate.excludes_zero:
        return "open"
    return "held" if estimate.value < 0 else "reversed"


def section(judged: Sequence[Verdict]) -> str:
    """The section of a page on claims: a count, and a table with a line for each claim and a column for each figure."""
    count = Counter(each.held for each in judged)
    told = ", ".join(f"{count[held]} {held}" for held in ("held", "open", "reversed"))
    columns = list(dict.fromkeys(each.column for each in judged))
    body = []
    for claim, (better, than) in {each.claim: each.rows for each in judged}.items():
        mine = {each.column: in_cell(each) for each in judged if each.claim == claim}
        body.append([claim.says, f"{better} and {than}", *(mine.get(column, "") for column in columns)])
    head = ["claim", "rows", *(column.replace("_", " ") for column in columns)]
    return f"{HEADING}\nOf {len(judged)} comparisons: {told}.\n\n{markdown([head, *body])}"


def in_cell(judged: Verdict) -> str:
    """A verdict with its figures."""
    paper = "" if math.isnan(judged.paper) else f"paper {judged.paper:+.2f}, "
    held = f"**{judged.held}**" if judged.held == "reversed" else judged.held
    return f"{paper}ours {judged.ours}: {held}"
