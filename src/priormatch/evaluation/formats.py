"""Transcriptions as text, JSON and subtitles."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict

from priormatch.evaluation.transcribing import Transcription


def to_text(file: str, found: Transcription) -> str:
    """One line a segment."""
    return "".join(f"{segment.text}\n" for segment in found.segments)


def to_json(file: str, found: Transcription) -> str:
    """The file, its duration in seconds, the whole text, and the segments with times and confidences."""
    segments = [
        {
            name: round(value, 3) if isinstance(value, float) else value
            for name, value in asdict(segment).items()
        }
        for segment in found.segments
    ]
    tree = {"file": file, "duration": round(found.duration, 3), "text": found.text, "segments": segments}
    return json.dumps(tree, ensure_ascii=False, indent=2) + "\n"


def to_srt(file: str, found: Transcription) -> str:
    """SubRip subtitles."""
    cues = (
        f"{number}\n{_clock(each.start, ',')} --> {_clock(each.end, ',')}\n{each.text.replace('-->', '->')}\n"
        for number, each in enumerate(found.segments, 1)
    )
    return "\n".join(cues)


def to_vtt(file: str, found: Transcription) -> str:
    """WebVTT subtitles."""
    cues = (
        f"{_clock(each.start, '.')} --> {_clock(each.end, '.')}\n{_escaped(each.text)}\n"
        for each in found.segments
    )
    return "\n".join(["WEBVTT\n", *cues])


FORMATS: Mapping[str, Callable[[str, Transcription], str]] = {
    "txt": to_text,
    "json": to_json,
    "srt": to_srt,
    "vtt": to_vtt,
}
"""What transcriptions can be written as, by the ending of the file."""


def _clock(seconds: float, point: str) -> str:
    """Seconds as hours:minutes:seconds and thousandths."""
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    minutes, seconds = divmod(whole, 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}{point}{thousandths:03d}"


def _escaped(text: str) -> str:
    """Text in which WebVTT sees no markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
