"""Beam search equals exhaustive search, and a slow search over plain lists.

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
from hypothesis import given, settings
from hypothesis import strategies as st

from priormatch.search.beam import BLOCK, Beam, Step, beam_search, best_extensions

Hypothesis = tuple[tuple[int, ...], float]
LogProbabilities = Callable[[tuple[int, ...]], torch.Tensor]


class Toy:
    """A model that draws the logits of every history of every utterance at random.

    Its state is (utterance, number of the history), so that a hypothesis with another's state is found out.
    """

    def __init__(self, utterances: int, classes: int, longest: int, seed: int, eos_bias: float = 0.0) -> None:
        random = torch.Generator().manual_seed(seed)
        histories = sum(classes**length for length in range(longest + 2))
        self.logits = 2 * torch.randn(utterances, histories, classes, generator=random)
        self.logits[:, :, -1] += eos_bias
        self.utterances, self.classes, self.longest, self.eos = utterances, classes, longest, classes - 1

    def step(self, state: torch.Tensor, classes: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        utterance, history = state.unbind(-1)
        if classes is not None:
            history = history * self.classes + classes + 1
        return self.logits[utterance, history], torch.stack([utterance, history], dim=-1)

    def search(self, k: int, rows: slice = slice(None)) -> Beam:
        state = torch.zeros(self.utterances, k, 2, dtype=torch.long)
        state[:, :, 0] = torch.arange(self.utterances)[:, None]
        return beam_search(self.step, state[rows], self.eos, self.longest)

    def log_probabilities(self, utterance: int) -> LogProbabilities:
        def of(classes: tuple[int, ...]) -> torch.Tensor:
            history = 0
            for each in classes:
                history = history * self.classes + each + 1
            return self.logits[utterance, history].log_softmax(dim=-1)

        return of


def hypotheses(beam: Beam, row: int) -> list[Hypothesis]:
    """The hypotheses of one utterance, their end left out."""
    found = zip(
        beam.classes[row].tolist(), beam.lengths[row].tolist(), beam.scores[row].tolist(), strict=True
    )
    return [(tuple(classes[: length - 1]), score) for classes, length, score in found if length > 0]


def slow_search(log_p: LogProbabilities, k: int, eos: int, longest: int) -> tuple[list[Hypothesis], bool]:
    """The search of one utterance over plain lists."""
    still_open: list[Hypothesis] = [((), 0.0)]
    complete: list[Hypothesis] = []
    for position in range(longest + 1):
        extensions = [
            (classes, each, score + float(value))
            for classes, score in still_open
            for each, value in enumerate(log_p(classes))
        ]
        extensions = sorted(extensions, key=lambda item: -item[2])[: 2 * k]
        complete += [(classes, score) for classes, each, score in extensions[:k] if each == eos]
        complete = sorted(complete, key=lambda item: -item[1])[:k]
        if position == longest:
            break
        still_open = [((*classes, each), score) for classes, each, score in extensions if each != eos][:k]
        if len(complete) == k and complete[-1][1] >= still_open[0][1]:
            break
    return (complete, True) if complete else (still_open, False)


def all_sequences(log_p: LogProbabilities, eos: int, longest: int) -> list[Hypothesis]:
    """Every sequence that ends, with its score, best first."""
    found = []
    for length in range(longest + 1):
        for classes in itertools.product(range(eos), repeat=length):
            steps = zip((classes[:u] for u in range(length + 1)), (*classes, eos), strict=True)
            found.append((classes, sum(float(log_p(before)[each]) for before, each in steps)))
    return sorted(found, key=lambda item: -item[1])


def assert_same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [classes for classes, _ in found] == [classes for classes, _ in expected]
    assert [score for _, score in found] == pytest.approx([score for _, score in expected], abs=1e-4)


toys = st.builds(
    Toy,
    utterances=st.integers(1, 4),
    classes=st.integers(2, 5),
    longest=st.integers(1, 4),
    seed=st.integers(0, 10_000),
    eos_bias=st.sampled_from([-3.0, -1.0, 0.0, 2.0]),
)


@settings(max_examples=300)
@given(toy=toys, k=st.integers(1, 6))
def test_it_equals_the_slow_search(toy: Toy, k: int) -> None:
    beam = toy.search(k)
    for row in range(toy.utterances):
        expected, ended = slow_search(toy.log_probabilities(row), k, toy.eos, toy.longest)
        assert_same(hypotheses(beam, row), expected)
        assert bool(beam.ended[row]) == ended


@pytest.mark.parametrize("classes", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 5])
@pytest.mark.parametrize("k", [1, 3, 8])
def test_it_equals_the_slow_search_over_blocks_of_classes(classes: int, k: int) -> None:
    toy = Toy(3, classes, 1, seed=classes, eos_bias=3.0)
    beam = toy.search(k)
    for row in range(3):
        expected, ended = slow_search(toy.log_probabilities(row), k, toy.eos, toy.longest)
        assert_same(hypotheses(beam, row), expected)
        assert bool(beam.ended[row]) == ended


@st.composite
def open_beams(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits (B, k, C) and scores (B, k), with ties, impossible classes and hypotheses that do not exist."""
    batch, k, classes = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 3 * BLOCK))
    random = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    logits = 2 * torch.randn(batch, k, classes, generator=random)
    if draw(st.booleans()):
        logits = logits.round()
    impossible = torch.rand(batch, k, classes, generator=random) < draw(st.sampled_from([0.0, 0.5, 0.98]))
    impossible[:, :, draw(st.integers(0, classes - 1))] = False
    scores = torch.randn(batch, k, generator=random)
    scores[:, draw(st.integers(1, k)) :] = -math.inf
    return logits.masked_fill(impossible, -math.inf), scores


