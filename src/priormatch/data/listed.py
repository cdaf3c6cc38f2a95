"""Utterances that a user's table or manifest lists, to a manifest of cuts: what all such formats share."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock

from lhotse import MonoCut, Recording

from priormatch.data.audio import BadAudio, open_recording
from priormatch.data.intake import Intake
from priormatch.data.manifest import distinct_names, name_of, utterance, write_manifests
from priormatch.errors import UserError

BEYOND = "not within the audio"
ROUNDING = 0.01
"""Seconds by which an end may lie beyond the audio, for tables whose times are rounded."""


@dataclass(frozen=True)
class Listed:
    """An utterance as it is listed: a file or a stretch of it, in seconds, and what is known of it; "" is unknown."""

    line: int
    path: Path
    text: str = ""
    speaker: str = ""
    id: str = ""
    start: float = 0.0
    end: float | None = None

    @property
    def span(self) -> str:
        """The stretch in words."""
        return f"{self.start:g} to {'the end' if self.end is None else format(self.end, 'g')}"


def write_listed(
    listed: Sequence[Listed],
    file: Path,
    roots: Sequence[Path],
    out: Path,
    intake: Intake,
    max_bad_share: float,
    overwrite: bool,
) -> Path:
    """Write the manifest `out` of the utterances that `file` lists; paths are relative to one of `roots`.

    Ids that are not given are made of the paths. Two equal ids stop with their line numbers; unusable audio is
    skipped and listed.
    """
    given: dict[str, int] = {}
    for each in listed:
        if each.id and given.setdefault(each.id, each.line) != each.line:
            raise UserError(
                f"{file}, line {each.line}: the id {each.id!r} is on line {given[each.id]} already."
            )
    made = distinct_names((name_of(each.path) for each in listed if not each.id), taken=given)
    sources = [(each, each.id or next(made)) for each in listed]
    names = frozenset(name for _, name in sources)
    open_once = opener()

    def cuts_of(source: tuple[Listed, str]) -> list[MonoCut]:
        each, name = source
        path = locate(each.path, roots)
        recording = open_once(path, name_of(each.path))
        end = recording.duration if each.end is None else min(each.end, recording.duration)
        if end <= each.start or end < (each.end or 0) - ROUNDING:
            asked = f"lasts {recording.duration:.2f} s, but line {each.line} asks for {each.span}"
            raise BadAudio(path, asked, BEYOND)
        text = intake.usable(path, each.text) if each.text else None
        duration = end - each.start
        whole = utterance(name, recording, text, each.speaker or None, start=each.start, duration=duration)
        return intake.parts(whole, names)

    write_manifests({out: sources}, cuts_of, max_bad_share, overwrite)
    return out


def locate(path: Path, roots: Sequence[Path]) -> Path:
    """The place of a file that is named relative to one of the roots; in the first if it is nowhere."""
    places = [root / path for root in roots]
    return next((place for place in places if place.exists()), places[0])


def opener() -> Callable[[Path, str], Recording]:
    """A way to open recordings that decodes each once, good or bad, however many utterances it holds."""

    @lru_cache(maxsize=1024)
    def try_opening(path: Path, name: str) -> Recording | BadAudio:
        try:
            return open_recording(path, name, decode=True)
        except BadAudio as bad:
            return bad

    locks = defaultdict[Path, Lock](Lock)

    def open_once(path: Path, name: str) -> Recording:
        with locks[path]:  # whose utterances come one after the other, to many threads at a time
            found = try_opening(path, name)
        if isinstance(found, BadAudio):
            raise BadAudio(found.path, found.reason)
        return found

    return open_once


def read_seconds(where: str, what: str, value: str | float) -> float:
    """A time in seconds, or a word about where there is none."""
    try:
        seconds = math.nan if isinstance(value, bool) else float(value)
    except (ValueError, TypeError):
        seconds = math.nan
    if 0 <= seconds < math.inf:
        return seconds
    raise UserError(f"{where}: {what} must be a number of seconds, not {value!r}.")
