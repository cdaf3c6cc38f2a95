"""Differences of rows from plain local prior matching, and recovered word error rates, with 95 % intervals."""

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
"""The measurements of a row, one for each seed."""


@dataclass(frozen=True)
class Estimate:
    """A figure of a row with its confidence interval, over all seeds.

    Either the difference of an error rate (in points) or of a perplexity from that of the row `against`, or a
    recovered word error rate in percent, without `against`.
    """

    line: Line
    column: str
    value: float
    interval: tuple[float, float]
    seeds: int
    against: int | None = None

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval excludes zero."""
        low, high = self.interval
        return low > 0 or high < 0


def differences(
    table: str, lines: Sequence[Line], found: Sequence[Seeds], start: str = "C"
) -> list[Estimate]:
    """The error rates of each row minus those of its reference row of plain matching."""
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
    """A row's error rate or perplexity minus that of another; None without per-utterance data of both."""
    ours, others = in_common(column, mine, theirs)
    if ours:
        test = paired_bootstrap(ours, others)
        return Estimate(line, column, test.difference, test.interval, len(ours), other.number)
    if pairs := scored_in_common(column, mine, theirs):
        value = statistics.fmean(a.perplexity - b.perplexity for a, b in pairs)
        return Estimate(line, column, value, perplexity_interval(pairs), len(pairs), other.number)
    return None


def recovered(lines: Sequence[Line], found: Sequence[Seeds]) -> list[Estimate]:
    """The recovered word error rates of all rows except the supervised row and the topline."""
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
    """The errors of a column for each of several rows, for the seeds that all of them have.

    Empty if they are of different utterances, because some could not be read in one of the runs.
    """
    whole = [each for each in zip(*rows, strict=True) if all(column in found.errors for found in each)]
    seeds = [[found.errors[column] for found in each] for each in whole]
    if any(not np.array_equal(each.lengths, seeds[0][0].lengths) for seed in seeds for each in seed):
        say(f"{column}: rows scored on different utterances are not compared")
        seeds = []
    return [list(its) for its in zip(*seeds, strict=True)] or [[] for _ in rows]


def scored_in_common(column: str, mine: Seeds, theirs: Seeds) -> list[tuple[ScoredTexts, ScoredTexts]]:
    """The prior's scores of two rows' transcripts, for the seeds that both have; empty if utterances are missing."""
    both = [each for each in zip(mine, theirs, strict=True) if all(column in found.texts for found in each)]
    pairs = [(a.texts[column], b.texts[column]) for a, b in both]
    if len({len(each.pieces) for pair in pairs for each in pair}) > 1:
        say(f"{column}: rows were scored on different utterances, so their difference has no interval")
        return []
    return pairs


def table_of(estimates: Sequence[Estimate]) -> Cells:
    """A table of estimates with a column for each figure; bold if the interval excludes zero."""
    columns = list(dict.fromkeys(each.column for each in estimates))
    compared = any(each.against is not None for each in estimates)
    lines = {each.line.number: each for each in estimates}
    body = []
    for number, first in lines.items():
        mine = {each.column: each for each in estimates if each.line.number == number}
        against = [str(first.against)] if compared else []
        shown = [in_words(mine[column]) if column in mine else "" for column in columns]
        body.append([str(number), named(first.line.row), *against, *shown])
    head = ["row", "system", *(["minus row"] if compared else [])]
    return [[*head, *(column.replace("_", " ") for column in columns)], *body]


def in_words(estimate: Estimate) -> str:
    """A figure with its interval; a difference is bold if the interval excludes zero."""
    if math.isnan(estimate.value):
        return ""
    low, high = estimate.interval
    if estimate.against is None:
        return f"{estimate.value:.1f} ({low:.1f} to {high:.1f})"
    words = f"{estimate.value:+.2f} ({low:+.2f} to {high:+.2f})"
    return f"**{words}**" if estimate.excludes_zero else words


def for_machines(estimates: Sequence[Estimate]) -> Cells:
    """Estimates in machine-readable form, one per line."""
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
