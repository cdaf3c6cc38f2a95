"""`priormatch compare`: results of one recipe with several seeds, in one table."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from priormatch.errors import UserError
from priormatch.runs.results import BASE, NAMES, TOP, decoded_files, difference_in_words, transcribed
from priormatch.scoring.bootstrap import paired_bootstrap
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
        raise UserError(f"{run} holds no decoded test sets: give folders of finished runs")
    return counts


def compare_runs(runs: Sequence[Path]) -> str:
    """Markdown tables of all runs with their means, and paired tests over all runs."""
    found = {run: read_counts(run) for run in runs}
    systems = [system for system in NAMES if all(system in counts for counts in found.values())]
    tests = list(found[runs[0]][BASE])
    if any(list(counts[system]) != tests for counts in found.values() for system in systems):
        raise UserError("the runs were not scored on the same test sets, so they cannot be compared")
    sections = [section(test, systems, found) for test in tests]
    return "\n\n".join(sections)


def section(test: str, systems: list[str], found: dict[Path, Counts]) -> str:
    """The table and the paired tests of one test set."""
    lines = [
        f"### {test}: WER %",
        "",
        "| system | " + " | ".join(run.name for run in found) + " | mean | WERR % of the mean |",
        "|---|" + "---|" * (len(found) + 2),
    ]
    means = {
        system: float(np.mean([counts[system][test].rate for counts in found.values()])) for system in systems
    }
    for system in systems:
        rates = " | ".join(f"{counts[system][test].rate:.2f}" for counts in found.values())
        recovered = ""
        if TOP in systems and system not in (BASE, TOP):
            recovered = f"{word_error_rate_recovered(means[BASE], means[system], means[TOP]):.1f}"
        lines.append(f"| {NAMES[system]} | {rates} | {means[system]:.2f} | {recovered} |")
    lines.append("")
    for base in (each for each in systems if "lpm" in systems and each not in ("lpm", TOP)):
        others, ours = ([counts[each][test] for counts in found.values()] for each in (base, "lpm"))
        try:
            result = paired_bootstrap(others, ours)
        except ValueError as error:
            raise UserError(
                f"the runs were not scored on the same utterances of {test}, so they cannot be compared"
            ) from error
        words = difference_in_words(result.difference, result.interval, result.p_value, NAMES[base])
        lines.append(f"- {NAMES['lpm']} is {words}")
    return "\n".join(lines)
