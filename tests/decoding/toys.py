"""A model over all histories at once, and searches over plain lists that say what beam search must find.

The slow search follows the authors' code: at each step the 2k best extensions are looked at, ends among the
first k of them are complete, the k best others stay open; it stops with k complete hypotheses of which the
worst beats every open one. One difference is meant: the authors count steps, so that their limit of 150
leaves room for 149 pieces and the end; here `longest` counts pieces, and the end may follow in one more
step.
"""

import itertools
import math
from collections.abc import Callable

import pytest
import torch

from priormatch.decoding.beam import Beam, beam_search

Hypothesis = tuple[tuple[int, ...], float]
Scores = Callable[[tuple[int, ...]], list[float]]
"""What each class adds to a hypothesis of these classes."""


class Toy:
    """A model that draws the logits of every history of every utterance at random, and where it attends to.

    Its state is (utterance, number of the history), so that a hypothesis with another's state is found out. Some
    classes may not follow: a share `barred` of all.
    """

    def __init__(
        self,
        utterances: int,
        classes: int,
        longest: int,
        seed: int,
        eos_bias: float = 0.0,
        barred: float = 0.0,
    ) -> None:
        random = torch.Generator().manual_seed(seed)
        histories = sum(classes**length for length in range(longest + 2))
        logits = 2 * torch.randn(utterances, histories, classes, generator=random)
        logits[:, :, -1] += eos_bias
        bar = torch.rand(logits.shape, generator=random) < barred
        self.scores = logits.log_softmax(dim=-1).masked_fill(bar, -math.inf)
        self.peaks = torch.randint(9, (utterances, histories), generator=random)
        self.utterances, self.classes, self.longest, self.eos = utterances, classes, longest, classes - 1

    def first_state(self, k: int) -> torch.Tensor:
        state = torch.zeros(self.utterances, k, 2, dtype=torch.long)
        state[:, :, 0] = torch.arange(self.utterances)[:, None]
        return state

    def step(self, state: torch.Tensor, classes: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        utterance, history = state.unbind(-1)
        if classes is not None:
            history = history * self.classes + classes + 1
        return self.scores[utterance, history], torch.stack([utterance, history], dim=-1)

    def with_peaks(
        self, state: torch.Tensor, classes: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        scores, state = self.step(state, classes)
        return scores, state, self.peaks[state[..., 0], state[..., 1]]

    def search(
        self, k: int, rows: slice = slice(None), threshold: float = math.inf, look_every: int = 1
    ) -> Beam:
        state = self.first_state(k)[rows]
        return beam_search(self.step, state, self.eos, self.longest, threshold, look_every)

    def number(self, classes: tuple[int, ...]) -> int:
        """The number of a history."""
        history = 0
        for each in classes:
            history = history * self.classes + each + 1
        return history

    def scores_of(self, utterance: int) -> Scores:
        return lambda classes: self.scores[utterance, self.number(classes)].tolist()

    def peak_of(self, utterance: int, classes: tuple[int, ...]) -> int:
        return int(self.peaks[utterance, self.number(classes)])


def hypotheses(beam: Beam, row: int) -> list[Hypothesis]:
    """The hypotheses of one utterance, their end left out."""
    found = zip(
        beam.classes[row].tolist(), beam.lengths[row].tolist(), beam.scores[row].tolist(), strict=True
    )
    return [(tuple(classes[: length - 1]), score) for classes, length, score in found if length > 0]


def slow_search(
    scores: Scores, k: int, eos: int, longest: int, threshold: float = math.inf
) -> tuple[list[Hypothesis], bool]:
    """The search of one utterance over plain lists."""
    still_open: list[Hypothesis] = [((), 0.0)]
    complete: list[Hypothesis] = []
    for position in range(longest + 1):
        extensions = [
            (classes, each, score + value)
            for classes, score in still_open
            for each, value in enumerate(scores(classes))
            if value > -math.inf
        ]
        extensions = sorted(extensions, key=lambda item: -item[2])[: 2 * k]
        complete += [(classes, score) for classes, each, score in extensions[:k] if each == eos]
        complete = sorted(complete, key=lambda item: -item[1])[:k]
        if position == longest:
            break
        going_on = [
            ((*classes, each), score)
            for classes, each, score in extensions
            if each != eos and score >= extensions[0][2] - threshold
        ][:k]
        if not going_on:
            break
        still_open = going_on
        if len(complete) == k and complete[-1][1] >= still_open[0][1]:
            break
    return (complete, True) if complete else (still_open, False)


def all_sequences(scores: Scores, eos: int, longest: int) -> list[Hypothesis]:
    """Every sequence that ends, with its score, best first."""
    found = []
    for length in range(longest + 1):
        for classes in itertools.product(range(eos), repeat=length):
            steps = zip((classes[:u] for u in range(length + 1)), (*classes, eos), strict=True)
            found.append((classes, sum(scores(before)[each] for before, each in steps)))
    return sorted(found, key=lambda item: -item[1])


def assert_same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [classes for classes, _ in found] == [classes for classes, _ in expected]
    assert [score for _, score in found] == pytest.approx([score for _, score in expected], abs=1e-4)
