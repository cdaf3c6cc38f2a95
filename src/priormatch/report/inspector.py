"""The hypothesis inspector: an utterance, its audio as an MP3 in a data URI, and the beams of the proposals."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import soundfile

from priormatch.data import SAMPLE_RATE
from priormatch.data.cuts import cut_of
from priormatch.data.waveforms import as_float, read_samples, why_unreadable
from priormatch.matching.hypotheses import Hypothesis, Inspection
from priormatch.training.inspected import Inspected

LONGEST = 20.0
"""Maximum seconds of an utterance that are embedded."""
ROOM = 3_000_000
"""Maximum characters of audio in a report."""


@dataclass(frozen=True)
class Sound:
    """A data URI to play, or why there is none."""

    uri: str | None
    note: str = ""


def embed(item: dict[str, Any], room: int = ROOM) -> Sound:
    """Embed the audio of a cut, given as its manifest entry, if it fits into `room` characters.

    MP3 is the only small format that every browser plays.
    """
    try:
        cut = cut_of(item)
    except ValueError as error:
        return Sound(None, f"not a cut: {error}")
    try:
        samples = as_float(read_samples(cut))[: round(LONGEST * SAMPLE_RATE)]
        file = io.BytesIO()
        soundfile.write(file, samples, SAMPLE_RATE, format="MP3")
    except Exception as error:  # audio readers and writers raise errors of many types
        return Sound(None, f"cannot be played: {why_unreadable(cut, error)}")
    uri = "data:audio/mpeg;base64," + base64.b64encode(file.getvalue()).decode()
    if len(uri) > room:
        return Sound(None, "left out to keep this file small")
    return Sound(uri, f"the first {LONGEST:g} seconds" if cut.duration > LONGEST else "")


@dataclass(frozen=True)
class Beam:
    """The beam of the proposal at an update."""

    update: int
    inspection: Inspection

    @property
    def title(self) -> str:
        """The title of the beam's table."""
        return f"Latest proposal, taken at update {self.update:,}" if self.update else "First proposal"

    @property
    def heaviest(self) -> Hypothesis | None:
        """The hypothesis with the largest weight, or None if none has a weight above 0."""
        best = max(self.inspection.hypotheses, key=lambda each: each.weight, default=None)
        return best if best is not None and best.weight > 0 else None


@dataclass(frozen=True)
class Utterance:
    """An utterance with its beams, the first proposal's before the latest proposal's."""

    id: str
    reference: str | None
    sound: Sound
    beams: list[Beam]

    @property
    def errors(self) -> list[int | None]:
        """Word errors of each beam's heaviest hypothesis; None without such a hypothesis or a reference."""
        return [None if each.heaviest is None else word_errors(each.heaviest) for each in self.beams]

    @property
    def change(self) -> str:
        """The change of the heaviest hypothesis, in a few words."""
        if all(each.heaviest is None for each in self.beams):
            return "no hypothesis left"
        if self.reference is None:
            return ""
        counts = ("no hypothesis" if count is None else str(count) for count in self.errors)
        return f"errors: {' → '.join(counts)}"


def utterances(inspected: Sequence[Inspected], room: int) -> list[Utterance]:
    """Group beams by utterance, with the audio of as many as fit into `room` characters."""
    found: list[Utterance] = []
    for name in dict.fromkeys(each.inspection.id for each in inspected):
        own = [each for each in inspected if each.inspection.id == name]
        sound = embed(own[0].cut, room)
        room -= len(sound.uri or "")
        beams = [Beam(each.update, each.inspection) for each in own]
        found.append(Utterance(name, own[0].inspection.reference, sound, beams))
    return found


def word_errors(hypothesis: Hypothesis) -> int | None:
    """Count the word errors of a hypothesis, or return None without a reference."""
    if hypothesis.words is None:
        return None
    return sum(word.kind != "equal" for word in hypothesis.words)


@dataclass(frozen=True)
class ErrorChange:
    """Word errors of the first and the last heaviest hypotheses, over the utterances that have both.

    `known` counts all utterances with a reference and two beams, `both` those counted here.
    """

    known: int
    both: int
    first: int
    last: int
    words: int


def error_change(found: Sequence[Utterance]) -> ErrorChange | None:
    """Sum the errors of the first and the last beams, or return None if no utterance has both."""
    known = [each for each in found if each.reference is not None and len(each.beams) > 1]
    both = [
        (first, last, len((each.reference or "").split()))
        for each in known
        if (first := each.errors[0]) is not None and (last := each.errors[-1]) is not None
    ]
    if not both:
        return None
    return ErrorChange(len(known), len(both), *map(sum, zip(*both, strict=True)))
