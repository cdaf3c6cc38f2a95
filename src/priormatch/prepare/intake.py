"""Options for reading a user's audio: how transcripts are handled, and where long recordings are cut."""

import math
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from lhotse import MonoCut
from lhotse.utils import fastcopy

from priormatch.data.audio import BadAudio
from priormatch.data.clips import file_levels
from priormatch.data.normalizer import ENGLISH, Normalizer
from priormatch.data.pauses import FRAMES, Cutting, cut_at_pauses
from priormatch.data.recordings import PART_OF, place_of
from priormatch.data.text import Unspoken

MOST_CHARACTERS = 100
"""Per second, plus a hundred: five times as many as the fastest speakers produce."""


@dataclass(frozen=True)
class Intake:
    """Options for writing audio into a manifest."""

    normalizer: Normalizer = ENGLISH
    transcripts_needed: bool = True  # False keeps an utterance with an unusable transcript, as untranscribed
    segment: float = 0.0  # seconds; longer untranscribed audio is cut at its pauses; 0 disables cutting

    def __post_init__(self) -> None:
        if self.segment:
            Cutting(self.segment)  # raises UserError for an unusable value

    def usable(self, audio: Path, text: str) -> str | None:
        """Normalize a transcript; if it is unusable, raise `BadAudio`, or return None if transcripts are not needed."""
        try:
            if "\0" in text:
                raise Unspoken(text, "contains a NUL character", "wrong encoding of the transcript")
            return self.normalizer.spoken(text)
        except Unspoken as error:
            if not self.transcripts_needed:
                return None
            raise BadAudio(audio, str(error), error.kind) from error

    def parts(self, whole: MonoCut, taken: Container[str]) -> list[MonoCut]:
        """Return an utterance unchanged, or cut at its pauses if it is too long and has no transcript.

        The parts refer to the same recording. They are named NAME-0000, NAME-0001 and so on, avoiding taken names.
        """
        (supervision,) = whole.supervisions
        if len(supervision.text or "") > MOST_CHARACTERS * (whole.duration + 1):
            if self.transcripts_needed:
                what = f"its transcript of {len(supervision.text):,} characters is too long for {whole.duration:.2f} s"
                raise BadAudio(Path(whole.recording.sources[0].source), what, "transcript too long")
            supervision = fastcopy(supervision, text=None)
            whole = fastcopy(whole, supervisions=[supervision])
        if not self.segment or supervision.text is not None or whole.duration <= self.segment:
            return [whole]
        source = next(each for each in whole.recording.sources if whole.channel in each.channels)
        channel = source.channels.index(whole.channel)
        first = math.ceil(whole.start * FRAMES)
        levels = file_levels(Path(source.source), lambda block: block[:, channel])
        spans = cut_at_pauses(levels[first : math.ceil(whole.end * FRAMES)], Cutting(self.segment))
        if not spans:
            raise BadAudio(Path(source.source), "holds no speech, only quiet or an even noise", "no speech")
        return [
            part_of(whole, number, (first + start) / FRAMES, min((first + end) / FRAMES, whole.end), taken)
            for number, (start, end) in enumerate(spans)
        ]


AS_IT_COMES = Intake()


def part_of(whole: MonoCut, number: int, start: float, end: float, taken: Container[str]) -> MonoCut:
    """Make a part of an utterance, from `start` to `end` seconds of its recording."""
    name, duration = f"{whole.id}-{number:04d}", round(end - start, 8)
    while name in taken:
        name += "x"
    (supervision,) = whole.supervisions
    custom = dict(whole.custom or {})
    if PART_OF in custom:
        recording, second = place_of(whole)
        custom[PART_OF] = [recording, second + start - whole.start]
    return fastcopy(
        whole,
        id=name,
        start=start,
        duration=duration,
        supervisions=[fastcopy(supervision, id=name, duration=duration)],
        custom=custom or None,
    )
