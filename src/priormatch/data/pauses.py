"""Cut long recordings at their pauses, found from the level of each frame."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from priormatch.errors import UserError

FRAMES = 100
"""Frames per second; levels are measured per frame, and segments begin and end on frames."""

Levels = npt.NDArray[np.float64]
"""The level of every frame in decibels relative to full scale: (F,)."""

SILENCE = -120.0  # dB; the lowest level of a frame
SMOOTHED = 5  # frames over which levels are averaged before they are compared
WINDOW = 2000  # frames from which a noise floor is estimated
NEARBY = 150  # frames on either side of a frame in which its noise floor must be present
STEP = 100  # frames that share a threshold
RANGE = 50.0  # dB; the floor is at most this far below the loudest nearby level
FAINTEST = -75.0  # dB; noise below this is ignored
SAME = 3.0  # dB by which two measurements of the same noise may differ
MARGIN = (6.0, 12.0)  # dB; least and largest margin of speech above the floor
CONTRAST = 0.3  # the margin as a share of the contrast, between those bounds
BURST = 10  # frames; a shorter loud sound is a click
EDGE = 15  # frames of quiet kept on either side of speech, where faint sounds begin and end
DIP = 41  # frames that count, nearer ones more, when the quietest place is chosen


@dataclass(frozen=True)
class Cutting:
    """How to cut recordings, in seconds: longest and shortest segment, and shortest pause between two.

    A segment is shorter than `shortest` only if there is not enough quiet around it to widen it.
    """

    longest: float = 20.0
    shortest: float = 1.0
    pause: float = 0.4

    def __post_init__(self) -> None:
        if not 1.0 <= self.longest < float("inf"):
            raise UserError(f"a longest segment of {self.longest:g} s is too short: use 1 s or more")
        if not 0 <= self.shortest <= self.longest:
            raise UserError(
                f"the shortest segment, {self.shortest:g} s, must be between 0 and the longest, {self.longest:g} s"
            )
        if not 2 * EDGE / FRAMES <= self.pause < float("inf"):
            raise UserError(
                f"a pause of {self.pause:g} s is too short to cut at: use {2 * EDGE / FRAMES:g} s or more"
            )


def frame_levels(samples: np.ndarray, rate: int) -> Levels:
    """Measure levels of samples in [-1, 1], without any constant offset: (N,) -> (F,); the last frame may be short."""
    starts = np.arange(-(-len(samples) * FRAMES // rate)) * rate // FRAMES
    if not len(starts):
        return np.empty(0)
    values = samples.astype(np.float64)
    counts = np.diff(starts, append=len(samples))
    means = np.add.reduceat(values, starts) / counts
    power = np.add.reduceat(values**2, starts) / counts - means**2
    return 10 * np.log10(np.maximum(power, 10 ** (SILENCE / 10)))


def cut_at_pauses(levels: Levels, cutting: Cutting) -> list[tuple[int, int]]:
    """Return segments [start, end) with speech, in frames, in order and without overlap; none if all is quiet.

    A pause is at least `cutting.pause` of quiet. Speech without a pause for longer than `cutting.longest` is cut where
    it is quietest. Some of the quiet around speech is kept.
    """
    pause, longest = round(cutting.pause * FRAMES), int(cutting.longest * FRAMES)
    pieces = [
        piece
        for start, end in speech_runs(levels, pause)
        for piece in _halve(levels, start, end, longest - 2 * EDGE)
    ]
    return _widen(pieces, len(levels), int(cutting.shortest * FRAMES)) if pieces else []


def speech_runs(levels: Levels, pause: int) -> list[tuple[int, int]]:
    """Return the runs [start, end) of speech with at least `pause` frames of quiet between them; clicks are quiet."""
    return _join(_runs(loud_frames(levels)), pause)


def loud_frames(levels: Levels) -> npt.NDArray[np.bool_]:
    """Mark the frames that are louder than the noise around them: (F,).

    Speech is above the noise floor by a margin, which grows with the contrast. If everything is about equally loud,
    no frame is marked. The floor is the 5th percentile of a window. Of all windows that contain a frame, the one with
    the highest floor counts, so a noise is not taken for speech from its beginning to its end, unless it is quieter
    near the frame.
    """
    loud = np.zeros(len(levels), bool)
    if not len(levels):
        return loud
    power = np.pad(10 ** (levels / 10), SMOOTHED // 2)
    smooth = 10 * np.log10(np.convolve(power, np.ones(SMOOTHED) / SMOOTHED, "valid")[: len(levels)])
    windows = [  # (floor, loudest): the 5th and the 95th percentile
        tuple(np.percentile(smooth[start : start + WINDOW], (5, 95)))
        for start in range(0, max(len(levels) - WINDOW + STEP, 1), STEP)
    ]
    for start in range(0, len(levels), STEP):
        end = start + STEP
        around = windows[max(end - WINDOW, 0) // STEP : end // STEP]
        nearby = np.percentile(smooth[max(start - NEARBY, 0) : end + NEARBY], 5)
        floor, highest = max((each for each in around if each[0] <= nearby + SAME), default=min(around))
        floor = max(floor, highest - RANGE, FAINTEST)
        margin = np.clip(CONTRAST * (highest - floor), *MARGIN)
        loud[start:end] = smooth[start:end] > floor + margin
    return loud


def _runs(loud: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the runs [start, end) of loud frames."""
    changes = np.flatnonzero(np.diff(loud, prepend=False, append=False))
    return [(int(start), int(end)) for start, end in changes.reshape(-1, 2)]


def _join(runs: list[tuple[int, int]], pause: int) -> list[tuple[int, int]]:
    """Join runs with less than a pause between them, and drop those with fewer than `BURST` loud frames."""
    joined: list[tuple[int, int, int]] = []  # start, end, loud frames
    for start, end in runs:
        if joined and start - joined[-1][1] < pause:
            first, _, loud = joined[-1]
            joined[-1] = (first, end, loud + end - start)
        else:
            joined.append((start, end, end - start))
    return [(start, end) for start, end, loud in joined if loud >= BURST]


def _halve(levels: Levels, start: int, end: int, longest: int) -> list[tuple[int, int]]:
    """Split in two at the quietest place until no segment is too long."""
    if end - start <= longest:
        return [(start, end)]
    middle = start + _quietest(levels[start:end])
    return [*_halve(levels, start, middle, longest), *_halve(levels, middle, end, longest)]


def _quietest(levels: Levels) -> int:
    """Return the quietest frame of the middle half."""
    smooth = np.convolve(levels, np.hanning(DIP), "same")
    first = len(levels) // 4
    return first + int(smooth[first : len(levels) - first].argmin())


def _widen(pieces: list[tuple[int, int]], frames: int, shortest: int) -> list[tuple[int, int]]:
    """Add an edge of quiet to each piece, more to a short one; neighbors share the gap between them."""
    between = [(one[1] + other[0]) // 2 for one, other in pairwise(pieces)]
    widened = []
    for (start, end), low, high in zip(pieces, [0, *between], [*between, frames], strict=True):
        edge = max(EDGE, (shortest - (end - start)) // 2)
        widened.append((max(start - edge, low), min(end + edge, high)))
    return widened
