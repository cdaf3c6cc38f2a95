"""Scores of beams under a convolutional language model, with shared prefixes computed once."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from priormatch.data.features import time_mask
from priormatch.models.conv_lm import ConvLM

ROWS = 4096  # rows of logits per logsumexp
NODES = 1024  # tree sizes on a GPU are multiples of this


class PrefixTree(NamedTuple):
    """The distinct prefixes of each beam, including the context: the first `total` of R = B·(V + k·U) rows.

    inputs (R,) the last class of each prefix; before (R, kernel) the row of each prefix and those of its shorter
    prefixes, itself last, -1 for none; nodes (B, k, U) the row of the prefix before each label.
    """

    inputs: Tensor
    before: Tensor
    nodes: Tensor
    total: Tensor

    def on_grid(self) -> int:
        """The number of rows, rounded up; the additional rows are valid, but no label uses them."""
        return min(-(-max(int(self.total), 1) // NODES) * NODES, len(self.inputs))


def prefix_tree(
    labels: Tensor, lengths: Tensor, eos: int, kernel: int, context: Tensor | None = None
) -> PrefixTree:
    """Find shared prefixes in each beam: labels (B, k, U), lengths (B, k), context (B, V) of `ConvPrior.contexts`."""
    if context is None:
        context = labels.new_empty(len(labels), 0)
    (beam, width), read = labels.shape[1:], context.shape[1]
    same = (labels[:, :, None] == labels[:, None]).cumprod(dim=-1)  # equal up to here, (B, k, k, U)
    same = functional.pad(same[..., :-1], (1, 0), value=1)  # equal before here
    same = same * (lengths > 0)[:, None, :, None]  # and to an existing hypothesis
    first = same.argmax(dim=2)  # first hypothesis with this prefix, (B, k, U)
    own = torch.arange(beam, device=labels.device)[:, None]
    new = (first == own) & time_mask(lengths.flatten(), width).view_as(labels)
    rows = torch.cat([context >= 0, new.flatten(1)], dim=1).flatten()  # which rows exist, (R,)
    numbers = (rows.cumsum(0) - 1).view(len(labels), -1)
    nodes = numbers[:, read:].view_as(labels).gather(1, first).clamp(min=0)
    order = (~rows).byte().argsort(stable=True)  # existing rows first
    begun = functional.pad(labels[..., :-1], (1, 0), value=eos)
    inputs = torch.cat([context.clamp(min=0), begun.flatten(1)], dim=1).flatten()
    shared = numbers[:, None, :read].masked_fill(context[:, None] < 0, -1).expand(-1, beam, -1)
    path = functional.pad(torch.cat([shared, nodes], dim=2), (kernel - 1, 0), value=-1).unfold(2, kernel, 1)
    before = torch.cat([path[:, 0, :read], path[:, :, read:].flatten(1, 2)], dim=1).flatten(0, 1)
    return PrefixTree(inputs[order], before[order], nodes, rows.sum())


@torch.no_grad()
def score_tree(
    lm: ConvLM,
    inputs: Tensor,
    before: Tensor,
    nodes: Tensor,
    labels: Tensor,
    lengths: Tensor,
    *,
    centered: bool = False,
) -> Tensor:
    """log p_y of hypotheses from their tree (see `PrefixTree`): labels (B, k, U), lengths (B, k) -> (B, k).

    If `centered`, the mean over the classes, Σ p log p, is subtracted from log p of each label.
    """
    # The LPM weights need a precision of 0.1 nat in sums of hundreds: float16 has it, bfloat16 does not.
    with torch.autocast(labels.device.type, torch.float16, enabled=labels.is_cuda):
        logits = lm.next_logits(inputs, before)
    base_of = mean_logit if centered else log_sum
    base = torch.cat([base_of(part.float()) for part in logits.split(ROWS)])
    exists = time_mask(lengths.flatten(), labels.shape[-1]).view_as(labels)
    chosen = logits[nodes, labels].float() - base[nodes]
    return chosen.masked_fill(~exists, 0.0).sum(dim=-1)


def log_sum(logits: Tensor) -> Tensor:
    """What to subtract from a logit to get log p: (N, C) -> (N,)."""
    return logits.logsumexp(dim=-1)


def mean_logit(logits: Tensor) -> Tensor:
    """What to subtract from a logit to get log p - Σ p log p, the mean logit under p: (N, C) -> (N,)."""
    return (logits.softmax(dim=-1) * logits).sum(dim=-1)
