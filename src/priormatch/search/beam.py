"""Beam search, batched over utterances and hypotheses."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

BLOCK = 64
"""Classes are ranked in blocks of this many: first the best of every block, then the blocks that can hold a winner."""

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
    among_first = torch.arange(2 * k, device=device) < k
    open_scores = torch.full((batch, k), -math.inf, device=device)
    open_scores[:, 0] = 0.0
    done_scores = torch.full_like(open_scores, -math.inf)
    done_at = torch.zeros(batch, k, dtype=torch.long, device=device)  # where the end stands
    done_from = torch.zeros_like(done_at)  # which of the hypotheses open before it was ended
    finished = torch.zeros(batch, dtype=torch.bool, device=device)
    history: list[tuple[Tensor, Tensor]] = []  # of every position: parents and classes of the open hypotheses
    chosen: Tensor | None = None

    for position in range(longest + 1):
        logits, state = step(state, chosen)
        scores, parents, classes = best_extensions(logits, open_scores, 2 * k)
        ends = classes == eos

        ending = ends & among_first & ~finished[:, None]
        candidates = torch.cat([done_scores, scores.masked_fill(~ending, -math.inf)], dim=1)
        done_scores, kept = candidates.topk(k, dim=1)
        done_at = torch.cat([done_at, torch.full_like(parents, position)], dim=1)[rows, kept]
        done_from = torch.cat([done_from, parents], dim=1)[rows, kept]
        if position == longest:
            break

        best, order = scores.masked_fill(ends, -math.inf).topk(k, dim=1)
        open_scores = torch.where(finished[:, None], open_scores, best)
        parents, chosen = parents[rows, order], classes[rows, order]
        history.append((parents, chosen))
        state = state[rows, parents]
        finished |= done_scores[:, -1] >= open_scores[:, 0]
        finished &= done_scores[:, -1] > -math.inf
        if bool(finished.all()):
            break

    ended = done_scores[:, 0] > -math.inf
    none = ~ended[:, None]
    scores = torch.where(none, open_scores, done_scores)
    lengths = torch.where(none, longest, done_at).add(1).masked_fill(scores == -math.inf, 0)
    last = torch.where(none, torch.arange(k, device=device), done_from)
    return Beam(_read_out(history, last, lengths, eos), lengths, scores, ended)


def best_extensions(logits: Tensor, open_scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best extensions of each utterance's open hypotheses, best first.

    logits (B, k, C), open_scores (B, k) -> scores, parents and classes (B, count); where there are not so many,
    the scores are -inf. The best n of all lie within the n blocks of classes whose best is highest.
    """
    log_p = logits.log_softmax(dim=-1, dtype=torch.float32)
    more = -log_p.shape[-1] % BLOCK
    if more > 0:
        log_p = functional.pad(log_p, (0, more), value=-math.inf)
    log_p = log_p.unflatten(-1, (-1, BLOCK))
    rows = torch.arange(len(log_p), device=log_p.device)[:, None]
    highest = open_scores[:, :, None] + log_p.amax(dim=-1)
    blocks = highest.flatten(1).topk(min(count, highest[0].numel()), dim=1).indices
    parents = blocks // highest.shape[-1]
    inside = open_scores[rows, parents][:, :, None] + log_p.flatten(1, 2)[rows, blocks]
    scores, places = inside.flatten(1).topk(count, dim=1)
    blocks, parents = blocks[rows, places // BLOCK], parents[rows, places // BLOCK]
    classes = blocks % highest.shape[-1] * BLOCK + places % BLOCK
    return scores, parents, classes.masked_fill(scores == -math.inf, 0)


def _read_out(history: list[tuple[Tensor, Tensor]], last: Tensor, lengths: Tensor, eos: int) -> Tensor:
    """Follow hypotheses back from the one they end, `last` (B, k), to their first class: (B, k, longest length)."""
    rows = torch.arange(len(last), device=last.device)[:, None]
    width = max(int(lengths.max()), 1)
    found = torch.full((*last.shape, width), eos, device=last.device)
    for position in reversed(range(width - 1)):
        parents, classes = history[position]
        there = position < lengths - 1
        found[:, :, position] = torch.where(there, classes[rows, last], eos)
        last = torch.where(there, parents[rows, last], last)
    return found
