"""Utterances listed by a user's folder, table or manifest: code shared by all such formats."""

import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock

from lhotse import MonoCut, Recording

from priormatch.data.audio import BadAudio, open_recording
from priormatch.data.manifest import distinct_names, name_of, utterance, write_manifests
from priormatch.errors import UserError
from priormatch.prepare.intake import Intake
from priormatch.prepare.source import Utterance, read_transcript

BEYOND = "not within the audio"
MOST_SECONDS = 1e9  # 30 years; sums of larger claims would overflow
ROUNDING = 0.01
"""Seconds by which an end may exceed the audio, for tables with rounded times."""


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

        Missing ids are made from the paths. Two equal ids raise `UserError` with their line numbers; unusable audio is
        skipped and listed.
        """
        sources = list(zip(self.listed, self.names(), strict=True))
        taken = frozenset(name for _, name in sources)
        paths = dict.fromkeys(each.path for each in self.listed)
        recordings = dict(zip(paths, distinct_names(map(name_of, paths)), strict=True))
        open_once = opener()

        def cuts_of(source: tuple[Listed, str]) -> list[MonoCut]:
            each, name = source
            path = locate(each.path, self.roots)
            recording = open_once(path, recordings[each.path])
            end = recording.duration if each.end is None else min(each.end, recording.duration)
            if end <= each.start or end < (each.end or 0) - ROUNDING:
                asked = f"lasts {recording.duration:.2f} s, but line {each.line} asks for {each.span}"
                raise BadAudio(path, asked, BEYOND)
            text, duration = transcript_of(each, path, intake), end - each.start
            whole = utterance(
                name, recording, text, each.speaker or None, start=each.start, duration=duration
            )
            return intake.parts(whole, taken)

        write_manifests({out: sources}, cuts_of, max_bad_share, overwrite)

    def names(self) -> list[str]:
        """Return ids for all utterances: those given, which must differ, and others made from the paths."""
        given: dict[str, int] = {}
        for each in self.listed:
            if each.id and given.setdefault(each.id, each.line) != each.line:
                raise UserError(
                    f"{self.file}, line {each.line}: the id {each.id!r} is already on line {given[each.id]}."
                )
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
    return next(
        (place for place in places if os.path.exists(place)), places[0]
    )  # False also for absurd names


def opener() -> Callable[[Path, str], Recording]:
    """Return a function that opens recordings and decodes each once, good or bad, however many utterances it has."""

    @lru_cache(maxsize=1024)
    def try_opening(path: Path, name: str) -> Recording | BadAudio:
        try:
            return open_recording(path, name, decode=True)
        except BadAudio as bad:
            return bad

    locks = defaultdict[Path, Lock](Lock)

    def open_once(path: Path, name: str) -> Recording:
        with locks[path]:  # many threads get utterances of the same recording at a time
            found = try_opening(path, name)
        if isinstance(found, BadAudio):
            raise BadAudio(found.path, found.reason)
        return found

    return open_once


def read_seconds(where: str, what: str, value: str | float) -> float:
    """Return a time in seconds; raise `UserError` if it is not one."""
    try:
        seconds = math.nan if isinstance(value, bool) else float(value)
    except (ValueError, TypeError, OverflowError):
        seconds = math.nan
    if 0 <= seconds <= MOST_SECONDS:
        return seconds
    raise UserError(f"{where}: {what} must be a number of seconds, not {repr(value)[:40]}.")
