import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from priormatch.scoring.error_rates import (
    ErrorCounts,
    character_errors,
    grouped,
    summed,
    word_error_rate_recovered,
    word_errors,
)

SENTENCES = st.lists(st.sampled_from(["a", "b", "ab", "abc"]), max_size=6).map(" ".join)


def edit_distance(reference: list[str] | str, hypothesis: list[str] | str) -> int:
    row = list(range(len(hypothesis) + 1))
    for i, wanted in enumerate(reference, start=1):
        previous, row = row, [i]
        for j, given_ in enumerate(hypothesis, start=1):
            row.append(min(previous[j] + 1, row[-1] + 1, previous[j - 1] + (wanted != given_)))
    return row[-1]


def test_word_errors_by_hand() -> None:
    counts = word_errors(
        ["the cat sat", "on the mat", "", "gone", ""], ["the bat sat", "on mat mat now", "oh no", "", ""]
    )
    assert counts.errors.tolist() == [1, 2, 2, 1, 0]
    assert counts.lengths.tolist() == [3, 3, 0, 1, 0]
    assert counts.rate == pytest.approx(100 * 6 / 7)


def test_characters_count_the_space_between_words_but_none_at_the_edges() -> None:
    counts = character_errors(["ice cream", "a  b", "", "ab"], [" icecream ", "a b ", "x y", ""])
    assert counts.errors.tolist() == [1, 0, 3, 2]
    assert counts.lengths.tolist() == [9, 3, 0, 2]


@given(st.lists(st.tuples(SENTENCES, SENTENCES), max_size=5))
def test_counts_are_edit_distances(pairs: list[tuple[str, str]]) -> None:
    references, hypotheses = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    words = word_errors(references, hypotheses)
    assert words.errors.tolist() == [edit_distance(r.split(), h.split()) for r, h in pairs]
    assert words.lengths.tolist() == [len(r.split()) for r in references]
    assert character_errors(references, hypotheses).errors.tolist() == [edit_distance(r, h) for r, h in pairs]


def test_no_reference_has_no_rate() -> None:
    assert math.isnan(word_errors([], []).rate)
    assert math.isnan(word_errors([""], ["a"]).rate)


def test_summed_joins_runs() -> None:
    first = ErrorCounts(np.array([1, 0]), np.array([4, 6]))
    second = ErrorCounts(np.array([2, 3]), np.array([4, 6]))
    assert summed([first, second]).errors.tolist() == [3, 3]
    assert summed([first, second]).lengths.tolist() == [8, 12]
    assert summed([first, second]).rate == 30.0
    with pytest.raises(ValueError, match="same references"):
        summed([first, ErrorCounts(np.array([1, 0]), np.array([6, 4]))])


def test_grouped_adds_up_the_utterances_of_a_unit() -> None:
    counts = ErrorCounts(np.array([1, 0, 2, 3]), np.array([4, 6, 5, 9]))
    found = grouped(counts, ["bob", "ann", "bob", "a"])
    assert (found.errors.tolist(), found.lengths.tolist()) == ([3, 0, 3], [9, 6, 9])
    assert found.rate == counts.rate
    assert len(grouped(ErrorCounts(np.zeros(0, int), np.zeros(0, int)), [])) == 0


def test_unequal_lists_are_refused() -> None:
    with pytest.raises(ValueError, match="2 references, but 1 hypotheses"):
        word_errors(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="differ in shape"):
        ErrorCounts(np.zeros(2), np.zeros(3))


def test_word_error_rate_recovered() -> None:
    assert word_error_rate_recovered(20.0, 12.5, 5.0) == 50.0
    assert word_error_rate_recovered(20.0, 23.0, 5.0) == -20.0
    assert math.isnan(word_error_rate_recovered(5.0, 4.0, 5.0))
