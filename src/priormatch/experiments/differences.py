"""How far the rows of a table lie from plain local prior matching, and what they recover, with 95 % intervals."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from priormatch.experiments.found import Found
from priormatch.experiments.layout import Cells, named
from priormatch.experiments.measure import ends_of
from priormatch.experiments.paper import MISSING
from priormatch.experiments.rows import Line, reference_of
from priormatch.progress import say, track
from priormatch.scoring.bootstrap import (
    ScoredTexts,
    paired_bootstrap,
    perplexity_interval,
    recovered_interval,
)
from priormatch.scoring.error_rates import ErrorCounts, summed, word_error_rate_recovered

Seeds = Sequence[Found]
"""What was measured of a row, with each seed."""


@dataclass(frozen=True)
class Estimate:
    """A figure of a row with its interval, over all seeds together.

    Either an error rate less that of the row it stands `against`, in points, or so a perplexity; or a recovered word
    error rate in percent, which stands against none.
    """

    line: Line
    column: str
    value: float
    interval: tuple[float, float]
    seeds: int
    against: int | None = None

    @property
    def excludes_zero(self) -> bool:
        """Whether the whole interval lies on one side of zero."""
        low, high = self.interval
        return low > 0 or high < 0


def differences(
    table: str, lines: Sequence[Line], found: Sequence[Seeds], start: str = "C"
) -> list[Estimate]:
    """Each row's error rates less those of the row of plain matching that it is compared with."""
    seeds = {line.number: its for line, its in zip(lines, found, strict=True)}
    pairs = [
        (line, plain) for line in lines if (plain := reference_of(table, lines, line, start)) is not None
    ]
    estimates: list[Estimate] = []
    for line, plain in track(pairs, f"{table}: paired differences"):
        mine, theirs = seeds[line.number], seeds[plain.number]
        all_columns = (difference(column, line, mine, plain, theirs) for column in line.row)
        estimates += [each for each in all_columns if each is not None]
    return estimates


def difference(column: str, line: Line, mine: Seeds, other: Line, theirs: Seeds) -> Estimate | None:
    """A row's error rate or perplexity less that of another; None where utterances of both are not known."""
    ours, others = in_common(column, mine, theirs)
    if ours:
        test = paired_bootstrap(ours, others)
        return Estimate(line, column, test.difference, test.interval, len(ours), other.number)
    if pairs := scored_in_common(column, mine, theirs):
        value = statistics.fmean(a.perplexity - b.perplexity for a, b in pairs)
        return Estimate(line, column, value, perplexity_interval(pairs), len(pairs), other.number)
    return None


def recovered(lines: Sequence[Line], found: Sequence[Seeds]) -> list[Estimate]:
    """The recovered word error rates of all rows but those at the ends."""
    rows, estimates = [line.row for line in lines], []
    for position, line in enumerate(lines):
        for column in line.row:
            ends = ends_of(rows, line.row, column)
            if ends is None or position in ends[1:]:
                continue
            wer, base, top = ends
            seeds = in_common(wer, found[base], found[position], found[top])
            if seeds[0]:
                low, mine, high = map(summed, seeds)
                value = word_error_rate_recovered(low.rate, mine.rate, high.rate)
                estimates.append(
                    Estimate(line, column, value, recovered_interval(low, mine, high), len(seeds[0]))
                )
    return estimates


def in_common(column: str, *rows: Seeds) -> list[list[ErrorCounts]]:
    """The errors of a column for each of several rows, with those seeds that all of them have.

    Nothing where they are errors of different utterances, some of which could not be read at one time or another.
    """
    whole = [each for each in zip(*rows, strict=True) if all(column in found.errors for found in each)]
    seeds = [[found.errors[column] for found in each] for each in whole]
    if any(not np.array_equal(each.lengths, seeds[0][0].lengths) for seed in seeds for each in seed):
        say(f"{column}: not all rows were scored on the same utterances: those that differ are not compared")
        seeds = []
    return [list(its) for its in zip(*seeds, strict=True)] or [[] for _ in rows]


def scored_in_common(column: str, mine: Seeds, theirs: Seeds) -> list[tuple[ScoredTexts, ScoredTexts]]:
    """What the prior says of two rows' transcripts, with those seeds that both have; nothing where some are missing."""
    both = [each for each in zip(mine, theirs, strict=True) if all(column in found.texts for found in each)]
    pairs = [(a.texts[column], b.texts[column]) for a, b in both]
    if len({len(each.pieces) for pair in pairs for each in pair}) > 1:
        say(f"{column}: not all rows were scored on the same utterances: their difference has no interval")
        return []
    return pairs


def table_of(estimates: Sequence[Estimate]) -> Cells:
    """Estimates as a table with a column for each figure, bold where zero is excluded."""
    columns = list(dict.fromkeys(each.column for each in estimates))
    compared = any(each.against is not None for each in estimates)
    lines = {each.line.number: each for each in estimates}
    body = []
    for number, first in lines.items():
        mine = {each.column: each for each in estimates if each.line.number == number}
        against = [str(first.against)] if compared else []
        shown = [in_words(mine[column]) if column in mine else "" for column in columns]
        body.append([str(number), named(first.line.row), *against, *shown])
    head = ["row", "system", *(["less row"] if compared else [])]
    return [[*head, *(column.replace("_", " ") for column in columns)], *body]


def in_words(estimate: Estimate) -> str:
    """A figure with its interval; a difference is bold where the interval excludes zero."""
    if math.isnan(estimate.value):
        return ""
    low, high = estimate.interval
    if estimate.against is None:
        return f"{estimate.value:.1f} ({low:.1f} to {high:.1f})"
    words = f"{estimate.value:+.2f} ({low:+.2f} to {high:+.2f})"
    return f"**{words}**" if estimate.excludes_zero else words


def for_machines(estimates: Sequence[Estimate]) -> Cells:
    """Estimates one a line."""
    head = ["row", "less_row", "column", "seeds", "value", "low", "high", "excludes_zero"]
    body = [
        [
            str(each.line.number),
            MISSING if each.against is None else str(each.against),
            each.column,
            str(each.seeds),
            *(f"{number:.3f}" for number in (each.value, *each.interval)),
            MISSING if each.against is None else "yes" if each.excludes_zero else "no",
        ]
        for each in estimates
    ]
    return [head, *body]
