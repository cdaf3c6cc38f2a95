"""Error rates of everything a run has decoded, with confidence intervals."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from priormatch.progress import track
from priormatch.runs.results import BASE, NAMES, TOP, decoded_files, difference_in_words, transcribed
from priormatch.scoring.bootstrap import bootstrap_interval, paired_bootstrap, recovered_interval
from priormatch.scoring.error_rates import (
    ErrorCounts,
    character_errors,
    word_error_rate_recovered,
    word_errors,
)
from priormatch.scoring.transcripts import both_sides

OURS = "lpm"

Counts = Mapping[tuple[str, str], ErrorCounts]
"""Word errors by test set and system."""


@dataclass(frozen=True)
class Estimate:
    """A rate in percent with its 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Score:
    """Scores of a system on a test set; no WERR for baseline and topline, or if one of these is missing."""

    wer: Estimate
    cer: Estimate
    werr: Estimate | None


@dataclass(frozen=True)
class Scores:
    """Scores by test set and system, in the order of `NAMES`, and sentences on the differences between systems."""

    tests: Mapping[str, Mapping[str, Score]]
    differences: list[str]


def read_scores(folder: Path) -> Scores:
    """Score the transcripts in `folder/SYSTEM/TEST.jsonl`, if there are any."""
    sides = {
        (test, system): both_sides(transcripts)
        for system, files in decoded_files(folder).items()
        for test, path in files.items()
        if (transcripts := transcribed(path))
    }
    counts = {key: word_errors(*both) for key, both in sides.items()}
    tests: dict[str, dict[str, Score]] = {}
    for (test, system), both in track(sides.items(), "intervals", len(sides)):
        letters = estimate(character_errors(*both))
        score = Score(estimate(counts[test, system]), letters, recovered(counts, test, system))
        tests.setdefault(test, {})[system] = score
    tests = {test: tests[test] for test in sorted(tests)}
    return Scores(tests, [words for test in tests for words in differences(counts, test)])


def estimate(counts: ErrorCounts) -> Estimate:
    """Compute an error rate and its confidence interval."""
    return Estimate(counts.rate, *bootstrap_interval(counts))


def recovered(counts: Counts, test: str, system: str) -> Estimate | None:
    """Compute the share of the gap between baseline and topline that a system closes (WERR)."""
    ends = counts.get((test, BASE)), counts.get((test, TOP))
    if system in (BASE, TOP) or ends[0] is None or ends[1] is None:
        return None
    base, top, mine = ends[0], ends[1], counts[test, system]
    if base.rate == top.rate:
        return None
    try:
        interval = recovered_interval(base, mine, top)
    except ValueError:  # scored on other utterances
        return None
    return Estimate(word_error_rate_recovered(base.rate, mine.rate, top.rate), *interval)


def differences(counts: Counts, test: str) -> Iterator[str]:
    """Compare local prior matching with the other systems by a paired bootstrap over utterances."""
    ours = counts.get((test, OURS))
    for system in (BASE, "pseudo_label"):
        theirs = counts.get((test, system))
        if ours is None or theirs is None:
            continue
        try:
            found = paired_bootstrap(theirs, ours)
        except ValueError:  # scored on other utterances
            continue
        words = difference_in_words(found.difference, found.interval, found.p_value, NAMES[system])
        yield f"{test}: {NAMES[OURS]} is {words}."
