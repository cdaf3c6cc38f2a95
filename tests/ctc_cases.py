"""Random inputs of CTC for the tests of the plain versions and of the kernels."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Case:
    """Random logits and label sequences; the last class is the blank."""

    utterances: int = 3
    frames: int = 12
    classes: int = 4
    k: int = 3
    longest: int = 6
    seed: int = 0
    dtype: torch.dtype = torch.float64

    @property
    def blank(self) -> int:
        return self.classes - 1

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Logits (B, T, C), frames (B,), labels (B, k, U), lengths (B, k) from 0 to U."""
        random = torch.Generator().manual_seed(self.seed)
        shape = self.utterances, self.frames, self.classes
        logits = 2 * torch.randn(shape, generator=random, dtype=self.dtype)
        frames = torch.randint(self.frames + 1, (self.utterances,), generator=random)
        lengths = torch.randint(self.longest + 1, (self.utterances, self.k), generator=random)
        labels = torch.randint(self.blank, (*lengths.shape, self.longest), generator=random)
        padding = torch.arange(self.longest) >= lengths[:, :, None] - 1
        return logits, frames, labels.masked_fill(padding, self.blank), lengths


@dataclass(frozen=True)
class Speech:
    """Random log-probabilities of a batch; the last class is the blank, some classes may be impossible."""

    utterances: int = 3
    frames: int = 6
    classes: int = 3
    seed: int = 0
    barred: float = 0.0

    @property
    def blank(self) -> int:
        return self.classes - 1

    def tensors(self) -> tuple[Tensor, Tensor]:
        random = torch.Generator().manual_seed(self.seed)
        shape = self.utterances, self.frames, self.classes
        logits = 2 * torch.randn(shape, generator=random, dtype=torch.float64)
        log_q = logits.log_softmax(dim=-1)
        log_q[torch.rand(shape, generator=random) < self.barred] = -math.inf
        return log_q, torch.randint(self.frames + 1, (self.utterances,), generator=random)


def of_pytorch(log_q: Tensor, frames: Tensor, labels: Tensor, lengths: Tensor, blank: int) -> Tensor:
    """PyTorch's CTC loss on repeated frames, negated; 0 for what is missing or impossible."""
    k = labels.shape[1]
    losses = functional.ctc_loss(
        log_q.repeat_interleave(k, dim=0).transpose(0, 1),
        labels.flatten(0, 1),
        frames.repeat_interleave(k),
        (lengths.flatten() - 1).clamp(min=0),
        blank=blank,
        reduction="none",
        zero_infinity=True,
    )
    return -losses.view_as(lengths).masked_fill(lengths == 0, 0.0)
