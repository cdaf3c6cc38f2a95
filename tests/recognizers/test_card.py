"""Model cards: what is written is read back, and what somebody has changed is never written over."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from priormatch.recognizers.card import CARD, Card, parse, read_card, render, write_card

words = st.from_regex(r"[\w*`|#é][\w*`|#é .:-]{0,30}[\w*`|é]", fullmatch=True)
facts = st.dictionaries(words, words | st.integers() | st.lists(words, max_size=3), max_size=3)
cards = st.builds(Card, facts, words, words, st.dictionaries(words, words, max_size=3))


@given(cards)
def test_a_card_is_read_back_as_it_was_written(card: Card) -> None:
    assert parse(render(card)) == card


@pytest.mark.parametrize("value", ["calls---", "---", "a\n---\nb"])
def test_dashes_in_a_value_do_not_end_the_front_matter(value: str) -> None:
    card = Card({"datasets": [value], "license": value}, "one", "The first.", {"Use": "Load it."})
    assert parse(render(card)) == card


@given(cards, st.data())
def test_any_change_makes_it_somebody_elses(card: Card, data: st.DataObject) -> None:
    text = render(card)
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters(codec="utf-8").filter(lambda letter: letter != text[at]))
    assert parse(text[:at] + other + text[at + 1 :]) is None
    assert parse(text[:at] + text[at + 1 :]) is None
    assert parse(f"{text}more") is None


CARD_OF_ONE = Card({"tags": ["a"]}, "one", "The first.", {"Use": "Load it."})


def test_the_front_matter_is_what_the_hub_reads() -> None:
    _, front, body = render(CARD_OF_ONE).split("---\n")
    assert yaml.safe_load(front) == {"tags": ["a"]}
    assert body.startswith("\n# one\n\nThe first.\n\n## Use\n\nLoad it.\n\n<!-- written by priormatch")


@pytest.mark.parametrize("edited", [b"mine\n", b"", b"\xff\xfe", b"---\n---\n", b"---\ntags: [\n---\n# x\n"])
def test_a_card_of_somebody_else_stays(tmp_path: Path, edited: bytes) -> None:
    (tmp_path / CARD).write_bytes(edited)
    assert read_card(tmp_path) is None
    assert not write_card(tmp_path, CARD_OF_ONE)
    assert (tmp_path / CARD).read_bytes() == edited


def test_a_card_of_ours_is_renewed(tmp_path: Path) -> None:
    assert write_card(tmp_path, CARD_OF_ONE)
    other = Card({}, "two", "The second.", {})
    assert write_card(tmp_path, other)
    assert read_card(tmp_path) == other


def test_huggingface_takes_the_front_matter(tmp_path: Path) -> None:
    from huggingface_hub import ModelCard

    write_card(tmp_path, CARD_OF_ONE)
    assert ModelCard.load(tmp_path / CARD).data.tags == ["a"]
