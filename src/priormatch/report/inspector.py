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
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.report.aligned import Alignment, align_text
from priormatch.report.pictures import spectrogram
from priormatch.report.test_sets import Worst
from priormatch.scoring.alignment import AlignedWord
from priormatch.training.inspected import Inspected

LONGEST = 20.0
"""Maximum seconds of an utterance that are embedded."""
ROOM = 3_000_000
"""Maximum characters of audio in a report."""


@dataclass(frozen=True)
class Sound:
    """A data URI to play with a picture of it, or why there is none; and where the words of a text are in it."""

    uri: str | None
    note: str = ""
    seconds: float = 0.0
    spectrogram: str = ""
    alignment: Alignment | None = None

    @property
    def size(self) -> int:
        """The characters that it takes in the report."""
        weights = self.alignment.weights if self.alignment else ""
        return len(self.uri or "") + len(self.spectrogram) + len(weights)


def embed(
    item: dict[str, Any], room: int = ROOM, model: SpeechRecognizer | None = None, text: str = ""
) -> Sound:
    """Embed the audio of a cut, given as its manifest entry, if it fits into `room` characters.

    MP3 is the only small format that every browser plays. With a model, the text is aligned with the audio.
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
    whole = cut.duration <= LONGEST
    alignment = align_text(model, samples, text) if model is not None and whole else None
    note = "" if whole else f"the first {LONGEST:g} seconds"
    found = Sound(uri, note, len(samples) / SAMPLE_RATE, spectrogram(samples), alignment)
    return found if found.size <= room else Sound(None, "left out to keep this file small")


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


def utterances(
    inspected: Sequence[Inspected], room: int, model: SpeechRecognizer | None = None
) -> list[Utterance]:
    """Group beams by utterance, with the audio of as many as fit into `room` characters.

    The model aligns the audio with the heaviest hypothesis of the last beam.
    """
    found: list[Utterance] = []
    for name in dict.fromkeys(each.inspection.id for each in inspected):
        own = [each for each in inspected if each.inspection.id == name]
        beams = [Beam(each.update, each.inspection) for each in own]
        heaviest = beams[-1].heaviest
        sound = embed(own[0].cut, room, model, heaviest.text if heaviest else "")
        room -= sound.size
        found.append(Utterance(name, own[0].inspection.reference, sound, beams))
    return found


@dataclass(frozen=True)
class WorstUtterance:
    """An utterance of a test set with many errors, and its audio."""

    id: str
    errors: int
    words: Sequence[AlignedWord]
    sound: Sound


def worst_utterances(
    found: Sequence[Worst], room: int, model: SpeechRecognizer | None
) -> list[WorstUtterance]:
    """Embed the audio of the worst utterances, as much as fits into `room` characters."""
    shown = []
    for each in found:
        sound = Sound(None, "not found in the data of the run")
        if each.cut is not None:
            sound = embed(each.cut, room, model, each.hypothesis)
        room -= sound.size
        shown.append(WorstUtterance(each.aligned.id, each.aligned.errors, each.aligned.words, sound))
    return shown


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
