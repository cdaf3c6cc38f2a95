"""Beam search, batched over utterances and hypotheses."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from priormatch.data.tokenizer import Tokenizer

BLOCK = 64
"""Classes are ranked in blocks of this size: first the best of every block, then the blocks that can hold a winner."""

LOOK_EVERY = 8  # steps between checks whether a search on a GPU is done: each makes the host wait

State = Tensor | tuple[Tensor, ...]
"""The state of every open hypothesis: one tensor or several (B, k, ...)."""

Step = Callable[[Any, Tensor | None], tuple[Tensor, Any]]
"""(`State`, last chosen classes (B, k) or None at the start) -> (added scores (B, k, C), the next `State`).

The scores are what each class adds to its hypothesis, for example log-probabilities, and -inf for a class that is not
allowed.
"""


@dataclass(frozen=True)
class Beam:
    """The hypotheses of a batch, best first.

    classes (B, k, U) end with the end of sentence, which is also the padding;
    lengths (B, k) include the end of sentence, and are 0 where there is no hypothesis;
    scores  (B, k) are the sums of the added scores, -inf where there is no hypothesis;
    ended   (B,)   is whether the search found an end of sentence; if not, the hypotheses are those still open
                   when it gave up, with an end of sentence appended that their scores do not include.
    """

    classes: Tensor
    lengths: Tensor
    scores: Tensor
    ended: Tensor

    def best(self, count: int) -> "Beam":
        """The `count` best hypotheses of each utterance, cut to the length of the longest."""
        lengths = self.lengths[:, :count]
        classes = self.classes[:, :count, : max(int(lengths.max()), 1)]
        return Beam(classes, lengths, self.scores[:, :count], self.ended)

    def clone(self) -> "Beam":
        """A copy in memory of its own, for a beam that the next step would overwrite."""
        return Beam(self.classes.clone(), self.lengths.clone(), self.scores.clone(), self.ended.clone())

    def rescored(self, scores: Tensor) -> "Beam":
        """The same hypotheses with other scores (B, k), best first."""
        scores, order = scores.sort(dim=1, descending=True, stable=True)
        classes = self.classes.gather(1, order[:, :, None].expand_as(self.classes))
        return Beam(classes, self.lengths.gather(1, order), scores, self.ended)


@dataclass(frozen=True)
class Hypotheses:
    """k label sequences of each utterance, as classes on a device and, on demand, as text.

    labels (B, k, U) end with the end of sentence, which is also the padding; lengths (B, k) include the end of sentence
    and are 0 where there is no hypothesis; `tokenizer` is the one that made the labels.
    """

    labels: Tensor
    lengths: Tensor
    tokenizer: Tokenizer

    @cached_property
    def texts(self) -> list[list[str]]:
        """The text of each hypothesis; empty where there is none."""
        return [[self.tokenizer.decode(each) for each in row] for row in self.labels.tolist()]

    def to(self, device: torch.device) -> "Hypotheses":
        """The same hypotheses on a device."""
        return Hypotheses(self.labels.to(device), self.lengths.to(device), self.tokenizer)

    @staticmethod
    def of_texts(texts: Sequence[Sequence[str]], tokenizer: Tokenizer) -> "Hypotheses":
        """Hypotheses from texts, k for each utterance."""
        rows = [[*tokenizer.encode(text), tokenizer.eos] for beam in texts for text in beam]
        labels, lengths = pad(rows)
        shape = len(texts), len(texts[0])
        return Hypotheses(labels.unflatten(0, shape), lengths.unflatten(0, shape), tokenizer)


def pad(sequences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Stack sequences that end with EOS, padded with their last class: -> (N, U), (N,)."""
    lengths = torch.tensor([len(each) for each in sequences])
    width = int(lengths.max())
    rows = [[*each, *[each[-1]] * (width - len(each))] for each in sequences]
    return torch.tensor(rows), lengths


@torch.no_grad()
def beam_search(
    step: Step,
    state: State,
    eos: int,
    longest: int,
    threshold: float = math.inf,
    look_every: int | None = None,
) -> Beam:
    """Find the k best label sequences by summed scores; k is the second dimension of the first state.

    Each step ranks the 2k best extensions of the k open hypotheses. Those that end and rank among the first k are
    complete. The k best others stay open, unless they are more than `threshold` below the best extension. An utterance
    is done when it has k complete hypotheses and the worst of them beats every open one, when its open ones have no
    allowed extension, or after `longest` classes. With k = 1 this is greedy search. There is no length normalization.
    `look_every` is how often the host checks whether all utterances are done, by default at every step, and on a GPU at
    every eighth; it affects only the speed.
    """
    rules = Rules(eos, longest, threshold)
    search, history = rules.begin(state), []
    look_every = look_every or (LOOK_EVERY if search.finished.is_cuda else 1)
    for position in range(longest + 1):
        search, chosen = rules.extend(step, search, position)
        history += chosen
        if position % look_every == look_every - 1 and bool(search.finished.all()):
            break
    return rules.result(search, history)


