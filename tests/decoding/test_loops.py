import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from priormatch.decoding.loops import LEAST, without_loop

WORDS = st.text("ab", min_size=1, max_size=5)


@pytest.mark.parametrize(
    ("broken_off", "told"),
    [
        ("my name is answered and my name is answered and my name is answ", "my name is answered and"),
        ("he said no no no no no no no no no no n", "he said no"),
        # The loop begins within a word, which stays whole.
        ("a sunday and a monday and a monday and a monday and a mond", "a sunday and a monday"),
        # The loop is said almost twice, and a little more than twice.
        ("so it goes on and on so it goes on and o", "so it goes on and on so it goes on and o"),
        ("so it goes on and on so it goes on and on s", "so it goes on and on"),
        ("東京都庁に行きました東京都庁に行きました東京都", "東京都庁に行きました"),
        # Too little is said again.
        ("and then again then again", "and then again then again"),
        ("", ""),
    ],
)
def test_one_round_of_a_loop_stays(broken_off: str, told: str) -> None:
    assert without_loop(broken_off) == told


@given(st.lists(WORDS, max_size=6), st.lists(WORDS, min_size=1, max_size=6), st.integers(3, 6), st.data())
def test_however_often_a_loop_goes_round_nothing_of_it_is_left_but_about_one_round(
    before: list[str], rounds: list[str], times: int, data: DataObject
) -> None:
    prefix, round_ = "".join(f"{word} " for word in before), " ".join(rounds) + " "
    whole = prefix + round_ * times
    text = whole[: len(whole) - data.draw(st.integers(0, len(round_) - 1))]
    told = without_loop(text)
    assert text.startswith(told)
    if len(round_) * (times - 2) >= LEAST:
        longest_word = max(map(len, [*before, *rounds]))
        assert len(told) <= len(prefix) + len(round_) + longest_word


@given(st.lists(st.integers(0, 99), max_size=40))
def test_what_says_nothing_twice_is_left_alone(numbers: list[int]) -> None:
    text = " ".join(f"{position}-{number}" for position, number in enumerate(numbers))
    assert without_loop(text) == text


@given(st.text("ab ", max_size=20), st.text("ab ", min_size=1, max_size=8), st.integers(1, 6))
def test_the_cut_is_where_the_longest_end_that_also_stands_earlier_begins(
    before: str, round_: str, times: int
) -> None:
    text = before + round_ * times
    ends = [
        count
        for period in range(1, len(text) // 2 + 1)
        for count in range(max(period, LEAST), len(text) - period + 1)
        if text[-count:] == text[-count - period : -period]
    ]
    cut = len(text) - max(ends, default=0)
    whole_word = not text[:cut].endswith(" ") and " " in text[cut:]
    more = text[cut:].split(" ")[0] if whole_word else ""
    assert without_loop(text) == (text[:cut] + more).rstrip()


def test_a_long_text_takes_no_longer_for_each_of_its_characters() -> None:
    begun = time.process_time()
    assert without_loop("a" * 30_000) == "a"
    assert time.process_time() - begun < 2, "seconds; it would take many if it were quadratic"
