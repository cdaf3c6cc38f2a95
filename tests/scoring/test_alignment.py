"""Alignments and confusions, against hand counts and jiwer's totals."""

from typing import Any

import jiwer
import pytest
from hypothesis import given
from hypothesis import strategies as st

from priormatch.scoring.alignment import KINDS, AlignedWord, align, confusions, misheard, most_frequent, total
from priormatch.scoring.error_rates import word_errors
from priormatch.scoring.transcripts import Transcript

SENTENCES = st.lists(st.sampled_from(["a", "b", "ab", "été", "日本"]), max_size=6).map(" ".join)


@pytest.mark.parametrize(
    ("reference", "hypothesis", "kinds"),
    [
        ("at nine", "at nine", ["equal", "equal"]),
        ("at nine", "at", ["equal", "delete"]),
        ("at nine", "", ["delete", "delete"]),
        ("nine", "at nine", ["insert", "equal"]),
        ("at nine", "at ten", ["equal", "substitute"]),
    ],
)
def test_alignment_by_hand(reference: Any, hypothesis: Any, kinds: list[str]) -> None:
    assert [each.kind for each in align(reference, hypothesis)] == kinds


@given(SENTENCES.filter(bool), SENTENCES)
def test_an_alignment_holds_all_words_and_as_many_errors_as_are_counted(
    reference: Any, hypothesis: Any
) -> None:
    words = align(reference, hypothesis)
    assert " ".join(each.reference for each in words if each.reference) == reference
    assert " ".join(each.hypothesis for each in words if each.hypothesis) == hypothesis
    assert sum(each.kind != "equal" for each in words) == word_errors([reference], [hypothesis]).errors[0]


def decoded(*pairs: Any) -> Any:
    return [
        Transcript(f"u{i}", hypothesis, 0, reference, []) for i, (reference, hypothesis) in enumerate(pairs)
    ]


FOUND = misheard(
    decoded(
        ("the cat sat", "the bat sat"),
        ("sit on the mat please", "sit on mat please now"),
        ("the cat", "the bat"),
        ("right", "right"),
        ("", "oh oh"),
        ("gone home", ""),
        ("", ""),
    )
)


def test_the_worst_come_first_and_the_right_ones_not_at_all() -> None:
    assert [(each.id, each.errors, each.length) for each in FOUND] == [
        ("u4", 2, 0),
        ("u5", 2, 2),
        ("u1", 2, 5),
        ("u2", 1, 2),
        ("u0", 1, 3),
    ]


def test_confusions_by_hand() -> None:
    counts = confusions(FOUND)
    assert counts == {
        AlignedWord("bat", "cat"): 2,
        AlignedWord("", "the"): 1,
        AlignedWord("now", ""): 1,
        AlignedWord("oh", ""): 2,
        AlignedWord("", "gone"): 1,
        AlignedWord("", "home"): 1,
    }
    assert [total(counts, kind) for kind in KINDS] == [2, 3, 3]
    assert most_frequent(counts, "insert", None) == [(AlignedWord("oh", ""), 2), (AlignedWord("now", ""), 1)]
    deleted = [word.reference for word, _ in most_frequent(counts, "delete", 2)]
    assert deleted == ["gone", "home"], "as frequent, so by the alphabet"


@given(st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=5))
def test_counts_add_up_to_those_of_jiwer(pairs: Any) -> None:
    references, hypotheses = map(list, zip(*pairs, strict=True))
    found = misheard(decoded(*pairs))
    counts, theirs = confusions(found), jiwer.process_words(references, hypotheses)
    assert [total(counts, kind) for kind in KINDS] == [
        theirs.substitutions,
        theirs.deletions,
        theirs.insertions,
    ]
    assert sum(counts.values()) == sum(each.errors for each in found)
    by_id = {each.id: each.errors for each in found}
    errors = word_errors(references, hypotheses).errors.tolist()
    assert [by_id.get(f"u{i}", 0) for i in range(len(pairs))] == errors
