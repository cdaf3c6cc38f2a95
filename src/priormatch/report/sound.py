"""Embed the audio of a cut in a page, as an MP3 in a data URI."""

import base64
import io
from dataclasses import dataclass
from typing import Any

import soundfile

from priormatch.data import SAMPLE_RATE
from priormatch.data.cuts import cut_of
from priormatch.data.waveforms import as_float, read_samples, why_unreadable

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