@settings(max_examples=200)
@given(beam=open_beams(), count=st.integers(1, 12))
def test_the_best_extensions_are_the_best_of_all(beam: tuple[torch.Tensor, torch.Tensor], count: int) -> None:
    logits, open_scores = beam
    totals = open_scores[:, :, None] + logits.log_softmax(dim=-1)
    expected = torch.full((len(logits), count), -math.inf)
    best = totals.flatten(1).sort(dim=1, descending=True).values[:, :count]
    expected[:, : best.shape[1]] = best

    scores, parents, classes = best_extensions(logits, open_scores, count)
    assert torch.equal(scores, expected)
    for row in range(len(logits)):
        found = torch.stack([parents[row], classes[row]], dim=1)[scores[row] > -math.inf]
        assert len(found.unique(dim=0)) == len(found), "an extension counts once"
        assert torch.equal(totals[row, found[:, 0], found[:, 1]], scores[row][scores[row] > -math.inf])
    assert int(classes.max()) < logits.shape[2], (
        "also where there is no extension, the model must know the class"
    )
    assert int(parents.max()) < logits.shape[1]


@settings(max_examples=40)
@given(classes=st.integers(2, 4), longest=st.integers(1, 3), seed=st.integers(0, 10_000))
def test_it_equals_exhaustive_search_where_the_beam_covers_everything(
    classes: int, longest: int, seed: int
) -> None:
    toy = Toy(2, classes, longest, seed)
    k = classes * (classes - 1) ** longest  # all extensions of all open hypotheses of the last step
    beam = toy.search(k)
    for row in range(2):
        assert_same(hypotheses(beam, row), all_sequences(toy.log_probabilities(row), toy.eos, longest)[:k])


@given(toy=toys)
def test_one_hypothesis_is_greedy_search(toy: Toy) -> None:
    beam = toy.search(1)
    for row in range(toy.utterances):
        log_p, classes, score = toy.log_probabilities(row), (), 0.0
        ended = False
        while not ended and len(classes) <= toy.longest:
            best = int(log_p(classes).argmax())
            ended = best == toy.eos
            if not ended and len(classes) == toy.longest:
                break
            score += float(log_p(classes)[best])
            classes = classes if ended else (*classes, best)
        assert_same(hypotheses(beam, row), [(classes, score)])
        assert bool(beam.ended[row]) == ended


