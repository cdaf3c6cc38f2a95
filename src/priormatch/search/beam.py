"""Beam search, batched over utterances and hypotheses."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Step = Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor]]
"""(state (B, k, ...), classes chosen last (B, k) or None at the start) -> (logits (B, k, C), state)."""


@dataclass(frozen=True)
class Beam:
    """The hypotheses of a batch, best first.

    classes (B, k, U) end with the end of sentence, which also fills the rest;
    lengths (B, k) count the end of sentence, and are 0 where there is no hypothesis;
    scores  (B, k) are log-probabilities, -inf where there is none;
    ended   (B,)   tells whether the search found an end of sentence; where it did not, the hypotheses are the
                   open ones at the longest length, with an end put behind them that their scores do not count.
    """

    classes: Tensor
    lengths: Tensor
    scores: Tensor
    ended: Tensor


@torch.no_grad()
def beam_search(step: Step, state: Tensor, eos: int, longest: int) -> Beam:
    """The k best label sequences by summed log-probability; k is the second dimension of the first state.

    At each step the 2k best extensions of the k open hypotheses are looked at: those that end and rank among the
    first k are complete, the k best others stay open. An utterance is done when it has k complete hypotheses and
    the worst of them beats every open one, or after `longest` classes. With k = 1 this is greedy search. No
    length normalisation, no language model.
    """
    batch, k = state.shape[:2]
    device = state.device
    rows = torch.arange(batch, device=device)[:, None]
    open_scores = torch.full((batch, k), -math.inf, device=device)
    open_scores[:, 0] = 0.0
    open_classes = torch.full((batch, k, longest + 1), eos, device=device)
    done_scores = torch.full((batch, k), -math.inf, device=device)
    done_classes = open_classes.clone()
    done_lengths = torch.zeros(batch, k, dtype=torch.long, device=device)
    finished = torch.zeros(batch, dtype=torch.bool, device=device)
    chosen: Tensor | None = None

    for position in range(longest + 1):
        logits, state = step(state, chosen)
        totals = open_scores[:, :, None] + logits.float().log_softmax(dim=-1)
        classes_count = totals.shape[-1]
        scores, flat = totals.flatten(1).topk(min(2 * k, totals.shape[1] * classes_count), dim=1)
        parents, classes = flat // classes_count, flat % classes_count
        ends = classes == eos

        ending = ends & (torch.arange(scores.shape[1], device=device) < k) & ~finished[:, None]
        candidates = torch.cat([done_scores, scores.masked_fill(~ending, -math.inf)], dim=1)
        done_scores, kept = candidates.topk(k, dim=1)
        pool = torch.cat([done_classes, open_classes[rows, parents]], dim=1)
        lengths = torch.cat([done_lengths, torch.full_like(classes, position + 1)], dim=1)
        done_classes = pool[rows, kept]
        done_lengths = lengths[rows, kept].masked_fill(done_scores == -math.inf, 0)
        if position == longest:
            break

        going = scores.masked_fill(ends, -math.inf)
        best, order = going.topk(k, dim=1)
        parents, chosen = parents[rows, order], classes[rows, order]
        open_scores = torch.where(finished[:, None], open_scores, best)
        open_classes = open_classes[rows, parents]
        open_classes[:, :, position] = chosen
        state = state[rows, parents]
        finished |= done_scores[:, -1] >= open_scores[:, 0]
        finished &= done_scores[:, -1] > -math.inf
        if bool(finished.all()):
            break

    ended = done_scores[:, 0] > -math.inf
    none = ~ended[:, None]
    open_lengths = torch.full_like(done_lengths, longest + 1).masked_fill(open_scores == -math.inf, 0)
    lengths = torch.where(none, open_lengths, done_lengths)
    classes = torch.where(none[:, :, None], open_classes, done_classes)
    classes = classes.masked_fill(lengths[:, :, None] == 0, eos)
    longest_found = max(int(lengths.max()), 1)
    return Beam(classes[:, :, :longest_found], lengths, torch.where(none, open_scores, done_scores), ended)
