"""A user's audio in any format: its utterances before their audio is opened, and how they become cuts."""

import errno
import math
import os
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import Protocol

from lhotse import MonoCut, Recording
from lhotse.utils import fastcopy

from priormatch.data.audio import BadAudio, open_recording
from priormatch.data.clips import file_levels
from priormatch.data.ffmpeg import Decoded
from priormatch.data.manifest import audio_folder, distinct_names, name_of, utterance, write_manifests
from priormatch.data.normalizer import ENGLISH, Normalizer
from priormatch.data.pauses import FRAMES, Cutting, cut_at_pauses
from priormatch.data.recordings import PART_OF, place_of
from priormatch.data.text import Unspoken
from priormatch.errors import UserError
from priormatch.files import open_regular

MOST_BYTES = 1 << 20
"""Maximum size of the transcript of one utterance."""
MOST_CHARACTERS = 100
"""Per second, plus a hundred: five times as many as the fastest speakers produce."""
BEYOND = "not within the audio"
ROUNDING = 0.01
"""Seconds by which an end may exceed the audio, for tables with rounded times."""


@dataclass(frozen=True)
class Utterance:
    """An utterance whose audio has not been opened.

    `find_audio` returns the audio file or raises `BadAudio`; audio without its own file is written to the given folder.
    `transcript` may be a file that has not been read, and `seconds` is None if only the audio has the duration.
    """

    find_audio: Callable[[Path], Path]
    transcript: str | Path | None
    speaker: str | None
    seconds: float | None

    def text(self) -> str:
        """Return the original transcript, or "" if it is missing or unreadable."""
        if not isinstance(self.transcript, Path):
            return self.transcript or ""
        try:
            return read_transcript(self.transcript).strip()
        except (OSError, UnicodeDecodeError):
            return ""


def read_transcript(path: Path) -> str:
    """Read the transcript file beside an audio file; raise `OSError` or `UnicodeDecodeError` if it is unreadable."""
    with open_regular(path) as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(errno.EFBIG, "too long for a transcript", str(path))
    return content.decode("utf-8-sig")


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
            raise BadAudio(
                Path(source.source), "contains no speech, only quiet or an even noise", "no speech"
            )
        return [
            part_of(whole, number, (first + start) / FRAMES, min((first + end) / FRAMES, whole.end), taken)
            for number, (start, end) in enumerate(spans)
        ]


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


class Source(Protocol):
    """A user's audio in one of the supported formats."""

    def utterances(self) -> Iterator[Utterance]:
        """Yield the utterances without opening any audio."""

    def write(self, out: Path, intake: Intake, max_bad_share: float, overwrite: bool) -> None:
        """Write the manifest `out`; unusable audio is skipped and listed."""


@dataclass(frozen=True)
class Listed:
    """A listed utterance: a file or a segment of it, in seconds, with text, speaker and id; "" if unknown.

    `text` may be a file that contains the text.
    """

    line: int
    path: Path
    text: str | Path = ""
    speaker: str = ""
    id: str = ""
    start: float = 0.0
    end: float | None = None

    @property
    def span(self) -> str:
        """The segment in words."""
        return f"{self.start:g} to {'the end' if self.end is None else format(self.end, 'g')}"


@dataclass(frozen=True)
class Listing:
    """Utterances listed by a file or found in a folder; their paths are relative to one of the roots."""

    listed: list[Listed]
    file: Path
    roots: Sequence[Path]

    def utterances(self) -> Iterator[Utterance]:
        """Yield the utterances without opening any audio."""
        for each in self.listed:
            seconds = None if each.end is None else each.end - each.start
            yield Utterance(partial(self._audio_of, each), each.text or None, each.speaker or None, seconds)

    def _audio_of(self, each: Listed, _: Path) -> Path:
        return locate(each.path, self.roots)

    def write(self, out: Path, intake: Intake, max_bad_share: float, overwrite: bool) -> None:
        """Write the manifest `out`, decoding every sample to find damage.

        What ffmpeg decodes is written to `NAME.audio` beside the manifest. Missing ids are made from the paths. Two
        equal ids raise `UserError` with their line numbers; unusable audio is skipped and listed.
        """
        sources = list(zip(self.listed, self.names(), strict=True))
        taken = frozenset(name for _, name in sources)
        paths = dict.fromkeys(each.path for each in self.listed)
        recordings = dict(zip(paths, distinct_names(map(name_of, paths)), strict=True))
        open_once = opener(Decoded(audio_folder(out)))

        def cuts_of(source: tuple[Listed, str]) -> list[MonoCut]:
            each, name = source
            path = locate(each.path, self.roots)
            recording = open_once(path, recordings[each.path])
            end = recording.duration if each.end is None else min(each.end, recording.duration)
            if end <= each.start or end < (each.end or 0) - ROUNDING:
                asked = f"lasts {recording.duration:.2f} s, but line {each.line} asks for {each.span}"
                raise BadAudio(path, asked, BEYOND)
            text, speaker = transcript_of(each, path, intake), each.speaker or None
            cut = utterance(name, recording, text, speaker, start=each.start, duration=end - each.start)
            return intake.parts(cut, taken)

        write_manifests({out: sources}, cuts_of, max_bad_share, overwrite)

    def names(self) -> list[str]:
        """Return ids for all utterances: those given, which must differ, and others made from the paths."""
        given: dict[str, int] = {}
        for each in self.listed:
            if each.id and (line := given.setdefault(each.id, each.line)) != each.line:
                where = f"{self.file}, line {each.line}"
                raise UserError(f"{where}: the id {each.id!r} is already on line {line}.")
        made = distinct_names((name_of(each.path) for each in self.listed if not each.id), taken=given)
        return [each.id or next(made) for each in self.listed]


def transcript_of(each: Listed, audio: Path, intake: Intake) -> str | None:
    """Return the words of an utterance, or None if untranscribed; raise `BadAudio` if needed but unreadable."""
    if isinstance(each.text, str):
        return intake.usable(audio, each.text) if each.text else None
    try:
        text = read_transcript(each.text)
    except (OSError, UnicodeDecodeError) as error:
        if not intake.transcripts_needed:
            return None
        reason = "is not UTF-8 text" if isinstance(error, ValueError) else f"cannot be read: {error.strerror}"
        raise BadAudio(audio, f"its transcript {each.text.name} {reason}", "transcript unreadable") from error
    return intake.usable(audio, text)


def locate(path: Path, roots: Sequence[Path]) -> Path:
    """Find a file named relative to one of the roots; return its path in the first root if it does not exist."""
    places = [root / path for root in roots]
    return next(filter(os.path.exists, places), places[0])  # unlike Path.exists, false for absurd names


def opener(decoded: Decoded) -> Callable[[Path, str], Recording]:
    """Return a function that opens recordings and decodes each once, good or bad, however many utterances it has."""

    @lru_cache(maxsize=1024)
    def try_opening(path: Path, name: str) -> Recording | BadAudio:
        try:
            return open_recording(decoded.readable(path), name, decode=True)
        except BadAudio as bad:
            return bad

    locks = defaultdict[Path, Lock](Lock)

    def open_once(path: Path, name: str) -> Recording:
        with locks[path]:  # many threads get utterances of the same recording at a time
            found = try_opening(path, name)
        if isinstance(found, BadAudio):
            raise BadAudio(found.path, found.reason, found.kind)
        return found

    return open_once
