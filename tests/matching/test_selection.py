"""Which utterances an epoch visits: the rule by hand, its properties, and what is remembered between epochs."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from priormatch.matching.selection import ALONE, NOTHING, UNKNOWN, Selection, doubts_of, select

#                   two sure ones, one alone, none, then two in doubt
DOUBTS = np.array([0.1, 0.2, ALONE, NOTHING, 0.3, 0.5], np.float32)


def chosen(share, random_share=0.0, doubts=DOUBTS, seed=0):
    return select(doubts, share, random_share, np.random.default_rng(seed)).tolist()


def test_doubt_is_the_entropy_where_the_prior_had_a_choice():
    weights = torch.tensor([[0.5, 0.25, 0.25], [0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    assert doubts_of(weights).tolist() == pytest.approx([1.5 * math.log(2), math.log(2), ALONE, NOTHING])


@pytest.mark.parametrize("beam", [2, 64, 1024])
def test_even_the_least_sure_choice_comes_before_a_lone_survivor(beam):
    assert doubts_of(torch.full((1, beam), 1 / beam)).item() < ALONE


@pytest.mark.parametrize(
    ("places", "expected"),
    [(1, [0]), (2, [0, 1]), (3, [0, 1, 4]), (4, [0, 1, 4, 5]), (5, [0, 1, 2, 4, 5]), (6, [0, 1, 2, 3, 4, 5])],
)
def test_the_sure_come_first_then_the_lone_survivors_then_those_without(places, expected):
    assert chosen(places / 6) == expected


def test_a_small_share_is_still_one():
    assert chosen(0.001) == [0]


def test_those_never_chosen_come_before_all_others():
    doubts = np.where([False, False, True, True, False, True], UNKNOWN, DOUBTS)
    assert chosen(0.5, 1.0, doubts) == [2, 3, 5]
    assert chosen(4 / 6, 0.0, doubts) == [0, 2, 3, 5]
    none = np.full(6, UNKNOWN)
    assert len({tuple(chosen(1 / 3, 0.0, none, seed)) for seed in range(300)}) == 15, "any two of six"


def test_the_random_part_is_drawn_from_what_the_best_leave():
    drawn = [chosen(0.5, 1 / 3, seed=seed) for seed in range(400)]
    assert all(each[:2] == [0, 1] for each in drawn)
    counts = np.bincount([each[2] for each in drawn], minlength=6)
    assert counts[2:].min() > 70, "a hundred each, even those without a survivor"


def test_among_equals_chance_decides():
    first = [chosen(0.25, 0.0, np.full(4, NOTHING), seed)[0] for seed in range(200)]
    assert np.bincount(first, minlength=4).min() > 25


@given(
    doubts=st.lists(st.sampled_from([UNKNOWN, 0.0, 0.1, 0.7, ALONE, NOTHING]), min_size=1, max_size=30),
    share=st.floats(0.01, 1.0),
    random_share=st.floats(0.0, 1.0),
    seed=st.integers(0, 9),
)
def test_what_is_chosen(doubts, share, random_share, seed):
    found = chosen(share, random_share, np.array(doubts), seed)
    assert found == chosen(share, random_share, np.array(doubts), seed)
    assert found == sorted(set(found)), "none twice"
    assert len(found) == max(round(share * len(doubts)), 1)
    new = sum(doubts[index] == UNKNOWN for index in found)
    assert new == min(len(found), doubts.count(UNKNOWN))
    best = len(found) - round(random_share * (len(found) - new))
    assert sorted(doubts[index] for index in found)[:best] == sorted(doubts)[:best]


def of_entropy(*certain):
    """Weights over two hypotheses with these for the first; None for a row that nothing survived in."""
    return torch.tensor([[0.0, 0.0] if one is None else [one, 1 - one] for one in certain])


def noted():
    """Four utterances of which the last could not be read, all visited in epoch 0."""
    selection = Selection(["a", "b", "c", "d"], 0.5, 0.0, seed=1)
    selection.share = 1.0
    assert selection.choose(0).tolist() == [0, 1, 2, 3]
    selection.share = 0.5
    selection.note(["c", "a"], of_entropy(0.5, None))
    selection.note(["b"], of_entropy(0.9, 0.5))  # the second row only makes the shape round
    return selection


def test_it_chooses_by_the_last_visit():
    selection = noted()
    assert selection.figures == {}, "nothing is known yet of what is new"
    assert selection.choose(1).tolist() == [1, 2]
    entropies = {"b": -0.9 * math.log(0.9) - 0.1 * math.log(0.1), "c": math.log(2)}
    mean = pytest.approx(sum(entropies.values()) / 2)
    assert selection.figures == {"selected_entropy": mean, "unlabeled_entropy": mean}
    selection.share = 0.25
    assert selection.choose(2).tolist() == [1]
    assert selection.figures["selected_entropy"] == pytest.approx(entropies["b"])
    assert selection.figures["unlabeled_entropy"] == mean
    selection.note(["b"], of_entropy(None))
    assert selection.choose(3).tolist() == [2]


def test_the_choice_of_an_epoch_stays():
    selection = noted()
    before = selection.choose(1)
    selection.note(["b", "c"], of_entropy(None, None))
    assert selection.choose(1) is before


def test_all_are_visited_before_any_is_visited_again():
    selection = Selection([str(number) for number in range(10)], 0.3, 0.5, seed=4)
    first = [selection.choose(epoch).tolist() for epoch in range(4)]
    assert [len(each) for each in first] == [3, 3, 3, 3]
    assert len({number for each in first[:3] for number in each}) == 9
    assert {number for each in first for number in each} == set(range(10))


def test_to_note_is_not_to_wait():
    """A tensor without values stands for one whose values are still being computed: only a choice asks for them."""
    selection = Selection(["a", "b"], 0.5, 0.0, seed=1)
    selection.note(["a"], torch.empty(2, 3, device="meta"))
    with pytest.raises(NotImplementedError, match="meta tensor"):
        selection.choose(0)


@pytest.mark.parametrize("epoch", [0, 1])
def test_its_state_comes_back(epoch):
    selection = noted()
    before = selection.choose(epoch).tolist()
    if epoch == 1:
        selection.note(["b"], of_entropy(None))
    other = Selection(["a", "b", "c", "d"], 0.5, 0.0, seed=1)
    tensors, state = selection.state()
    other.restore({name: each.clone() for name, each in tensors.items()}, state)
    assert other.choose(epoch).tolist() == before
    assert other.figures == selection.figures
    for later in range(epoch + 1, epoch + 4):
        assert other.choose(later).tolist() == selection.choose(later).tolist()
        assert other.figures == selection.figures


def test_epochs_and_seeds_draw_differently():
    draws = {
        tuple(Selection([str(number) for number in range(40)], 0.5, 0.0, seed).choose(epoch))
        for seed in range(3)
        for epoch in range(3)
    }
    assert len(draws) == 9
