"""The length filter keeps floor(r_lb · L) to ceil(r_ub · L), both included, in exact arithmetic."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from priormatch.matching.lpm import LengthFilter, keep_all


def kept_pieces(pieces: int, filter: LengthFilter) -> list[int]:
    """Which numbers of pieces pass beside a reference of `pieces`; the end of sentence counts one more."""
    lengths = torch.arange(0, 3 * pieces + 10)[None]
    keep = filter(lengths, torch.tensor([pieces + 1]))
    return (lengths[keep] - 1).tolist()


def test_twenty_pieces_keep_eighteen_to_twenty_two() -> None:
    assert kept_pieces(20, LengthFilter()) == [18, 19, 20, 21, 22]


@pytest.mark.parametrize("pieces", range(2, 20))
def test_short_references_tolerate_one_piece(pieces: int) -> None:
    assert kept_pieces(pieces, LengthFilter()) == [pieces - 1, pieces, pieces + 1]


def test_one_piece_never_becomes_none() -> None:
    assert kept_pieces(1, LengthFilter()) == [1, 2]


@pytest.mark.parametrize(
    ("length", "least", "most"),
    [(20, 19, 21), (40, 38, 42), (60, 57, 63), (100, 95, 105), (2000, 1900, 2100)],
)
def test_products_that_are_whole_are_not_rounded_further(length: int, least: int, most: int) -> None:
    """1.05 · 20 is 21, and a hair more in binary arithmetic."""
    keep = LengthFilter()(torch.tensor([[least - 1, least, most, most + 1]]), torch.tensor([length]))
    assert keep.tolist() == [[False, True, True, False]]


@example(length=100, lower=29, upper=110, offsets=[-72, -71, -70, 10, 11])  # in binary, 0.29 · 100 < 29
@given(
    length=st.integers(2, 500),
    lower=st.integers(0, 100),
    upper=st.integers(100, 200),
    offsets=st.lists(st.integers(-30, 30), min_size=1, max_size=8),
)
def test_bounds_equal_exact_fractions(length: int, lower: int, upper: int, offsets: list[int]) -> None:
    least = math.floor(Fraction(lower, 100) * length)
    most = math.ceil(Fraction(upper, 100) * length)
    lengths = [max(0, length + each) for each in offsets]
    keep = LengthFilter(lower / 100, upper / 100)(torch.tensor([lengths]), torch.tensor([length]))
    assert keep.tolist() == [[max(2, least) <= each <= most for each in lengths]]


def test_no_reference_keeps_nothing_and_rows_are_their_own() -> None:
    keep = LengthFilter()(torch.tensor([[5, 6, 0], [5, 6, 2], [9, 9, 1]]), torch.tensor([5, 0, 9]))
    assert keep.tolist() == [[True, True, False], [False] * 3, [True, True, False]]


def test_without_a_filter_all_that_exists_is_kept() -> None:
    lengths = torch.tensor([[5, 1, 0]])
    assert keep_all(lengths, torch.tensor([0])).tolist() == [[True, True, False]]
