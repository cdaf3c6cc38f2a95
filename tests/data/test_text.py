import pytest
from hypothesis import given
from hypothesis import strategies as st

from priormatch.data.normalizer import ENGLISH
from priormatch.data.text import CONTRACTIONS, normalize_sentence, split_sentences

TRICKY = st.text(alphabet=st.sampled_from("abIS '’\"“.…!?,-—3tis\n\u00a0\u0130Σ"), max_size=60)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("“Don’t stop,” he said—3 times!", "don't stop he said times"),
        ("'Don't,' she'll say.", "don't she'll say"),
        ("'So 'tis,' quoth the dogs' friend o' 'John's'", "so 'tis quoth the dogs friend o' john's"),
        ("Wait...what? well-known; (a) [b] {c} #&*+=:", "wait what well known a b c"),
        ("will-o'-the-wisp, rock'n'roll, o'clock", "will o' the wisp rock'n'roll o'clock"),
        ("''em'' and goin'", "'em and goin'"),
        ("Café_au_lait costs $5/cup", "café_au_lait costs $/cup"),
        ("  \t' 12 '' -- \" ", ""),
    ],
)
def test_normalize_sentence(text: str, expected: str) -> None:
    assert normalize_sentence(text) == expected


@given(st.text() | TRICKY)
def test_normalizing_twice_changes_nothing(text: str) -> None:
    once = normalize_sentence(text)
    assert normalize_sentence(once) == once
    assert once == " ".join(once.split()) == once.lower()


def test_a_transcript_gives_the_words_spoken_or_the_reason_why_not() -> None:
    assert ENGLISH.spoken(" “At five,” he said.\n") == "at five he said"
    with pytest.raises(ValueError, match=r"^its transcript 'at 5 pm' has digits: write numbers as words$"):
        ENGLISH.spoken("at 5 pm\n")
    with pytest.raises(ValueError, match=r"^its transcript '\?!' contains no word$"):
        ENGLISH.spoken(" ?!")


@given(st.text() | TRICKY)
def test_a_transcript_without_digits_is_normalized_like_any_sentence(text: str) -> None:
    try:
        assert ENGLISH.spoken(text) == normalize_sentence(text) != ""
    except ValueError:
        assert any(letter.isdigit() for letter in text) or not normalize_sentence(text)


def test_contractions_survive_alone_and_in_quotes() -> None:
    for word in CONTRACTIONS:
        assert normalize_sentence(word) == normalize_sentence(f"'{word}'") == word


@pytest.mark.parametrize(
    "sentences",
    [
        ["Mr. J. R. Smith of St. Ives said, “Go!” and went.", "“Why?” asked I.", "Then he left."],
        ["It cost 3.50, e.g. at No. 5.", "No.", "It did not (at 4 p.m. or so)."],
        ["He paused... and went on.", "She waited...", "Nothing came."],
        ["'It is so.'", "He bowed; Well--Dr. Hall did.", "(Really?)", "Yes!"],
        ["mr. smith went to st. ives.", "it cost 3.50, e.g. at no. 5.", "no.", "it did not."],
        ["he paused... and went on.", '"he left."', "she stayed!", "so did i.", "why?"],
        ["WHO IS IT?", "IT IS MRS. HALL."],
        ["a tokenized line .", "spaced dots . . .", "and no stop"],
    ],
)
def test_split_sentences(sentences: list[str]) -> None:
    assert split_sentences("\n".join(sentences)) == sentences


@given(st.text() | TRICKY)
def test_splitting_loses_nothing(text: str) -> None:
    sentences = split_sentences(text)
    assert " ".join(sentences) == " ".join(text.split())
    assert all(sentences)


def test_a_stray_capital_does_not_make_a_lower_case_text_cased() -> None:
    assert len(split_sentences("X " + "he left it there. " * 50)) == 50
