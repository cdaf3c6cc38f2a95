"""What scores do to both sides before errors are counted."""

import unicodedata
from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from priormatch.config import LanguageSettings, NormalizerKind
from priormatch.data.normalizer import INSIDE, normalizer_of
from priormatch.scoring.normalizers import NORMALIZERS, basic, none


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
def test_basic_by_hand(text, wanted):
    assert basic(text) == wanted


def test_none_only_squeezes_white_space():
    assert none(" Don’t \t stop,\u00a0e\u0301te\u0301 \n") == "Don’t stop, e\u0301te\u0301"


@pytest.mark.parametrize("kind", get_args(NormalizerKind))
def test_those_of_a_language_are_what_prepare_does(kind):
    text = "'Tis U.S. law, since 1990! IŞIK"
    assert NORMALIZERS[kind](text) == normalizer_of(LanguageSettings(kind))(text)


def test_english_by_hand():
    assert NORMALIZERS["english"]("'Tis U.S. law, since 1990!") == "'tis us law since"


@given(st.text())
def test_basic_is_unicode_that_keeps_numbers(text):
    plain = "".join(" " if unicodedata.category(each)[0] == "N" else each for each in basic(text))
    assert NORMALIZERS["unicode"](plain) == NORMALIZERS["unicode"](basic(text))
    without = text.translate(
        {code: " " for code in map(ord, text) if unicodedata.category(chr(code))[0] in "NS"}
    )
    assert basic(without) == NORMALIZERS["unicode"](without)


@given(st.text())
@example("İ ŉ ΑΣ' ͅΑ")
@example("a'\u0301b")
def test_normalizing_twice_changes_nothing_more(text):
    for name, normalize in NORMALIZERS.items():
        once = normalize(text)
        assert normalize(once) == once, name
        assert once == " ".join(once.split()), name


@given(st.text())
def test_basic_keeps_nothing_but_letters_marks_numbers_and_signs_inside_words(text):
    kinds = {unicodedata.category(each)[0] for each in basic(text) if each not in f" {INSIDE}"}
    assert kinds <= {"L", "M", "N"}
