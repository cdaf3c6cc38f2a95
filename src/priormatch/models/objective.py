"""Loss of label sequences under an attention decoder, and random replacement of its inputs."""

import torch
from torch import Tensor

from priormatch.data.features import time_mask


def sequence_loss(logits: Tensor, labels: Tensor, lengths: Tensor, smoothing: float = 0.0) -> Tensor:
    """-log q(y|x), summed over the valid labels, with label smoothing.

    logits (..., U, C), labels (..., U), lengths (...) -> (...);
    each label costs (1 - ε)·(-log q(y_u)) + (ε / C)·sum_c(-log q(c)).
    """
    log_q = logits.float().log_softmax(dim=-1)
    cost = -log_q.gather(-1, labels[..., None])[..., 0]
    if smoothing > 0:
        cost = (1 - smoothing) * cost - smoothing * log_q.mean(dim=-1)
    mask = time_mask(lengths.flatten(), labels.shape[-1]).view_as(labels)
    return cost.masked_fill(~mask, 0.0).sum(dim=-1)


def sample_inputs(labels: Tensor, share: float, eos: int) -> Tensor:
    """Replace a share of the decoder's inputs with random pieces, never with the end of sentence."""
    if share <= 0:
        return labels
    replaced = torch.rand(labels.shape, device=labels.device) < share
    return torch.where(replaced, torch.randint(eos, labels.shape, device=labels.device), labels)
