"""Resample audio with a windowed sinc; the sums have a fixed order, so the result is the same on every machine."""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from lhotse.augmentation import AudioTransform, Resample
from lhotse.cut import Cut, MixedCut, PaddingCut
from lhotse.utils import fastcopy

ZERO_CROSSINGS = 10  # of the sinc on each side
KAISER_BETA = 5.0
ROWS = 64  # at least, of one period: NumPy is slow with fewer


class Phases(NamedTuple):
    """The filter for one period of the output, which repeats every `hop` samples of the input.

    Output r is the sum of taps[:, r] times the samples from first[r] on; first is negative before the start.
    """

    taps: np.ndarray
    first: np.ndarray
    hop: int


def resample(samples: np.ndarray, rate: int, to: int) -> np.ndarray:
    """Resample (N,) from one rate to another: (ceil(N·to/rate),) float32.

    y[m] = sum over i of x[i] h(m·down - i·up), where up/down = to/rate in lowest terms. The filter h cuts off at the
    lower of the two Nyquist frequencies.
    """
    if rate == to:
        return samples.astype(np.float32, copy=False)
    common = math.gcd(rate, to)
    taps, first, hop = phases(to // common, rate // common)
    length = -(-len(samples) * to // rate)
    periods = length // len(first) + 1
    before, rows = -first.min(), first.max() - first.min() + len(taps)
    padded = np.zeros((periods - 1) * hop + max(rows, hop), np.float32)
    given = samples[: len(padded) - before]
    padded[before : before + len(given)] = given
    # Row j has the samples j, j + hop, j + 2·hop, ...: one tap then multiplies whole rows.
    windows = np.lib.stride_tricks.sliding_window_view(padded, rows)[::hop]
    columns = np.ascontiguousarray(windows.T)
    total = np.zeros((len(first), periods), np.float32)
    product = np.empty_like(total)
    for number, tap in enumerate(taps):
        columns.take(first + before + number, axis=0, out=product, mode="clip")
        product *= tap[:, None]
        total += product
    return total.T.ravel()[:length]


@lru_cache(maxsize=16)
def phases(up: int, down: int) -> Phases:
    """Design the filter: a sinc in a Kaiser window, with gain `up` since only every `up`-th sample is not 0."""
    slower = max(up, down)
    reach = ZERO_CROSSINGS * slower
    time = np.arange(-reach, reach + 1)
    sinc = np.sinc(time / slower) * np.kaiser(len(time), KAISER_BETA)
    sinc = (sinc / sinc.sum()).astype(np.float32) * np.float32(up)
    repeats = math.ceil(ROWS / up)
    position = np.arange(repeats * up) * down
    first = -((reach - position) // up)
    number = np.arange(2 * reach // up + 1)[:, None]
    delay = position - (first + number) * up
    taps = np.where(delay >= -reach, sinc[np.maximum(delay, -reach) + reach], np.float32(0))
    return Phases(taps, first, repeats * down)


class SincResample(Resample):
    """Lhotse's transform `Resample` by `resample`: Lhotse's result depends on whether torchaudio is installed."""

    def __call__(self, samples: np.ndarray, sampling_rate: int) -> np.ndarray:
        """Resample every channel: (channels, N) -> (channels, N')."""
        rates = self.source_sampling_rate, self.target_sampling_rate
        return np.stack([resample(channel, *rates) for channel in samples])


def with_sinc(cut: Cut) -> Cut:
    """Replace the transforms `Resample` of all recordings in a cut by ours."""
    if isinstance(cut, MixedCut):
        tracks = [fastcopy(track, cut=with_sinc(track.cut)) for track in cut.tracks]
        return fastcopy(cut, tracks=tracks)
    if isinstance(cut, PaddingCut) or not cut.recording.transforms:
        return cut
    transforms = [_with_sinc(each) for each in cut.recording.transforms]
    return fastcopy(cut, recording=fastcopy(cut.recording, transforms=transforms))


def _with_sinc(transform: AudioTransform | dict) -> AudioTransform:
    if isinstance(transform, dict):
        transform = AudioTransform.from_dict(transform)
    if isinstance(transform, Resample):
        return SincResample(transform.source_sampling_rate, transform.target_sampling_rate)
    return transform
