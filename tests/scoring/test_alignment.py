"""Words that were heard beside those that were said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from priormatch.scoring.alignment import align
from priormatch.scoring.error_rates import word_errors


@pytest.mark.parametrize(
    ("said", "heard", "kinds"),
    [
        ("at nine", "at nine", ["equal", "equal"]),
        ("at nine", "at", ["equal", "delete"]),
        ("at nine", "", ["delete", "delete"]),
        ("nine", "at nine", ["insert", "equal"]),
        ("at nine", "at ten", ["equal", "substitute"]),
    ],
)
def test_alignment_by_hand(said, heard, kinds):
    assert [each.kind for each in align(said, heard)] == kinds


SENTENCES = st.lists(st.sampled_from(["at", "nine", "ten"]), max_size=6).map(" ".join)


@given(SENTENCES.filter(bool), SENTENCES)
def test_an_alignment_holds_all_words_and_as_many_errors_as_are_counted(said, heard):
    words = align(said, heard)
    assert " ".join(each.reference for each in words if each.reference) == said
    assert " ".join(each.hypothesis for each in words if each.hypothesis) == heard
    assert sum(each.kind != "equal" for each in words) == word_errors([said], [heard]).errors[0]
