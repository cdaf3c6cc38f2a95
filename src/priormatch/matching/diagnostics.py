"""Figures that show a collapse of matching long before the error rate does."""

import torch
from torch import Tensor

Figures = dict[str, Tensor]
"""Numbers to report; they stay on the device, so that nothing waits for them."""


def entropy(weights: Tensor) -> Tensor:
    """Entropy of each row in nats: (B, k) -> (B,); zero for a one-hot row and for an empty one."""
    return -torch.xlogy(weights, weights).sum(dim=-1)


def diagnostics(weights: Tensor, keep: Tensor, lengths: Tensor, reference: Tensor) -> Figures:
    """Mean entropy of the weights, survivors of the filter, share of empty beams, length of the heaviest hypothesis.

    weights and keep (B, k), lengths (B, k) of the hypotheses, reference L (B,).
    """
    survivors = keep.sum(dim=-1)
    best = lengths.gather(1, weights.argmax(dim=-1, keepdim=True))[:, 0]
    some = survivors > 0
    known = some & (reference > 0)
    ratio = torch.where(known, best / reference.clamp(min=1), 0.0)
    return {
        "local_prior_entropy": entropy(weights).sum() / some.sum().clamp(min=1),
        "survivors": survivors.float().mean(),
        "share_without_survivor": (~some).float().mean(),
        "length_ratio": ratio.sum() / known.sum(),
    }
