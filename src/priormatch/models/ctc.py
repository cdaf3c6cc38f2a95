"""Connectionist temporal classification (Graves et al., 2006) for several label sequences per utterance.

The end-of-sentence class is also the blank. States are kept in two tensors instead of one row of 2U - 1: after u labels
a path is either in the blank that follows them, β(u), or still in label u itself, α(u).
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from priormatch.data.features import time_mask
from priormatch.decoding.beam import Beam

IMPOSSIBLE = -1e30
"""log 0 inside the recursions: with a finite value no difference is NaN, and a float32 holds 10^8 times as much."""


def ctc_log_likelihood(log_q: Tensor, frames: Tensor, labels: Tensor, lengths: Tensor, blank: int) -> Tensor:
    """log q(y|x) of k label sequences per utterance, summed over all alignments.

    log_q (B, T, C) log-probabilities in float32 or float64, frames (B,), labels (B, k, U) that end with EOS, lengths
    (B, k) including the EOS -> (B, k). Missing sequences (length 0) and sequences that do not fit into their frames
    have -inf and no gradient.

        β(u) <- q(blank) · (β(u) + α(u))
        α(u) <- q(y_u) · (α(u) + β(u - 1) + α(u - 1) [y_u ≠ y_u-1])
    """
    found: Tensor = _Likelihood.apply(log_q, frames, labels, lengths, blank)
    return found


def ctc_losses(logits: Tensor, frames: Tensor, labels: Tensor, lengths: Tensor, blank: int) -> Tensor:
    """PyTorch's CTC losses of k label sequences per utterance, with the end-of-sentence class as the blank.

    logits (B, T, C), frames (B,), labels (B, k, U) that end with EOS, lengths (B, k) -> (B, k). The loss is 0 for a
    sequence with more pieces than frames, and for a missing one (length 0).
    """
    beam = labels.shape[1]
    log_q = logits.float().log_softmax(dim=-1).repeat_interleave(beam, dim=0).transpose(0, 1)
    losses = functional.ctc_loss(
        log_q,
        labels.flatten(0, 1),
        frames.repeat_interleave(beam),
        (lengths.flatten() - 1).clamp(min=0),
        blank=blank,
        reduction="none",
        zero_infinity=True,
    )
    return losses.view_as(lengths).masked_fill(lengths == 0, 0.0)


def rescored(beam: Beam, log_q: Tensor, frames: Tensor, blank: int) -> Beam:
    """The hypotheses of a beam with their exact log q(y|x) as scores, best first.

    A search sums only over the alignments that it kept. log_q (B, T, C), frames (B,).
    """
    return beam.rescored(ctc_log_likelihood(log_q, frames, beam.classes, beam.lengths, blank))


@dataclass(frozen=True)
class CtcAlignment:
    """The most probable alignment of each label sequence.

    starts      (B, U - 1) is the first frame that emits each label, -1 after the last label;
    ends        (B, U - 1) is the last one, inclusive;
    confidences (B, U - 1) is the mean q(y_u) over these frames, 0 after the last label;
    scores      (B,)       is the log-probability of the alignment, -inf if there is none; then no label has frames.
    """

    starts: Tensor
    ends: Tensor
    confidences: Tensor
    scores: Tensor


@torch.no_grad()
def ctc_alignment(log_q: Tensor, frames: Tensor, labels: Tensor, lengths: Tensor, blank: int) -> CtcAlignment:
    """Forced alignment by the Viterbi algorithm: the recursion of `ctc_log_likelihood` with max instead of sum.

    log_q (B, T, C) log-probabilities, frames (B,), labels (B, U) that end with EOS, lengths (B,) including the EOS.
    """
    paths = _Paths(log_q, frames, labels[:, None], blank)
    occupied, scores = paths.best(log_q, lengths)
    steps, width = log_q.shape[1], labels.shape[1]
    t = torch.arange(steps, device=log_q.device).expand_as(occupied)
    nowhere = labels.new_full((len(labels), width), -1)
    starts = nowhere.scatter_reduce(1, occupied, t, "amin", include_self=False)
    ends = nowhere.scatter_reduce(1, occupied, t, "amax", include_self=False)
    emitted = log_q.gather(2, labels.gather(1, occupied)[:, :, None])[:, :, 0].exp()
    means = log_q.new_zeros(labels.shape).scatter_reduce(1, occupied, emitted, "mean", include_self=False)
    return CtcAlignment(starts[:, :-1], ends[:, :-1], means[:, :-1], scores)


class _Likelihood(torch.autograd.Function):
    """The recursion over the frames, and its gradient: the occupancy of each class at each frame."""

    @staticmethod
    def forward(
        ctx: Any, log_q: Tensor, frames: Tensor, labels: Tensor, lengths: Tensor, blank: int
    ) -> Tensor:
        paths = _Paths(log_q, frames, labels, blank)
        after_blank, after_label = paths.forward(log_q)
        last = (lengths - 1).clamp(min=0)[:, :, None]
        ends = after_blank[-1].gather(2, last)[:, :, 0], after_label[-1].gather(2, last)[:, :, 0]
        total = torch.logaddexp(*ends)
        possible = (total > IMPOSSIBLE / 2) & (lengths > 0)
        ctx.paths, ctx.classes = paths, log_q.shape[2]
        ctx.save_for_backward(after_blank, after_label, last, possible, (ends[0] - ends[1]).sigmoid())
        return total.masked_fill(~possible, -torch.inf)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        after_blank, after_label, last, possible, in_blank = ctx.saved_tensors
        gradient = gradient.masked_fill(~possible, 0.0)
        ends = torch.zeros_like(after_blank[-1])
        grad_blank = ends.scatter(2, last, (gradient * in_blank)[:, :, None])
        grad_label = ends.scatter(2, last, (gradient * (1 - in_blank))[:, :, None])
        return ctx.paths.backward(after_blank, after_label, grad_blank, grad_label, ctx.classes), *[None] * 4


class _Paths:
    """The transitions of a batch.

    Frames after the end of an utterance are certain blanks: they leave the sum β(U) + α(U) as it is.
    """

    def __init__(self, log_q: Tensor, frames: Tensor, labels: Tensor, blank: int) -> None:
        self.shape, self.blank = labels.shape, blank
        self.labels = labels[:, :, :-1].flatten(1)
        self.valid = time_mask(frames, log_q.shape[1])
        self.log_blank = log_q[:, :, blank].clamp(min=IMPOSSIBLE).masked_fill(~self.valid, 0.0)
        self.highest = torch.where(self.valid, torch.inf, IMPOSSIBLE).to(log_q)
        self.lowest = log_q.new_full((), IMPOSSIBLE)
        self.repeated = torch.zeros_like(labels[:, :, 1:], dtype=torch.bool)
        self.repeated[:, :, 1:] = labels[:, :, 1:-1] == labels[:, :, :-2]

    def first(self, log_q: Tensor) -> tuple[Tensor, Tensor]:
        """log β and log α before the first frame: 2 x (B, k, U); every path begins after the 0th label."""
        label = log_q.new_full(self.shape, IMPOSSIBLE)
        blank = label.clone()
        blank[..., 0] = 0.0
        return blank, label

    def emissions(self, log_q: Tensor, t: int) -> Tensor:
        """log q of every label at frame t: (B, k, U - 1)."""
        batch, k, width = self.shape
        log_label = log_q[:, t].gather(1, self.labels)
        return log_label.clamp(self.lowest, self.highest[:, t, None]).view(batch, k, width - 1)

    def forward(self, log_q: Tensor) -> tuple[Tensor, Tensor]:
        """log β and log α before every frame and after the last one: 2 x (T + 1, B, k, U)."""
        steps = log_q.shape[1]
        after_blank, after_label = log_q.new_empty(2, steps + 1, *self.shape)
        after_blank[0], after_label[0] = self.first(log_q)
        after_label[..., 0] = IMPOSSIBLE  # no label is before the first
        for t in range(steps):
            left = torch.logaddexp(after_blank[t], after_label[t])
            torch.add(left, self.log_blank[:, t, None, None], out=after_blank[t + 1])
            enter = torch.where(self.repeated, after_blank[t, ..., :-1], left[..., :-1])
            torch.logaddexp(after_label[t, ..., 1:], enter, out=after_label[t + 1, ..., 1:])
            after_label[t + 1, ..., 1:] += self.emissions(log_q, t)
        return after_blank, after_label

    def backward(
        self, after_blank: Tensor, after_label: Tensor, grad_blank: Tensor, grad_label: Tensor, classes: int
    ) -> Tensor:
        """Gradient (B, T, C) from the gradients of the last log β and log α, (B, k, U) each."""
        steps = len(after_blank) - 1
        gradient = after_blank.new_zeros(self.shape[0], steps, classes)
        for t in reversed(range(steps)):
            gradient[:, t].scatter_add_(1, self.labels, grad_label[..., 1:].flatten(1))
            gradient[:, t, self.blank] += grad_blank.sum(dim=(1, 2)) * self.valid[:, t]
            blank, label = after_blank[t], after_label[t]
            left = after_blank[t + 1] - self.log_blank[:, t, None, None]
            enter = torch.where(self.repeated, blank[..., :-1], left[..., :-1])
            stays = grad_label[..., 1:] * (label[..., 1:] - enter).sigmoid()
            enters = grad_label[..., 1:] - stays
            from_blank_only = enters * self.repeated
            grad_left = grad_blank
            grad_left[..., :-1] += enters - from_blank_only
            grad_blank = grad_left * (blank - label).sigmoid()
            grad_label = grad_left - grad_blank
            grad_blank[..., :-1] += from_blank_only
            grad_label[..., 1:] += stays
        return gradient

    def best(self, log_q: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The most probable path for each utterance's first sequence, lengths (B,).

        Returns the index of the label that each frame emits, U - 1 where it emits a blank, (B, T), and the
        log-probability (B,).
        """
        blank, label = self.first(log_q)
        steps, width = log_q.shape[1], self.shape[2]
        from_label, stays = blank.new_zeros(2, steps, *self.shape, dtype=torch.bool)
        for t in range(steps):
            left = torch.maximum(blank, label)
            enter = torch.where(self.repeated, blank[..., :-1], left[..., :-1])
            torch.gt(label, blank, out=from_label[t])
            torch.ge(label[..., 1:], enter, out=stays[t, ..., 1:])
            blank = left + self.log_blank[:, t, None, None]
            emitted = self.emissions(log_q, t) + torch.maximum(label[..., 1:], enter)
            label = torch.cat([label[..., :1], emitted], dim=2)
        last = (lengths - 1).clamp(min=0)[:, None]
        scores = torch.maximum(blank, label)[:, 0].gather(1, last)[:, 0]
        possible = (scores > IMPOSSIBLE / 2) & (lengths > 0)
        in_label = (label > blank)[:, 0].gather(1, last)[:, 0]
        occupied = self._trace(from_label[:, :, 0], stays[:, :, 0], last[:, 0], in_label)
        return occupied.masked_fill(~possible[:, None], width - 1), scores.masked_fill(~possible, -torch.inf)

    def _trace(self, from_label: Tensor, stays: Tensor, after: Tensor, in_label: Tensor) -> Tensor:
        """Follow the choices (T, B, U) back from the last state.

        A state is the number of labels so far, `after` (B,), and whether the path is still in the last of them,
        `in_label` (B,). -> what each frame emits (B, T), as `best` returns it
        """
        repeated = functional.pad(self.repeated[:, 0], (1, 0))
        rows = torch.arange(len(after), device=after.device)
        occupied = after.new_empty(len(after), len(stays))
        for t in reversed(range(len(stays))):
            occupied[:, t] = torch.where(in_label, after - 1, self.shape[2] - 1)
            leaves = in_label & ~stays[t][rows, after]
            stays_in_label = in_label & ~leaves
            enters_from_blank = leaves & repeated[rows, after]
            after = after - leaves.long()
            in_label = stays_in_label | (from_label[t][rows, after] & ~enters_from_blank)
        return occupied
