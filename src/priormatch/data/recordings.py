"""Which utterance follows which in a recording."""

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING

from priormatch.errors import UserError

if TYPE_CHECKING:  # lhotse is slow to import
    from lhotse.cut import Cut

PART_OF = "part_of"
"""The custom field of a cut that is stored apart from its recording: that one's id, and where it began in it."""


def place_of(cut: "Cut") -> tuple[str, float]:
    """The recording a cut is part of and the second it begins at."""
    stored = (getattr(cut, "custom", None) or {}).get(PART_OF)
    if stored is None:
        return getattr(cut, "recording_id", cut.id), getattr(cut, "start", 0.0)
    try:
        recording, start = stored
        return str(recording), float(start)
    except (TypeError, ValueError) as error:
        raise UserError(
            f'{cut.id}: {PART_OF}={stored!r} tells no recording and second: write them as ["recording", 12.5]'
        ) from error


def previous_in_recording(cuts: "Iterable[Cut]") -> dict[str, str]:
    """The id of the cut before each by the cut's own id; the first of a recording has none.

    Cuts follow one another by where they begin, and those that begin together by their ids.
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