@given(toy=toys, k=st.integers(1, 5))
def test_utterances_do_not_influence_each_other(toy: Toy, k: int) -> None:
    together = toy.search(k)
    for row in range(toy.utterances):
        alone = toy.search(k, slice(row, row + 1))
        width = alone.classes.shape[2]
        assert torch.equal(together.classes[row, :, :width], alone.classes[0])
        assert torch.equal(together.lengths[row], alone.lengths[0])
        assert torch.equal(together.scores[row], alone.scores[0])


@given(toy=toys, k=st.integers(1, 8))
def test_what_a_beam_promises(toy: Toy, k: int) -> None:
    beam = toy.search(k)
    assert beam.classes.shape == (toy.utterances, k, max(int(beam.lengths.max()), 1))
    assert torch.all(beam.scores[:, :-1] >= beam.scores[:, 1:])
    assert torch.equal(beam.lengths == 0, beam.scores == -math.inf)
    assert torch.all(beam.lengths[:, 0] >= 1)
    for row in range(toy.utterances):
        found = [classes for classes, _ in hypotheses(beam, row)]
        assert len(set(found)) == len(found)
        assert not any(toy.eos in classes for classes in found)
    after = torch.arange(beam.classes.shape[2]) >= beam.lengths[:, :, None] - 1
    assert torch.all(beam.classes[after] == toy.eos), "the end fills the rest, and what does not exist"


def test_where_nothing_ends_the_open_hypotheses_are_given() -> None:
    toy = Toy(2, 4, 3, seed=0, eos_bias=-60.0)
    toy.logits[1, :, -1] += 70.0  # the second utterance ends at once
    beam = toy.search(2)
    assert beam.ended.tolist() == [False, True]
    assert beam.lengths[0].tolist() == [4, 4]
    expected, _ = slow_search(toy.log_probabilities(0), 2, toy.eos, 3)
    assert_same(hypotheses(beam, 0), expected)
    assert beam.classes[0, :, 3].tolist() == [toy.eos, toy.eos]
    assert beam.lengths[1, 0] == 1


def script(*rows: list[float]) -> Step:
    """A model whose probabilities depend on the position alone."""

    def step(state: torch.Tensor, classes: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        position = int(state.flatten()[0])
        return torch.tensor(rows[position]).log().expand(*state.shape[:2], -1), state + 1

    return step


def test_fewer_sequences_than_hypotheses() -> None:
    step = script([1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0])
    beam = beam_search(step, torch.zeros(1, 3, 1, dtype=torch.long), eos=2, longest=3)
    assert beam.classes[0, 0].tolist() == [0, 1, 2]
    assert beam.lengths.tolist() == [[3, 0, 0]]
    assert beam.scores.tolist() == [[0.0, -math.inf, -math.inf]]
    assert beam.classes[0, 1:].flatten().tolist() == [2] * 6


def test_the_end_may_follow_the_longest_sequence() -> None:
    step = script([0.9, 0.0, 0.1], [0.0, 0.8, 0.2], [0.3, 0.2, 0.5])
    beam = beam_search(step, torch.zeros(1, 1, 1, dtype=torch.long), eos=2, longest=2)
    assert hypotheses(beam, 0) == [((0, 1), pytest.approx(math.log(0.9 * 0.8 * 0.5)))]
    assert beam.ended.all()


def test_scores_are_not_normalised_by_length() -> None:
    step = script([0.55, 0.0, 0.45], [0.5, 0.0, 0.5], [0.0, 0.0, 1.0])
    beam = beam_search(step, torch.zeros(1, 3, 1, dtype=torch.long), eos=2, longest=2)
    assert [classes for classes, _ in hypotheses(beam, 0)] == [(), (0,), (0, 0)]
    assert beam.scores[0].exp().tolist() == pytest.approx([0.45, 0.275, 0.275])


def test_half_precision_logits_are_scored_in_full() -> None:
    def step(state: torch.Tensor, classes: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tensor([1.0, 2.0, 3.0], dtype=torch.bfloat16).expand(*state.shape[:2], -1), state

    beam = beam_search(step, torch.zeros(1, 1, 1), eos=2, longest=2)
    assert beam.scores.dtype == torch.float32
    assert beam.scores.item() == pytest.approx(math.log(math.exp(3) / sum(map(math.exp, (1, 2, 3)))))
