"""What a test set shows beside its error rates: the errors of each speaker, and the worst utterances."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lhotse.cut import Cut

from priormatch.data.corpus import read_cuts
from priormatch.data.manifest import SUFFIX
from priormatch.errors import UserError
from priormatch.scoring.alignment import AlignedUtterance, misheard
from priormatch.scoring.error_rates import ErrorCounts, grouped
from priormatch.scoring.transcripts import Transcript

MOST_WORST = 5  # utterances of each test set

Counts = Mapping[tuple[str, str], ErrorCounts]
"""Word errors by test set and system."""
Heard = Mapping[tuple[str, str], Sequence[Transcript]]
"""Transcripts by test set and system."""


@dataclass(frozen=True)
class Speaker:
    """A speaker of a test set: reference words, and the word error rate of each system in percent."""

    name: str
    words: int
    rates: Mapping[str, float]


@dataclass(frozen=True)
class Worst:
    """An utterance of a test set that a system transcribed with many errors; no cut if its audio is not known."""

    aligned: AlignedUtterance
    hypothesis: str
    cut: dict[str, Any] | None


def cuts_of_test(data: Path, test: str) -> dict[str, Cut]:
    """The cuts of a test set by their ids, from a run's data; empty if they cannot be read."""
    for name in (test, f"test-{test}"):
        path = data / f"{name}{SUFFIX}"
        if path.is_file():
            try:
                return {cut.id: cut for cut in read_cuts(path)}
            except UserError:  # reported with the data
                return {}
    return {}


def speakers_of(
    test: str, heard: Heard, counts: Counts, cuts: Mapping[str, Cut], judged: str
) -> list[Speaker]:
    """The error rates of each speaker of a test set, the highest of `judged` first; none without several speakers."""
    rates: dict[str, dict[str, ErrorCounts]] = {}
    for (of_test, system), transcripts in heard.items():
        names = [speaker_of(cuts.get(each.id)) for each in transcripts]
        if of_test == test and all(names):
            by_speaker = grouped(counts[test, system], names)
            for row, name in enumerate(sorted(set(names))):
                one = slice(row, row + 1)
                rates.setdefault(name, {})[system] = ErrorCounts(
                    by_speaker.errors[one], by_speaker.lengths[one]
                )
    found = [
        Speaker(
            name,
            int(max(each.lengths.sum() for each in its.values())),
            {s: each.rate for s, each in its.items()},
        )
        for name, its in rates.items()
    ]
    return sorted(found, key=lambda each: -each.rates.get(judged, 0.0)) if len(found) > 1 else []


def speaker_of(cut: Cut | None) -> str:
    """The speaker of a cut; "" if unknown."""
    return next((each.speaker for each in cut.supervisions if each.speaker), "") if cut is not None else ""


def worst_of(transcripts: Sequence[Transcript], cuts: Mapping[str, Cut]) -> list[Worst]:
    """The utterances with the most errors."""
    said = {each.id: each.hypothesis for each in transcripts}
    return [
        Worst(each, said[each.id], cut.to_dict() if (cut := cuts.get(each.id)) is not None else None)
        for each in misheard(transcripts)[:MOST_WORST]
    ]