Choice = tuple[Tensor, Tensor]
"""The slots (B, k) of the hypotheses that were extended in a step, and the classes (B, k) they were extended by."""


class Search(NamedTuple):
    """A search after some steps.

    open_scores (B, k) and open_lengths (B,) are those of the open hypotheses; done_scores (B, k) those of the complete
    ones, and done_from (B, k) the position of their end · k + their slot; finished (B,) is whether an utterance is
    done; chosen (B, k) are the classes chosen last, or None at the start.
    """

    open_scores: Tensor
    open_lengths: Tensor
    done_scores: Tensor
    done_from: Tensor
    finished: Tensor
    chosen: Tensor | None
    state: Any


@dataclass(frozen=True)
class Rules:
    """The rules of `beam_search`, whose steps they make; its arguments have the same names."""

    eos: int
    longest: int
    threshold: float = math.inf

    def begin(self, state: State) -> Search:
        """The search before its first step."""
        first = state if isinstance(state, Tensor) else state[0]
        batch, k = first.shape[:2]
        device = first.device
        open_scores = torch.full((batch, k), -math.inf, device=device)
        open_scores[:, 0] = 0.0
        done_scores = torch.full_like(open_scores, -math.inf)
        return Search(
            open_scores,
            torch.zeros(batch, dtype=torch.long, device=device),
            done_scores,
            torch.zeros_like(done_scores, dtype=torch.long),
            torch.zeros(batch, dtype=torch.bool, device=device),
            None,
            state,
        )

    def extend(self, step: Step, search: Search, position: int) -> tuple[Search, list[Choice]]:
        """The search after one more step, and what was chosen; at position `longest` hypotheses can only end."""
        open_scores, done_from = search.open_scores, search.done_from
        batch, k = open_scores.shape
        rows = torch.arange(batch, device=open_scores.device)[:, None]
        among_first = torch.arange(2 * k, device=open_scores.device) < k
        added, state = step(search.state, search.chosen)
        scores, parents, classes = best_extensions(added, open_scores, 2 * k)
        ends = classes == self.eos

        ending = ends & among_first & ~search.finished[:, None]
        candidates = torch.cat([search.done_scores, scores.masked_fill(~ending, -math.inf)], dim=1)
        done_scores, kept = candidates.topk(k, dim=1)
        done_from = torch.cat([done_from, position * k + parents], dim=1)[rows, kept]
        if position == self.longest:
            return search._replace(done_scores=done_scores, done_from=done_from), []

        closed = ends | (scores < scores[:, :1] - self.threshold)
        best, order = scores.masked_fill(closed, -math.inf).topk(k, dim=1)
        going_on = ~search.finished & (best[:, 0] > -math.inf)
        open_scores = torch.where(going_on[:, None], best, open_scores)
        parents, chosen = parents[rows, order], classes[rows, order]
        state = state[rows, parents] if isinstance(state, Tensor) else tuple(x[rows, parents] for x in state)
        finished = ~going_on | (done_scores[:, -1] >= open_scores[:, 0])
        lengths = search.open_lengths + going_on
        extended = Search(open_scores, lengths, done_scores, done_from, finished, chosen, state)
        return extended, [(parents, chosen)]

    def result(self, search: Search, history: Sequence[Choice]) -> Beam:
        """The beam of a search, from what was chosen in each of its steps."""
        k = search.open_scores.shape[1]
        ended = search.done_scores[:, 0] > -math.inf
        none = ~ended[:, None]
        scores = torch.where(none, search.open_scores, search.done_scores)
        lengths = torch.where(none, search.open_lengths[:, None], search.done_from // k) + 1
        lengths = lengths.masked_fill(scores == -math.inf, 0)
        last = torch.where(none, torch.arange(k, device=scores.device), search.done_from % k)
        return Beam(_read_out(history, last, lengths, self.eos), lengths, scores, ended)


def best_extensions(added: Tensor, open_scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best extensions of each utterance's open hypotheses, best first.

    added (B, k, C), open_scores (B, k) -> scores, parents and classes (B, count); if there are fewer, the remaining
    scores are -inf. The n best extensions are always in the n blocks of classes with the highest maximum.
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


def _read_out(history: Sequence[Choice], last: Tensor, lengths: Tensor, eos: int) -> Tensor:
    """Trace hypotheses back from their last slot, `last` (B, k), to their first class: (B, k, longest length)."""
    rows = torch.arange(len(last), device=last.device)[:, None]
    width = max(int(lengths.max()), 1)
    found = torch.full((*last.shape, width), eos, device=last.device)
    for position in reversed(range(width - 1)):
        parents, classes = history[position]
        there = position < lengths - 1
        found[:, :, position] = torch.where(there, classes[rows, last], eos)
        last = torch.where(there, parents[rows, last], last)
    return found
