"""n-gram models: scores against a word at a time, and what must hold of any such model."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_ngram import kneser_ney, log_p, probability

from priormatch.errors import UserError
from priormatch.models import kneser_ney as own
from priormatch.models.kneser_ney import FALLBACK, estimate
from priormatch.models.ngram import BEGIN, END, NgramModel

WORDS = st.lists(st.sampled_from(["a", "b", "c", "dog", "<s>", "ü"]), max_size=7).map(" ".join)
TEXTS = st.lists(WORDS, min_size=1, max_size=25).filter(lambda texts: any("dog" in each for each in texts))


def known(sentences: Sequence[str]) -> list[str]:
    """The sentences with unknown words in place of the marks."""
    return [each.replace("<s>", "<unk>") for each in sentences]


def some_text(sentences: int = 400) -> list[str]:
    """A text in which every discount can be estimated."""
    random = np.random.default_rng(0)
    words = [f"w{number}" for number in range(500)]
    share = 1 / np.arange(1, 501) ** 1.3
    return [
        " ".join(random.choice(words, random.integers(0, 9), p=share / share.sum())) for _ in range(sentences)
    ]


def p_of(model: NgramModel, words: str) -> float:
    """p of the last word after the others, which are the whole context."""
    tokens = np.array([{**model.numbers, "<s>": BEGIN, "</s>": END}[each] for each in words.split()])
    found, contexts = model.walk(tokens, np.array([0]))
    return float(10 ** model.backed_off(found, contexts)[-1])


def test_bigrams_of_two_sentences_are_those_computed_by_hand() -> None:
    model, fallen_back = estimate(["a b", "a"], 2)
    assert fallen_back == [1, 2]  # there are no counts of 3
    # Different words before: a 1 (<s>), b 1 (a), </s> 2 (b, a). Discounts .5, .5, 1 of a sum of 4 leave 2 / 4, spread
    # over a, b, </s> and <unk>.
    unigrams = {"a": 0.5 / 4 + 0.125, "b": 0.5 / 4 + 0.125, "</s>": 1 / 4 + 0.125, "<unk>": 0.125}
    assert {word: p_of(model, word) for word in unigrams} == pytest.approx(unigrams)
    # After a: b once and </s> once, so (1 - .5) / 2 each, and .5 is left.
    assert p_of(model, "a b") == pytest.approx(0.25 + 0.5 * 0.25)
    assert p_of(model, "a </s>") == pytest.approx(0.25 + 0.5 * 0.375)
    assert p_of(model, "a a") == pytest.approx(0.5 * 0.25)
    # At the beginning: a twice, so (2 - 1) / 2, and .5 is left.
    assert p_of(model, "<s> a") == pytest.approx(0.5 + 0.5 * 0.25)
    assert p_of(model, "<s> b") == pytest.approx(0.5 * 0.25)
    # After b only </s>, once.
    assert p_of(model, "b </s>") == pytest.approx(0.5 + 0.5 * 0.375)
    expected = [math.log(0.625 * 0.375 * 0.6875), math.log(0.625 * 0.4375)]
    assert model.score([("", "a b"), ("", "a")]) == pytest.approx(expected)


def test_discounts_follow_from_how_often_counts_occur() -> None:
    counts = np.repeat([1, 2, 3, 4, 7], [10, 5, 4, 3, 9])
    share = 10 / (10 + 2 * 5)
    expected = (1 - 2 * share * 5 / 10, 2 - 3 * share * 4 / 5, 3 - 4 * share * 3 / 4)
    assert own.discounts_of(counts) == pytest.approx(expected)


@pytest.mark.parametrize("counts", [[], [1, 1, 2], [2, 3, 4], [1, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3]])
def test_impossible_discounts_are_not_estimated(counts: list[int]) -> None:
    assert own.discounts_of(np.array(counts, int)) is None


@given(TEXTS, st.integers(1, 4))
@settings(max_examples=60)
def test_small_texts_have_the_probabilities_of_the_slow_way(sentences: list[str], order: int) -> None:
    model, _ = estimate(sentences, order)
    p, _ = kneser_ney(known(sentences), model.order)
    assert {len(gram) for gram in p} == set(range(1, model.order + 1))
    assert model.ngrams == len(p) + 1  # and the beginning
    for gram, value in p.items():
        assert p_of(model, " ".join(gram)) == pytest.approx(value, rel=1e-5), gram


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_estimated_discounts_and_scores_are_those_of_the_slow_way(order: int) -> None:
    sentences = some_text()
    model, fallen_back = estimate(iter(sentences), order)
    assert fallen_back == []
    p, backoff = kneser_ney(sentences, order)
    texts = [*some_text(20)[:12], "", "w1 unheard w2 w1", "unheard", "w1 w1 w1 w1 w1 w1", "<s> w1 </s>"]
    pairs = list(itertools.product(["", "w1", "w5 w1 w2 w3 w0 w1", "unheard w3"], texts))
    slow = [
        log_p(p, backoff, order, text.replace("<s>", "?").replace("</s>", "?"), before)
        for before, text in pairs
    ]
    np.testing.assert_allclose(model.score(pairs), slow, rtol=1e-5)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_probabilities_after_every_context_sum_to_one(order: int) -> None:
    model, _ = estimate(some_text(60), order)
    p = [word for word in model.words if word != "<s>"]
    for context in ("", "<s>", "w0", "<s> w0", "w0 w1", "w1 w0 w2", "w59", "<s> w59 w59", "<unk> w1"):
        assert sum(p_of(model, f"{context} {word}") for word in p) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_expectations_are_sums_over_all_words(order: int) -> None:
    sentences = some_text(60)
    model, _ = estimate(sentences, order)
    p, backoff = kneser_ney(sentences, order)
    words = [word for word in model.words if word != "<s>"]
    texts = ["w0 w1 w0 w2", "w59 unheard w1", "", sentences[3]]
    for _ in range(2):  # computed, then known
        both = zip(texts, model.score([("", each) for each in texts]), strict=True)
        centered = model.score([("", each) for each in texts], centered=True)
        for (text, plain), value in zip(both, centered, strict=True):
            history = ["<s>", *(word if word in words else "<unk>" for word in text.split())]
            total = 0.0
            for end in range(1, len(history) + 1):
                context = tuple(history[max(end - order + 1, 0) : end]) if order > 1 else ()
                each = [probability(p, backoff, context, word) for word in words]
                total += sum(one * math.log(one) for one in each)
            assert value == pytest.approx(plain - total, rel=1e-4, abs=1e-4)


def test_a_score_does_not_depend_on_the_other_texts() -> None:
    model, _ = estimate(some_text(), 3)
    pairs = [("", "w1 w2"), ("w9 w1", "w3"), ("", ""), ("", "w1 w2")]
    together = model.score(pairs)
    assert together[0] == together[3]
    np.testing.assert_array_equal(together, [model.score([pair])[0] for pair in pairs])
    assert model.score([]).shape == (0,)


def test_the_order_is_at_most_that_of_the_longest_sentence() -> None:
    model, _ = estimate(["a", "b", ""], 5)
    assert model.order == 3 and model.keys[2].tolist() and np.isfinite(model.score([("", "a b c")])).all()


@pytest.mark.parametrize("sentences", [[], ["", " "], ["<s> </s>"]])
def test_a_text_without_words_is_refused(sentences: list[str]) -> None:
    with pytest.raises(UserError, match="no words"):
        estimate(sentences, 3)


def test_fallback_discounts_are_those_of_small_counts() -> None:
    assert FALLBACK == (0.5, 1.0, 1.5) and own.discounts_of(np.array([1])) is None
