"""Filters of pseudo-labels, by hand and by their properties."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies._internal.random import ArtificialRandom

from priormatch.matching.label_filters import (
    EMPTY,
    REPEATING,
    UNENDED,
    UNSURE,
    LabelFilter,
    best_share,
    repeats,
)


@pytest.mark.parametrize(
    ("text", "ngram", "expected"),
    [
        ("at nine at nine at ten", 2, 2),  # at nine, twice
        ("at nine at nine at ten", 1, 3),  # at
        ("no no no no no", 2, 4),  # overlaps count
        ("no no no no no", 5, 1),
        ("no no", 3, 0),
        ("", 2, 0),
        ("the cat that  cat", 1, 2),  # words, not letters
    ],
)
def test_repeats_by_hand(text: str, ngram: int, expected: int) -> None:
    assert repeats(text, ngram) == expected


def test_each_reason_by_hand() -> None:
    rows = [
        ("at nine", 2, -3.0, True),  # -1 a piece
        ("", 0, -0.1, True),
        ("at ten", 3, -2.0, False),
        ("no no no no no no", 6, -0.7, True),  # five times no no
        ("no no no no no", 5, -0.6, True),  # four times, and -0.1 a piece
        ("monday", 1, -4.0, True),  # -2 a piece, the worst
    ]
    found = LabelFilter(keep_best=2 / 3)(*zip(*rows, strict=True))
    assert found == [None, EMPTY, UNENDED, REPEATING, None, UNSURE]
    assert LabelFilter(1, 4)(*zip(*rows, strict=True))[4] == REPEATING
    assert LabelFilter(most_repeats=0, keep_unended=True)(*zip(*rows, strict=True)) == [
        None,
        EMPTY,
        *[None] * 4,
    ]


def test_a_long_hypothesis_is_not_unsure_for_its_length() -> None:
    assert LabelFilter(keep_best=0.5)(["long", "short"], [19, 1], [-10.0, -4.0], [True, True]) == [
        None,
        UNSURE,
    ]


def test_without_a_share_scores_do_not_matter() -> None:
    assert LabelFilter()(["at", "at"], [1, 1], [math.nan, math.nan], [True, True]) == [None, None]


@pytest.mark.parametrize(
    ("scores", "share", "expected"),
    [
        ([-1.0, -2.0, -3.0, -4.0], 0.5, [True, True, False, False]),
        ([-4.0, -1.0, -3.0, -2.0], 0.51, [False, True, True, True]),  # rounded up
        ([-1.0, -2.0, -2.0], 0.5, [True, True, True]),  # equals share their fate
        ([-1.0, -2.0], 0.0, [False, False]),
        ([], 0.9, []),
    ],
)
def test_the_best_share_by_hand(scores: list[float], share: float, expected: list[bool]) -> None:
    assert best_share(scores, share) == expected


def test_a_share_is_not_rounded_up_by_the_arithmetic() -> None:
    assert 0.07 * 100 > 7
    assert sum(best_share(range(100), 0.07)) == 7


LABELS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(["at", "ten"]), max_size=12).map(" ".join),
        st.integers(0, 9),
        st.integers(-60, 0).map(float),
        st.booleans(),
    ),
    max_size=12,
)
FILTERS = st.builds(
    LabelFilter, st.integers(1, 3), st.integers(1, 4), st.floats(0, 1), keep_unended=st.booleans()
)


def columns(rows: list[tuple[str, int, float, bool]]) -> list[list[Any]] | zip:
    return zip(*rows, strict=True) if rows else [[], [], [], []]


@given(LABELS, FILTERS)
def test_nothing_is_kept_that_must_be_dropped(
    rows: list[tuple[str, int, float, bool]], keep: LabelFilter
) -> None:
    reasons = keep(*columns(rows))
    kept = [row for row, reason in zip(rows, reasons, strict=True) if reason is None]
    for text, _, _, ended in kept:
        words = text.split()
        ngrams = [tuple(words[i : i + keep.ngram]) for i in range(len(words) - keep.ngram + 1)]
        assert text
        assert ended or keep.keep_unended
        assert all(ngrams.count(each) <= keep.most_repeats for each in ngrams)
    unsure = [row for row, reason in zip(rows, reasons, strict=True) if reason == UNSURE]
    assert len(kept) >= keep.keep_best * (len(kept) + len(unsure)) - 1e-6
    worst = min((score / (pieces + 1) for _, pieces, score, _ in kept), default=math.inf)
    assert all(score / (pieces + 1) < worst for _, pieces, score, _ in unsure)


@given(LABELS, FILTERS, st.randoms())
def test_the_order_does_not_matter(
    rows: list[tuple[str, int, float, bool]], keep: LabelFilter, random: ArtificialRandom
) -> None:
    order = random.sample(range(len(rows)), len(rows))
    reasons = keep(*columns(rows))
    assert keep(*columns([rows[i] for i in order])) == [reasons[i] for i in order]
