"""Beam search, batched over utterances and hypotheses."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

BLOCK = 64
"""Classes are ranked in blocks of this many: first the best of every block, then the blocks that can hold a winner."""

LOOK_EVERY = 8  # steps between two looks whether a search on a GPU is over: each makes the host wait

State = Tensor | tuple[Tensor, ...]
"""What a step knows of every open hypothesis: one tensor or several (B, k, ...)."""

Step = Callable[[Any, Tensor | None], tuple[Tensor, Any]]
"""(`State`, classes chosen last (B, k) or None at the start) -> (added scores (B, k, C), the next `State`).

The scores are what each class adds to its hypothesis: log-probabilities, say, and -inf for a class that must not
follow.
"""


@dataclass(frozen=True)
class Beam:
    """The hypotheses of a batch, best first.

    classes (B, k, U) end with the end of sentence, which also fills the rest;
    lengths (B, k) count the end of sentence, and are 0 where there is no hypothesis;
    scores  (B, k) are what the classes have added up to, -inf where there is none;
    ended   (B,)   tells whether the search found an end of sentence; where it did not, the hypotheses are those
                   still open when it gave up, with an end put behind them that their scores do not count.
    """

    classes: Tensor
    lengths: Tensor
    scores: Tensor
    ended: Tensor

    def best(self, count: int) -> "Beam":
        """So many hypotheses of each utterance, no wider than the longest of them."""
        lengths = self.lengths[:, :count]
        classes = self.classes[:, :count, : max(int(lengths.max()), 1)]
        return Beam(classes, lengths, self.scores[:, :count], self.ended)


@torch.no_grad()
def beam_search(
    step: Step,
    state: State,
    eos: int,
    longest: int,
    threshold: float = math.inf,
    look_every: int | None = None,
) -> Beam:
    """The k best label sequences by summed scores; k is the second dimension of the first state.

    At each step the 2k best extensions of the k open hypotheses are looked at: those that end and rank among the
    first k are complete, the k best others stay open, unless they are more than `threshold` below the best
    extension. An utterance is done when it has k complete hypotheses and the worst of them beats every open one,
    when nothing may follow its open ones, or after `longest` classes. With k = 1 this is greedy search. No length
    normalisation. How often the host looks whether all are done, by default at every step and on a GPU at every
    eighth, changes nothing but the time it takes.
    """
    first = state if isinstance(state, Tensor) else state[0]
    look_every = look_every or (LOOK_EVERY if first.is_cuda else 1)
    batch, k = first.shape[:2]
    open_beam = OpenBeam(batch, k, eos, longest, threshold, first.device)
    chosen: Tensor | None = None
    for position in range(longest + 1):
        added, state = step(state, chosen)
        parents, chosen = open_beam.extend(added)
        state = of_parents(state, parents)
        if position % look_every == look_every - 1 and bool(open_beam.finished.all()):
            break
    return open_beam.close()


def of_parents(state: State, parents: Tensor) -> State:
    """What is known of the hypotheses that open ones extend: (B, k, ...), parents (B, k) -> (B, k, ...)."""
    rows = torch.arange(len(parents), device=parents.device)[:, None]
    if isinstance(state, Tensor):
        return state[rows, parents]
    return tuple(each[rows, parents] for each in state)


class OpenBeam:
    """The hypotheses of a search that goes on, as `beam_search` describes it; the host looks at none of them.

    Its tensors stay where they are, so that steps can be recorded. Steps too many change nothing.
    """

    def __init__(
        self, batch: int, k: int, eos: int, longest: int, threshold: float, device: torch.device
    ) -> None:
        self.eos, self.longest, self.threshold = eos, longest, threshold
        self.rows = torch.arange(batch, device=device)[:, None]
        self.among_first = torch.arange(2 * k, device=device) < k
        self.open_scores = torch.empty(batch, k, device=device)
        self.open_lengths = torch.empty(batch, dtype=torch.long, device=device)
        self.done_scores = torch.empty_like(self.open_scores)
        self.done_from = torch.empty(
            batch, k, dtype=torch.long, device=device
        )  # where it ended · k + what ended
        self.finished = torch.empty(batch, dtype=torch.bool, device=device)
        self.position = torch.empty(1, dtype=torch.long, device=device)
        self.parents = torch.zeros(longest + 1, batch, k, dtype=torch.long, device=device)
        self.classes = torch.zeros_like(
            self.parents
        )  # at every position, with their parents: the open hypotheses
        self.begin()

    def begin(self) -> None:
        """One empty hypothesis an utterance."""
        self.open_scores.fill_(-math.inf)
        self.open_scores[:, :1].zero_()
        self.done_scores.fill_(-math.inf)
        for each in (self.open_lengths, self.done_from, self.finished, self.position):
            each.zero_()

    def extend(self, added: Tensor) -> tuple[Tensor, Tensor]:
        """The next step: added scores (B, k, C) -> parents and classes (B, k) of the hypotheses that stay open."""
        k = self.open_scores.shape[1]
        scores, parents, classes = best_extensions(added, self.open_scores, 2 * k)
        ends = classes == self.eos

        ending = ends & self.among_first & ~self.finished[:, None]
        candidates = torch.cat([self.done_scores, scores.masked_fill(~ending, -math.inf)], dim=1)
        done_scores, kept = candidates.topk(k, dim=1)
        done_from = torch.cat([self.done_from, self.position * k + parents], dim=1)
        self.done_scores.copy_(done_scores)
        self.done_from.copy_(done_from[self.rows, kept])

        closed = ends | (scores < scores[:, :1] - self.threshold)
        best, order = scores.masked_fill(closed, -math.inf).topk(k, dim=1)
        going_on = ~self.finished & (best[:, 0] > -math.inf) & (self.position < self.longest)
        self.open_scores.copy_(torch.where(going_on[:, None], best, self.open_scores))
        self.open_lengths += going_on
        parents, classes = parents[self.rows, order], classes[self.rows, order]
        here = self.position.clamp(max=self.longest)
        self.parents.index_copy_(0, here, parents[None])
        self.classes.index_copy_(0, here, classes[None])
        self.finished.copy_(~going_on | (self.done_scores[:, -1] >= self.open_scores[:, 0]))
        self.position += 1
        return parents, classes

    def close(self) -> Beam:
        """The complete hypotheses, or the open ones where there are none."""
        k = self.done_scores.shape[1]
        ended = self.done_scores[:, 0] > -math.inf
        none = ~ended[:, None]
        scores = torch.where(none, self.open_scores, self.done_scores)
        lengths = torch.where(none, self.open_lengths[:, None], self.done_from // k) + 1
        lengths = lengths.masked_fill(scores == -math.inf, 0)
        last = torch.where(none, torch.arange(k, device=scores.device), self.done_from % k)
        return Beam(self._read_out(last, lengths), lengths, scores, ended)

    def _read_out(self, last: Tensor, lengths: Tensor) -> Tensor:
        """Follow hypotheses back from the one they end, `last` (B, k), to their first class: (B, k, longest length)."""
        width = max(int(lengths.max()), 1)
        found = torch.full((*last.shape, width), self.eos, device=last.device)
        for position in reversed(range(width - 1)):
            there = position < lengths - 1
            found[:, :, position] = torch.where(there, self.classes[position][self.rows, last], self.eos)
            last = torch.where(there, self.parents[position][self.rows, last], last)
        return found


def best_extensions(added: Tensor, open_scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best extensions of each utterance's open hypotheses, best first.

    added (B, k, C), open_scores (B, k) -> scores, parents and classes (B, count); where there are not so many,
    the scores are -inf. The best n of all lie within the n blocks of classes whose best is highest.
    """
    more = -added.shape[-1] % BLOCK
    if more > 0:
        added = functional.pad(added, (0, more), value=-math.inf)
    added = added.unflatten(-1, (-1, BLOCK))
    rows = torch.arange(len(added), device=added.device)[:, None]
    highest = open_scores[:, :, None] + added.amax(dim=-1)
    blocks = highest.flatten(1).topk(min(count, highest[0].numel()), dim=1).indices
    parents = blocks // highest.shape[-1]
    inside = open_scores[rows, parents][:, :, None] + added.flatten(1, 2)[rows, blocks]
    scores, places = inside.flatten(1).topk(count, dim=1)
    blocks, parents = blocks[rows, places // BLOCK], parents[rows, places // BLOCK]
    classes = blocks % highest.shape[-1] * BLOCK + places % BLOCK
    return scores, parents, classes.masked_fill(scores == -math.inf, 0)
