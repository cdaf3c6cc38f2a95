"""What scores do to both sides before errors are counted."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from priormatch.data.text import normalise_sentence
from priormatch.evaluation.normalizers import NORMALIZERS, basic, none


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
        ("ﬁne co\u00adoperate zero\u200bwidth", "fine cooperate zerowidth"),
        ("你好,世界", "你好 世界"),
        ("... ' -- ''", ""),
        ("snake_case", "snake case"),
    ],
)
def test_basic_by_hand(text, wanted):
    assert basic(text) == wanted


def test_none_only_squeezes_white_space():
    assert none(" Don’t \t stop,\u00a0e\u0301te\u0301 \n") == "Don’t stop, e\u0301te\u0301"


def test_english_is_what_prepare_does():
    assert NORMALIZERS["english"] is normalise_sentence
    assert NORMALIZERS["english"]("'Tis U.S. law, since 1990!") == "'tis us law since"


@given(st.text())
@example("İ ŉ ΑΣ' ͅΑ")
@example("a'\u0301b")
def test_normalising_twice_changes_nothing_more(text):
    for name, normalize in NORMALIZERS.items():
        once = normalize(text)
        assert normalize(once) == once, name
        assert once == " ".join(once.split()), name


@given(st.text())
def test_basic_keeps_nothing_but_letters_marks_numbers_and_apostrophes(text):
    kinds = {unicodedata.category(character)[0] for character in basic(text) if character not in " '"}
    assert kinds <= {"L", "M", "N"}
