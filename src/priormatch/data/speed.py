"""Speed perturbation of a batch on its device."""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import groupby

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from priormatch.data.features import time_mask
from priormatch.data.resample import phases

FINEST = 1000  # the largest denominator of a speed


def stretch(speed: float) -> Fraction:
    """Samples after the change of speed per sample before it."""
    return 1 / Fraction(speed).limit_denominator(FINEST)


def changed_length(samples: int, speed: float) -> int:
    """The number of samples after a change of speed."""
    factor = stretch(speed)
    return -(-samples * factor.numerator // factor.denominator)


def change_speed(waveforms: Tensor, samples: Tensor, speeds: Sequence[float], width: int) -> Tensor:
    """Resample each waveform so that it plays `speed` times as fast, which also changes its pitch.

    waveforms (B, N), zero after the end, lengths (B,) after the change, B speeds -> (B, width), zero after the end.
    Neighbors with equal speeds are resampled together.
    """
    groups = [(speed, len(list(same))) for speed, same in groupby(speeds)]
    rows = zip(waveforms.split([count for _, count in groups]), groups, strict=True)
    changed = [resample_rows(each, stretch(speed)) for each, (speed, _) in rows]
    changed = [functional.pad(each, (0, width - each.shape[1])) for each in changed]  # cuts off if negative
    return torch.cat(changed) * time_mask(samples, width)


def resample_rows(waveforms: Tensor, factor: Fraction) -> Tensor:
    """What `resample` computes with NumPy, for several waveforms: (B, N) -> (B, ceil(N·factor))."""
    if factor == 1 or waveforms.shape[1] == 0:
        return waveforms
    weight, before, hop = _kernel(factor)
    length = -(-waveforms.shape[1] * factor.numerator // factor.denominator)
    periods = -(-length // factor.numerator)
    after = max((periods - 1) * hop + len(weight) - before - waveforms.shape[1], 0)
    windows = functional.pad(waveforms, (before, after)).unfold(1, len(weight), hop)[:, :periods]
    return (windows @ torch.from_numpy(weight).to(waveforms)).flatten(1)[:, :length]


@lru_cache(maxsize=16)
def _kernel(factor: Fraction) -> tuple[np.ndarray, int, int]:
    """One period of the output as a product: (taps, up); samples before the period, and samples that it advances."""
    up, down = factor.numerator, factor.denominator
    taps, first, _ = phases(up, down)
    taps, first = taps[:, :up], first[:up]
    before = -int(first.min())
    weight = np.zeros((int(first.max()) + before + len(taps), up), np.float32)
    for column, start in enumerate(first + before):
        weight[start : start + len(taps), column] = taps[:, column]
    return weight, before, down
