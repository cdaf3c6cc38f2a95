"""The order of utterances in a recording, and the text before each."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from priormatch.errors import UserError

if TYPE_CHECKING:  # lhotse is slow to import
    from lhotse.cut import Cut

PART_OF = "part_of"
"""The custom field of a cut stored apart from its recording: the recording's id, and the cut's start in it."""


def place_of(cut: "Cut") -> tuple[str, float]:
    """Return the recording that a cut is part of, and its start there in seconds."""
    stored = (getattr(cut, "custom", None) or {}).get(PART_OF)
    if stored is None:
        return getattr(cut, "recording_id", cut.id), getattr(cut, "start", 0.0)
    try:
        recording, start = stored
        return str(recording), float(start)
    except (TypeError, ValueError) as error:
        raise UserError(
            f'{cut.id}: {PART_OF}={stored!r} is not a recording and a start: write it as ["recording", 12.5]'
        ) from error


def previous_in_recording(cuts: "Iterable[Cut]") -> dict[str, str]:
    """Map the id of each cut to the id of the previous one; the first of a recording is not in the map.

    Cuts are ordered by start, and by id if they start together.
    """
    recordings = defaultdict[str, list[tuple[float, str]]](list)
    for cut in cuts:
        recording, start = place_of(cut)
        recordings[recording].append((start, cut.id))
    return {
        later: earlier
        for places in recordings.values()
        for (_, earlier), (_, later) in pairwise(sorted(places))
    }


def contexts_of(cuts: "Iterable[Cut]", heard: Mapping[str, str]) -> dict[str, str]:
    """The transcript of the previous utterance in the same recording, by id; none for the first of a recording."""
    before = previous_in_recording(cuts)
    return {name: text for name, earlier in before.items() if (text := heard.get(earlier, ""))}


def audio_of(cut: "Cut") -> str:
    """Where a person finds the audio of a cut: its file, and the seconds in it if it is a part; its id without one."""
    recording = getattr(cut, "recording", None)
    if recording is None or not recording.sources:
        return cut.id
    whole = cut.duration >= recording.duration - 0.01
    return f"{recording.sources[0].source}{'' if whole else f', {cut.start:.1f} to {cut.end:.1f} s'}"
