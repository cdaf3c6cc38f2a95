"""The prior's perplexity, by hand and against single sentences."""

import math

import pytest

from priormatch.recognizers import perplexity as module
from priormatch.recognizers.perplexity import likelihoods, perplexity
from priormatch.recognizers.prior import ConvPrior


def test_perplexity_by_hand() -> None:
    """Two pieces and an end at 1/2 each, and a lone end at 1/4: (2^3 · 4)^(1/4)."""
    scored = {"at ten": (-3 * math.log(2), 3), "": (-math.log(4), 1)}
    assert perplexity(scored, ["at ten", ""]) == pytest.approx(32 ** (1 / 4))
    assert perplexity(scored, ["at ten"]) == pytest.approx(2)
    assert perplexity(scored, ["at ten", "at ten", ""]) == pytest.approx(256 ** (1 / 7))
    assert math.isnan(perplexity(scored, []))


@pytest.mark.parametrize("pieces", [1, 30, 4096])
def test_batches_do_not_change_likelihoods(
    tiny_prior: ConvPrior, tiny_sentences: list[str], monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    monkeypatch.setattr(module, "BATCH_PIECES", pieces)
    texts = [*tiny_sentences[:12], "", tiny_sentences[0]]
    found = likelihoods(tiny_prior, texts)
    assert found.keys() == set(texts)
    for text, (log_p, count) in found.items():
        assert log_p == pytest.approx(float(tiny_prior.score_texts([text])[0]), abs=1e-4)
        assert count == len(tiny_prior.tokenizer.encode(text)) + 1


def test_a_prior_that_knows_nothing_is_as_perplexed_as_there_are_classes(
    tiny_prior: ConvPrior, tiny_sentences: list[str]
) -> None:
    gain = tiny_prior.lm.head.get_parameter("parametrizations.weight.original0")
    gain.data.zero_()  # all classes are as likely as another
    found = perplexity(likelihoods(tiny_prior, tiny_sentences[:5]), tiny_sentences[:5])
    assert found == pytest.approx(tiny_prior.tokenizer.classes)


def test_no_text_at_all(tiny_prior: ConvPrior) -> None:
    assert likelihoods(tiny_prior, []) == {}
