"""Text of any language becomes words, and the folder of a tokenizer tells how."""

import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from priormatch.config import LanguageSettings, load_settings
from priormatch.data.normalizer import (
    ENGLISH,
    LANGUAGE_FILE,
    Normalizer,
    kind_for,
    normalizer_in,
    normalizer_of,
)
from priormatch.data.text import normalize_sentence, split_sentences
from priormatch.errors import UserError

UNICODE, TURKIC = Normalizer("unicode"), Normalizer("turkic")
RUSSIAN = Normalizer("unicode", "абвгдеёжзийклмнопрстуфхцчшщъыьэюя")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("„Straße“ – GRÖSSE, Äpfel!", "straße grösse äpfel"),
        ("L’été, c'est «déjà» là… aujourd'hui; peut-être", "l'été c'est déjà là aujourd'hui peut être"),
        ("e\u0301te\u0301 A\u030a", "été å"),
        ("Ёлка и ЙОД", "ёлка и йод"),
        ("Об’єкт 'слово'", "об'єкт слово"),
        ("ΟΔΟΣ Αθηνών; Ναι.", "οδος αθηνών ναι"),
        ("नमस्ते, दुनिया। क्षि", "नमस्ते दुनिया क्षि"),
        ("مَرْحَبًا، كـــتاب؟", "مَرْحَبًا كتاب"),
        ("ﻻ ﷲ", "لا الله"),
        ("می‌خواهم\u200c", "می‌خواهم"),
        ("น้ำ คำ", "น้ำ คำ"),
        ("col·lega ·", "col·lega"),
        ("wie\u00adder ﬁnden\u200bＡbc", "wieder finden abc"),
        ("5 km², 3½ € \N{COMBINING ACUTE ACCENT}! ٣", "km"),
        ("z.B. U.S.A.", "z b u s a"),
        ("İstanbul I", "istanbul i"),
        ("\t'' -- \n", ""),
    ],
)
def test_unicode(text: str, expected: str) -> None:
    assert UNICODE(text) == expected


def test_turkic() -> None:
    assert TURKIC("IŞIK İstanbul I\u0307ZMİR ılık") == "ışık istanbul izmir ılık"


@given(st.text(), st.sampled_from([UNICODE, TURKIC]))
@example("e\u00ad\u0301 'a'' \u0345 aŉb", UNICODE)
def test_normalizing_twice_changes_nothing(text: str, normalizer: Normalizer) -> None:
    once = normalizer(text)
    assert normalizer(once) == once
    assert once == " ".join(once.split()) == unicodedata.normalize("NFC", once)
    assert all(unicodedata.category(word[0])[0] == "L" for word in once.split())


@given(st.text())
def test_english_is_left_as_it_was(text: str) -> None:
    assert ENGLISH(text) == normalize_sentence(text)


def test_words_in_other_letters_than_the_alphabets_are_no_transcript() -> None:
    assert RUSSIAN.spoken("Привет, МИР!") == "привет мир"
    with pytest.raises(
        ValueError, match=r"^its transcript 'Привет, world' has d l o r w, not in the alphabet"
    ):
        RUSSIAN.spoken("Привет, world")
    with pytest.raises(ValueError, match="has digits"):
        RUSSIAN.spoken("в ५ часов")
    with pytest.raises(ValueError, match="contains no word"):
        RUSSIAN.spoken("—")
    with pytest.raises(ValueError, match="wrong encoding"):
        UNICODE.spoken("Stra\ufffde")
    assert UNICODE.spoken("Привет, world") == "привет world"


def test_an_alphabet_may_be_written_in_any_form() -> None:
    assert Normalizer("unicode", "a e e\u0301").foreign("é a") == []
    assert Normalizer("unicode", "a e").foreign("é a'") == ["'", "é"]


def test_names() -> None:
    assert (ENGLISH.name, TURKIC.name, RUSSIAN.name) == ("english", "turkic", "unicode with 33 letters")
    assert "'" in ENGLISH.letters and not UNICODE.letters and len(RUSSIAN.letters) == 33


def test_a_folder_remembers_its_normalizer(tmp_path: Path) -> None:
    assert normalizer_in(tmp_path) == ENGLISH
    RUSSIAN.save(tmp_path)
    assert normalizer_in(tmp_path) == RUSSIAN
    ENGLISH.save(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text", ["", "- x", "normalizer: klingon\nalphabet: ''", "normalizer: unicode", "\t{"]
)
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / LANGUAGE_FILE).write_text(text)
    with pytest.raises(UserError, match=r"language\.yaml names no normalizer"):
        normalizer_in(tmp_path)


def test_settings() -> None:
    settings = load_settings(None, ["language.normalizer=unicode", "language.alphabet=aäbc yes"])
    assert normalizer_of(settings.language) == Normalizer("unicode", "aäbc yes")
    assert normalizer_of(LanguageSettings()) == ENGLISH
    with pytest.raises(UserError, match="the alphabet 'aÄ' has capitals: use lower-case letters"):
        normalizer_of(LanguageSettings("unicode", "aÄ"))
    with pytest.raises(UserError, match="normalizer"):
        load_settings(None, ["language.normalizer=german"])


@pytest.mark.parametrize(
    "sentences",
    [
        ["यह एक वाक्य है।", "दूसरा यहाँ है।", "क्यों?"],
        ["كيف حالك؟", "بخير."],
        ["Er kam um acht. bzw. später.", "Dann ging er."],
    ],
)
def test_sentences_end_with_the_stops_of_other_scripts(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences)) == sentences


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "it's a naïve plan of the café at the corner, and then, well, " + "so on and so forth " * 20,
            "english",
        ),
        ("die größere straße führt zurück", "unicode"),
        (unicodedata.normalize("NFD", "die größere straße führt zurück"), "unicode"),
        ("ısparta'nın ışıkları", "turkic"),
        ("это другой язык", "unicode"),
        ("€ % ° §", "english"),
        ("", "english"),
    ],
)
def test_the_normalizer_that_suits_a_text(text: str, kind: str) -> None:
    assert kind_for(Counter(text.replace(" ", ""))) == kind
