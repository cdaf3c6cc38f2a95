"""Transcriptions as text, JSON and subtitles."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from textwrap import wrap
from typing import Any, NamedTuple

from priormatch.recognizers.transcribing import Transcription

LINE = 42  # maximum characters per subtitle line
LINES = 2  # maximum lines per cue
SHORTEST_CUE = 1.0  # seconds to read a cue, unless the next one begins or the recording ends earlier


@dataclass(frozen=True)
class Origin:
    """The source of a transcription: the recording, and the folders of the models."""

    file: str
    model: str
    prior: str | None = None


class Cue(NamedTuple):
    """A subtitle with its start and end in seconds."""

    start: float
    end: float
    text: str


def to_text(origin: Origin, found: Transcription) -> str:
    """One line per segment."""
    return "".join(f"{segment.text}\n" for segment in found.segments)


def to_json(origin: Origin, found: Transcription) -> str:
    """The file, the models, the duration, the whole text, and segments and words with times and confidences."""
    return json.dumps(_tree(origin, found), ensure_ascii=False, indent=2) + "\n"


def to_json_line(origin: Origin, found: Transcription) -> str:
    """The same JSON on one line."""
    return json.dumps(_tree(origin, found), ensure_ascii=False) + "\n"


def to_srt(origin: Origin, found: Transcription) -> str:
    """SubRip subtitles."""
    cues = (
        f"{number}\n{_clock(cue.start, ',')} --> {_clock(cue.end, ',')}\n{cue.text.replace('-->', '->')}\n"
        for number, cue in enumerate(cues_of(found), 1)
    )
    return "\n".join(cues)


def to_vtt(origin: Origin, found: Transcription) -> str:
    """WebVTT subtitles."""
    cues = (
        f"{_clock(cue.start, '.')} --> {_clock(cue.end, '.')}\n{_escaped(cue.text)}\n"
        for cue in cues_of(found)
    )
    return "\n".join(["WEBVTT\n", *cues])


FORMATS: Mapping[str, Callable[[Origin, Transcription], str]] = {
    "txt": to_text,
    "json": to_json,
    "srt": to_srt,
    "vtt": to_vtt,
}
"""Output formats of transcriptions, by file suffix."""


def cues_of(found: Transcription) -> Iterator[Cue]:
    """Split segments into cues that last from their first word to their last one, or long enough to be read."""
    end = Cue(found.duration, found.duration, "")
    for cue, following in pairwise([*spoken_cues(found), end]):
        yield cue._replace(end=max(cue.end, min(cue.start + SHORTEST_CUE, following.start)))


def spoken_cues(found: Transcription) -> Iterator[Cue]:
    """Split segments into cues that last from their first word to their last one.

    Without times of words, the cues of a segment share its time in proportion to the lengths of their texts.
    """
    for segment in found.segments:
        lines = balanced_lines(segment.text)
        texts = ["\n".join(lines[first : first + LINES]) for first in range(0, len(lines), LINES)]
        if [word.text for word in segment.words] == " ".join(texts).split():
            words = iter(segment.words)
            for text in texts:
                own = [next(words) for _ in text.split()]
                yield Cue(own[0].start, own[-1].end, text)
            continue
        start, seconds, characters = segment.start, segment.end - segment.start, sum(map(len, texts))
        for text in texts:
            end = start + seconds * (len(text) / characters)
            yield Cue(start, end, text)
            start = end


def balanced_lines(text: str, most: int = LINE) -> list[str]:
    """Wrap text into the fewest lines, of about equal length; words longer than a line are broken."""
    words = " ".join(text.split())
    wrapped = partial(wrap, words, break_on_hyphens=False)
    fewest = len(wrapped(most))
    widths = range(max(len(words) // max(fewest, 1), 1), most + 1)
    return next(lines for width in widths if len(lines := wrapped(width)) == fewest)


def _tree(origin: Origin, found: Transcription) -> dict[str, Any]:
    segments = [_rounded(asdict(segment)) for segment in found.segments]
    for segment in segments:
        if not segment["words"]:
            del segment["words"]
    heard = {"duration": round(found.duration, 3), "text": found.text, "segments": segments}
    return {**asdict(origin), **heard}


def _rounded(tree: Any) -> Any:
    """A tree of dictionaries and lists in which times and confidences have three decimals."""
    if isinstance(tree, dict):
        return {name: _rounded(value) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_rounded(each) for each in tree]
    return round(tree, 3) if isinstance(tree, float) else tree


def _clock(seconds: float, point: str) -> str:
    """Format seconds as hours:minutes:seconds and thousandths."""
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    minutes, seconds = divmod(whole, 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}{point}{thousandths:03d}"


def _escaped(text: str) -> str:
    """Escape the markup characters of WebVTT."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
