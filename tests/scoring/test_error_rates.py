"""What scores do to both sides before errors are counted."""

import math
import unicodedata
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from priormatch.config import LanguageSettings, NormalizerKind
from priormatch.data.normalizer import INSIDE, normalizer_of
from priormatch.scoring.error_rates import (
    NORMALIZERS,
    ErrorCounts,
    basic,
    character_errors,
    grouped,
    none,
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


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Don’t  stop, DON'T.", "don't stop don't"),
        ("'Rock 'n' roll'", "rock n roll"),
        ("don´t", "don't"),
        ("a well-known U.S. firm", "a well known u s firm"),
        ("25 % of ½", "25 of 1 2"),
        ("Le cœur d’Été", "le cœur d'été"),
        ("e\u0301te\u0301", "été"),  # composed
        ("हिन्दी में।", "हिन्दी में"),  # the vowels are marks
        ("Привет, МИР!", "привет мир"),
        ("ﬁne co\u00adoperate zero\u200bwidth", "fine cooperate zero width"),
        ("你好,世界", "你好 世界"),
        ("... ' -- ''", ""),
        ("snake_case", "snake case"),
    ],
)
def test_basic_by_hand(text: Any, wanted: Any) -> None:
    assert basic(text) == wanted


def test_none_only_squeezes_white_space() -> None:
    assert none(" Don’t \t stop,\u00a0e\u0301te\u0301 \n") == "Don’t stop, e\u0301te\u0301"


@pytest.mark.parametrize("kind", get_args(NormalizerKind))
def test_those_of_a_language_are_what_prepare_does(kind: Any) -> None:
    text = "'Tis U.S. law, since 1990! IŞIK"
    assert NORMALIZERS[kind](text) == normalizer_of(LanguageSettings(kind))(text)


def test_english_by_hand() -> None:
    assert NORMALIZERS["english"]("'Tis U.S. law, since 1990!") == "'tis us law since"


@given(st.text())
def test_basic_is_unicode_that_keeps_numbers(text: Any) -> None:
    plain = "".join(" " if unicodedata.category(each)[0] == "N" else each for each in basic(text))
    assert NORMALIZERS["unicode"](plain) == NORMALIZERS["unicode"](basic(text))
    without = text.translate(
        {code: " " for code in map(ord, text) if unicodedata.category(chr(code))[0] in "NS"}
    )
    assert basic(without) == NORMALIZERS["unicode"](without)


@given(st.text())
@example("İ ŉ ΑΣ' ͅΑ")
@example("a'\u0301b")
def test_normalizing_twice_changes_nothing_more(text: Any) -> None:
    for name, normalize in NORMALIZERS.items():
        once = normalize(text)
        assert normalize(once) == once, name
        assert once == " ".join(once.split()), name


@given(st.text())
def test_basic_keeps_nothing_but_letters_marks_numbers_and_signs_inside_words(text: Any) -> None:
    kinds = {unicodedata.category(each)[0] for each in basic(text) if each not in f" {INSIDE}"}
    assert kinds <= {"L", "M", "N"}
