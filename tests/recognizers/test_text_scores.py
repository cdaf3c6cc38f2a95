"""Scores by text: each computed once, in order, and no more kept than allowed."""

from collections.abc import Sequence

import pytest
import torch

from priormatch.data.tokenizer import Tokenizer
from priormatch.decoding.beam import Hypotheses
from priormatch.recognizers.text_scores import CachedScores, TextInContext, score_texts_of


class Counted:
    """Scores a pair by the lengths of its texts, and remembers every call."""

    def __init__(self) -> None:
        self.calls: list[list[TextInContext]] = []

    def __call__(self, pairs: Sequence[TextInContext]) -> torch.Tensor:
        self.calls.append(list(pairs))
        return torch.tensor([float(100 * len(context) + len(text)) for context, text in pairs])


def test_a_pair_is_computed_once_and_every_place_gets_its_score() -> None:
    counted = Counted()
    scores = CachedScores(counted, 10)
    assert scores([("", "ab"), ("", "c"), ("", "ab"), ("x", "ab")]) == [2.0, 1.0, 2.0, 102.0]
    assert scores([("", "c"), ("", "new")]) == [1.0, 3.0]
    assert scores([("", "c")]) == [1.0]
    assert scores([]) == []
    assert counted.calls == [[("", "ab"), ("", "c"), ("x", "ab")], [("", "new")]]


def test_the_least_recently_used_scores_are_dropped() -> None:
    counted = Counted()
    scores = CachedScores(counted, 2)
    scores([("", "a"), ("", "b")])
    scores([("", "a")])
    scores([("", "c")])  # drops b, because a was used later
    assert list(scores.known) == [("", "a"), ("", "c")]
    scores([("", "a")])
    assert counted.calls == [[("", "a"), ("", "b")], [("", "c")]]


def test_a_call_with_more_pairs_than_are_kept_gets_all_scores() -> None:
    scores = CachedScores(Counted(), 2)
    scores([("", "ab")])
    assert scores([("", "x" * size) for size in range(5)] + [("", "ab")]) == [0.0, 1.0, 2.0, 3.0, 4.0, 2.0]
    assert len(scores.known) == 2


def test_a_failed_computation_keeps_what_is_known() -> None:
    def fails(pairs: Sequence[TextInContext]) -> list[float]:
        if ("", "bad") in pairs:
            raise ValueError("bad")
        return [1.0] * len(pairs)

    scores = CachedScores(fails, 5)
    scores([("", "a")])
    with pytest.raises(ValueError, match="bad"):
        scores([("", "a"), ("", "bad")])
    assert scores([("", "a")]) == [1.0] and list(scores.known) == [("", "a")]


def test_the_wrong_number_of_scores_is_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        CachedScores(lambda pairs: [1.0], 5)([("", "a"), ("", "b")])


def test_hypotheses_are_scored_by_text_with_their_context(tiny_tokenizer: Tokenizer) -> None:
    beams = [["bada", "ba"], ["da", "da"]]
    hypotheses = Hypotheses.of_texts(beams, tiny_tokenizer)
    lengths = torch.tensor([[len(text) for text in beam] for beam in hypotheses.texts])
    scores = score_texts_of(hypotheses, None, CachedScores(Counted(), 9))
    assert scores.dtype == torch.float32 and torch.equal(scores, lengths.float())
    after = score_texts_of(hypotheses, ["", "xy"], CachedScores(Counted(), 9))
    assert torch.equal(after, lengths + torch.tensor([[0.0], [200.0]]))
    with pytest.raises(ValueError, match="zip"):
        score_texts_of(hypotheses, ["x"], CachedScores(Counted(), 9))
