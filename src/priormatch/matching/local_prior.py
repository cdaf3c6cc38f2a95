"""The local prior: the prior renormalised inside a beam (eq. 4 of the paper)."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def local_prior(log_prior: Tensor, keep: Tensor) -> Tensor:
    """p̄(y|x) = p_y(y) / sum over y' in the filtered beam of p_y(y'), in float32.

    log_prior (B, k), keep (B, k) -> weights (B, k): zero where not kept, summing to one in each row that keeps
    anything, and to zero in the others.
    """
    masked = log_prior.float().masked_fill(~keep, -math.inf)
    return torch.where(keep.any(dim=-1, keepdim=True), masked.softmax(dim=-1), 0.0)


def entropy(weights: Tensor) -> Tensor:
    """Entropy of each row in nats: (B, k) -> (B,); zero for a one-hot row and for an empty one."""
    return -torch.xlogy(weights, weights).sum(dim=-1)


def first_spellings(texts: Sequence[Sequence[str]], keep: Tensor) -> Tensor:
    """True at the first, and so the likeliest, kept spelling of each text: (B, k), (B, k) -> (B, k)."""
    first = []
    for beam, kept in zip(texts, keep.tolist(), strict=True):
        ranks = [rank for rank in range(len(beam)) if kept[rank]]
        best = {beam[rank]: rank for rank in reversed(ranks)}
        first.append([best.get(text) == rank for rank, text in enumerate(beam)])
    return torch.tensor(first, device=keep.device)
