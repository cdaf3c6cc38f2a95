"""SpecAugment: masks of time and frequency on normalised features."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class SpecAugment:
    """How many masks an utterance gets and how wide they may be (Park et al., 2019, without time warping)."""

    frequency_masks: int = 0
    frequency_width: int = 27
    time_masks: int = 0
    time_width: int = 100
    time_share: float = 0.2  # a time mask never hides more than this share of an utterance

    def __call__(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Set random bands to zero, the mean: (B, T, n_mels), (B,) -> (B, T, n_mels)."""
        batch, time, mels = features.shape
        hidden = torch.zeros(batch, time, mels, dtype=torch.bool, device=features.device)
        for _ in range(self.frequency_masks):
            widest = torch.full((batch,), min(self.frequency_width, mels), device=features.device)
            hidden |= _bands(widest, torch.full_like(widest, mels), mels)[:, None, :]
        for _ in range(self.time_masks):
            widest = (lengths * self.time_share).long().clamp(max=self.time_width)
            hidden |= _bands(widest, lengths, time)[:, :, None]
        return features.masked_fill(hidden, 0.0)


def _bands(widest: Tensor, extent: Tensor, size: int) -> Tensor:
    """One random band for each row, at most `widest` wide and inside `extent`: (B,), (B,) -> (B, size)."""
    width = (torch.rand(widest.shape, device=widest.device) * (widest + 1)).long()
    start = (torch.rand(widest.shape, device=widest.device) * (extent - width + 1)).long()
    position = torch.arange(size, device=widest.device)
    return (position >= start[:, None]) & (position < (start + width)[:, None])
