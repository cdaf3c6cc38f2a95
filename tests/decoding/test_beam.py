"""Beam search equals exhaustive search, and a slow search over plain lists."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import Toy, all_sequences, assert_same, hypotheses, slow_search

from priormatch.decoding.beam import BLOCK, Beam, Step, beam_search, best_extensions

toys = st.builds(
    Toy,
    utterances=st.integers(1, 4),
    classes=st.integers(2, 5),
    longest=st.integers(1, 4),
    seed=st.integers(0, 10_000),
    eos_bias=st.sampled_from([-3.0, -1.0, 0.0, 2.0]),
)
narrow_toys = st.builds(
    Toy,
    utterances=st.integers(1, 4),
    classes=st.integers(2, 5),
    longest=st.integers(1, 4),
    seed=st.integers(0, 10_000),
    eos_bias=st.sampled_from([-3.0, 0.0]),
    barred=st.sampled_from([0.3, 0.6, 0.9]),
)


def require_equal_to_slow(toy: Toy, k: int, threshold: float = math.inf, look_every: int = 1) -> None:
    beam = toy.search(k, threshold=threshold, look_every=look_every)
    for row in range(toy.utterances):
        expected, ended = slow_search(toy.scores_of(row), k, toy.eos, toy.longest, threshold)
        assert_same(hypotheses(beam, row), expected)
        assert bool(beam.ended[row]) == ended


@settings(max_examples=600)
@given(
    toy=st.one_of(toys, narrow_toys),
    k=st.integers(1, 6),
    threshold=st.sampled_from([math.inf, 0.0, 0.5, 2.0, 5.0]),
    look_every=st.sampled_from([1, 2, 8]),
)
def test_it_equals_the_slow_search(toy: Toy, k: int, threshold: float, look_every: int) -> None:
    require_equal_to_slow(toy, k, threshold, look_every)


@pytest.mark.parametrize("classes", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 5])
@pytest.mark.parametrize("k", [1, 3, 8])
def test_it_equals_the_slow_search_over_blocks_of_classes(classes: int, k: int) -> None:
    require_equal_to_slow(Toy(3, classes, 1, seed=classes, eos_bias=3.0), k)


@st.composite
def open_beams(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor]:
    """Added scores (B, k, C) and scores (B, k), with ties, impossible classes and hypotheses that do not exist."""
    batch, k, classes = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 3 * BLOCK))
    random = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    added = 2 * torch.randn(batch, k, classes, generator=random)
    if draw(st.booleans()):
        added = added.round()
    impossible = torch.rand(batch, k, classes, generator=random) < draw(st.sampled_from([0.0, 0.5, 0.98]))
    impossible[:, :, draw(st.integers(0, classes - 1))] = False
    scores = torch.randn(batch, k, generator=random)
    scores[:, draw(st.integers(1, k)) :] = -math.inf
    return added.masked_fill(impossible, -math.inf), scores


@settings(max_examples=200)
@given(beam=open_beams(), count=st.integers(1, 12))
def test_the_best_extensions_are_the_best_of_all(beam: tuple[torch.Tensor, torch.Tensor], count: int) -> None:
    added, open_scores = beam
    totals = open_scores[:, :, None] + added
    expected = torch.full((len(added), count), -math.inf)
    best = totals.flatten(1).sort(dim=1, descending=True).values[:, :count]
    expected[:, : best.shape[1]] = best

    scores, parents, classes = best_extensions(added, open_scores, count)
    assert torch.equal(scores, expected)
    for row in range(len(added)):
        found = torch.stack([parents[row], classes[row]], dim=1)[scores[row] > -math.inf]
        assert len(found.unique(dim=0)) == len(found), "an extension counts once"
        assert torch.equal(totals[row, found[:, 0], found[:, 1]], scores[row][scores[row] > -math.inf])
    assert int(classes.max()) < added.shape[2], (
        "also where there is no extension, the model must know the class"
    )
    assert int(parents.max()) < added.shape[1]


@settings(max_examples=40)
@given(classes=st.integers(2, 4), longest=st.integers(1, 3), seed=st.integers(0, 10_000))
def test_it_equals_exhaustive_search_where_the_beam_covers_everything(
    classes: int, longest: int, seed: int
) -> None:
    toy = Toy(2, classes, longest, seed)
    k = classes * (classes - 1) ** longest  # all extensions of all open hypotheses of the last step
    beam = toy.search(k)
    for row in range(2):
        assert_same(hypotheses(beam, row), all_sequences(toy.scores_of(row), toy.eos, longest)[:k])


@given(toy=toys)
def test_one_hypothesis_is_greedy_search(toy: Toy) -> None:
    beam = toy.search(1)
    for row in range(toy.utterances):
        scores, score = toy.scores_of(row), 0.0
        classes: tuple[int, ...] = ()
        ended = False
        while not ended and len(classes) <= toy.longest:
            added = scores(classes)
            best = added.index(max(added))
            ended = best == toy.eos
            if not ended and len(classes) == toy.longest:
                break
            score += added[best]
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
    toy.scores[1, :, -1] += 70.0  # the second utterance ends at once
    beam = toy.search(2)
    assert beam.ended.tolist() == [False, True]
    assert beam.lengths[0].tolist() == [4, 4]
    expected, _ = slow_search(toy.scores_of(0), 2, toy.eos, 3)
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
    ((classes, score),) = hypotheses(beam, 0)
    assert classes == (0, 1)
    assert score == pytest.approx(math.log(0.9 * 0.8 * 0.5))
    assert beam.ended.all()


def test_scores_are_not_normalized_by_length() -> None:
    step = script([0.55, 0.0, 0.45], [0.5, 0.0, 0.5], [0.0, 0.0, 1.0])
    beam = beam_search(step, torch.zeros(1, 3, 1, dtype=torch.long), eos=2, longest=2)
    assert [classes for classes, _ in hypotheses(beam, 0)] == [(), (0,), (0, 0)]
    assert beam.scores[0].exp().tolist() == pytest.approx([0.45, 0.275, 0.275])


def test_where_nothing_may_follow_the_last_open_hypotheses_are_given() -> None:
    toy = Toy(3, 4, 5, seed=0, eos_bias=-60.0)
    toy.scores[0] = -math.inf  # nothing at all
    toy.scores[1, 1:] = -math.inf  # nothing after the first class
    beam = toy.search(2)
    assert beam.ended.tolist() == [False] * 3
    assert hypotheses(beam, 0) == [((), 0.0)], "an empty one"
    best = toy.scores[1, 0, :3].sort(descending=True)
    assert_same(hypotheses(beam, 1), [((int(best.indices[i]),), float(best.values[i])) for i in range(2)])
    assert beam.lengths.tolist() == [[1, 0], [2, 2], [6, 6]]
    assert not beam.scores.isnan().any()


def test_a_search_in_which_nothing_may_follow_takes_no_more_steps() -> None:
    steps = []

    def step(state: torch.Tensor, classes: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        steps.append(classes)
        added = torch.zeros(*state.shape[:2], 3) if len(steps) < 3 else torch.full((1, 2, 3), -math.inf)
        added[:, :, 2] = -math.inf  # the end
        return added, state

    beam = beam_search(step, torch.zeros(1, 2, 1), eos=2, longest=100)
    assert len(steps) == 3
    assert beam.lengths.tolist() == [[3, 3]]
    assert not beam.ended


def test_a_threshold_drops_open_hypotheses_and_no_ends() -> None:
    step = script([0.9, 0.08, 0.02], [0.5, 0.1, 0.4], [0.0, 0.0, 1.0])
    state = torch.zeros(1, 3, 1, dtype=torch.long)
    without = beam_search(step, state, eos=2, longest=2)
    assert [classes for classes, _ in hypotheses(without, 0)] == [(0, 0), (0,), (0, 1)]
    beam = beam_search(step, state, eos=2, longest=2, threshold=1.0)
    assert [classes for classes, _ in hypotheses(beam, 0)] == [(0, 0), (0,), ()], (
        "(1,) and (0, 1) are dropped"
    )


def test_the_best_of_a_beam_are_no_wider_than_the_longest_of_them() -> None:
    classes = torch.tensor(
        [[[1, 9, 9, 9], [1, 2, 9, 9], [1, 2, 3, 9]], [[4, 9, 9, 9], [9, 9, 9, 9], [9, 9, 9, 9]]]
    )
    scores = torch.tensor([[-1.0, -2.0, -3.0], [-1.0, -math.inf, -math.inf]])
    beam = Beam(classes, torch.tensor([[2, 3, 4], [2, 0, 0]]), scores, torch.tensor([True, False]))
    best = beam.best(2)
    assert best.classes.tolist() == [[[1, 9, 9], [1, 2, 9]], [[4, 9, 9], [9, 9, 9]]]
    assert best.lengths.tolist() == [[2, 3], [2, 0]]
    assert best.scores.tolist() == [[-1.0, -2.0], [-1.0, -math.inf]]
    assert best.ended is beam.ended
    everything = beam.best(5)
    assert torch.equal(everything.classes, classes)
