"""SpecAugment: time and frequency masks on normalized features."""

import torch
from torch import Tensor

from priormatch.config import AugmentSettings

TIME_SHARE = 0.2  # of an utterance that a time mask may hide at most


def numbers_of(settings: AugmentSettings) -> int:
    """How many random numbers the masks of one utterance take."""
    return 2 * (settings.frequency_masks + settings.time_masks)


def spec_augment(features: Tensor, lengths: Tensor, noise: Tensor, settings: AugmentSettings) -> Tensor:
    """Set random bands to zero, which is the mean (Park et al., 2019, without time warping).

    features (B, T, n_mels), lengths (B,), noise (B, `numbers_of`) uniform in [0, 1) -> (B, T, n_mels)
    """
    if settings.frequency_masks + settings.time_masks == 0:
        return features
    batch, time, mels = features.shape
    hidden = torch.zeros(batch, time, mels, dtype=torch.bool, device=features.device)
    draws = iter(noise.split(2, dim=1))
    for _ in range(settings.frequency_masks):
        widest = torch.full((batch,), min(settings.frequency_width, mels), device=features.device)
        hidden |= _bands(next(draws), widest, torch.full_like(widest, mels), mels)[:, None, :]
    for _ in range(settings.time_masks):
        widest = (lengths * TIME_SHARE).long().clamp(max=settings.time_width)
        hidden |= _bands(next(draws), widest, lengths, time)[:, :, None]
    return features.masked_fill(hidden, 0.0)


def _bands(noise: Tensor, widest: Tensor, extent: Tensor, size: int) -> Tensor:
    """One random band per row, at most `widest` wide and inside `extent`: (B, 2), (B,), (B,) -> (B, size)."""
    width = (noise[:, 0] * (widest + 1)).long()
    start = (noise[:, 1] * (extent - width + 1)).long()
    position = torch.arange(size, device=widest.device)
    return (position >= start[:, None]) & (position < (start + width)[:, None])
