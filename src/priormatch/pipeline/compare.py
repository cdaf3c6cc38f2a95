"""`priormatch compare`: results of one recipe with several seeds, in one table."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from priormatch.errors import UserError
from priormatch.runs.results import (
    BASE,
    NAMES,
    START,
    TOP,
    decoded_files,
    difference_in_words,
    is_compared,
    transcribed,
)
from priormatch.scoring.bootstrap import PairedTest, paired_bootstrap
from priormatch.scoring.error_rates import ErrorCounts, word_error_rate_recovered, word_errors
from priormatch.scoring.transcripts import both_sides

Counts = dict[str, dict[str, ErrorCounts]]
"""Word errors by system and test set."""


def read_counts(run: Path) -> Counts:
    """Word errors of all decoded test sets of a run."""
    counts = {
        system: {test: word_errors(*both_sides(transcribed(path))) for test, path in tests.items()}
        for system, tests in decoded_files(run / "decoded").items()
    }
    if not counts.get(BASE):
        raise UserError(f"{run} contains no decoded test sets: provide folders of finished runs")
    return counts


@dataclass(frozen=True)
class Compared:
    """A test set of several runs: WERs by system and run, their means, and what the means recover of the gap.

    `against` has the paired test of local prior matching against each other system, over all runs.
    """

    test: str
    runs: list[str]
    rates: dict[str, list[float]]
    means: dict[str, float]
    recovered: dict[str, float]
    against: dict[str, PairedTest]


def compare_runs(runs: Sequence[Path]) -> list[Compared]:
    """Compare the systems of all runs on each test set."""
    found = {run: read_counts(run) for run in runs}
    systems = [system for system in NAMES if all(system in counts for counts in found.values())]
    tests = list(found[runs[0]][BASE])
    if any(list(counts[system]) != tests for counts in found.values() for system in systems):
        raise UserError("the runs were not scored on the same test sets, so they cannot be compared")
    return [compare_on(test, systems, found) for test in tests]


def compare_on(test: str, systems: list[str], found: dict[Path, Counts]) -> Compared:
    """Compare the systems on one test set."""
    rates = {system: [counts[system][test].rate for counts in found.values()] for system in systems}
    means = {system: float(np.mean(its)) for system, its in rates.items()}
    recovered = {
        system: word_error_rate_recovered(means[BASE], means[system], means[TOP])
        for system in systems
        if TOP in systems and is_compared(system)
    }
    others = [each for each in systems if "lpm" in systems and each not in (START, "lpm", TOP)]
    against = {each: paired_test(test, each, found) for each in others}
    return Compared(test, [run.name for run in found], rates, means, recovered, against)


def paired_test(test: str, base: str, found: dict[Path, Counts]) -> PairedTest:
    """Test local prior matching against another system over all runs."""
    others, ours = ([counts[each][test] for counts in found.values()] for each in (base, "lpm"))
    try:
        return paired_bootstrap(others, ours)
    except ValueError as error:
        raise UserError(
            f"the runs were not scored on the same utterances of {test}, so they cannot be compared"
        ) from error


def markdown(found: Sequence[Compared]) -> str:
    """Tables of all runs with their means, and the paired tests, as Markdown."""
    return "\n\n".join(map(section, found))


def section(found: Compared) -> str:
    """The table and the paired tests of one test set as Markdown."""
    lines = [
        f"### {found.test}: WER %",
        "",
        "| system | " + " | ".join(found.runs) + " | mean | WERR % of the mean |",
        "|---|" + "---|" * (len(found.runs) + 2),
    ]
    for system, rates in found.rates.items():
        shown = " | ".join(f"{rate:.2f}" for rate in rates)
        recovered = f"{found.recovered[system]:.1f}" if system in found.recovered else ""
        lines.append(f"| {NAMES[system]} | {shown} | {found.means[system]:.2f} | {recovered} |")
    lines.append("")
    for base, test in found.against.items():
        words = difference_in_words(test.difference, test.interval, test.p_value, NAMES[base])
        lines.append(f"- {NAMES['lpm']} is {words}")
    return "\n".join(lines)
