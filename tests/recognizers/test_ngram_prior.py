"""The n-gram prior: scores of hypotheses by their text, and folders of it, whole, damaged and hostile."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from slow_ngram import kneser_ney, log_p
from torch import Tensor

from priormatch.data.normalizer import Normalizer
from priormatch.data.tokenizer import Tokenizer
from priormatch.decoding.beam import Hypotheses
from priormatch.errors import UserError
from priormatch.models.arpa import write_arpa
from priormatch.models.kneser_ney import estimate
from priormatch.recognizers import ngram_prior
from priormatch.recognizers.load import load_model, load_prior
from priormatch.recognizers.ngram_prior import NgramPrior, export_arpa
from priormatch.recognizers.perplexity import likelihoods, perplexity
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer

ORDER = 3


@pytest.fixture
def prior(tiny_sentences: list[str]) -> NgramPrior:
    return NgramPrior(estimate(tiny_sentences, ORDER)[0])


@pytest.fixture
def folder(prior: NgramPrior, tmp_path: Path) -> Path:
    prior.save(tmp_path / "prior")
    return tmp_path / "prior"


def refusal(load: Callable[[Path], object], folder: Path) -> str:
    with pytest.raises(UserError) as refused:
        load(folder)
    return str(refused.value)


def test_scores_are_sums_of_the_log_probabilities_of_words(
    prior: NgramPrior, tiny_sentences: list[str], tiny_tokenizer: Tokenizer
) -> None:
    model = kneser_ney(tiny_sentences, ORDER)
    beams = [["monday at nine", "at nine", ""], ["meeting with doctor", "ten", "monday monday monday"]]
    hypotheses = Hypotheses.of_texts(beams, tiny_tokenizer)
    scores = prior.score(hypotheses)
    assert scores.dtype == torch.float32
    expected = [[log_p(*model, ORDER, text) for text in beam] for beam in beams]
    np.testing.assert_allclose(scores.numpy(), expected, rtol=1e-5)
    contexts = ["doctor at", ""]
    after = [
        [log_p(*model, ORDER, text, context) for text in beam]
        for beam, context in zip(beams, contexts, strict=True)
    ]
    np.testing.assert_allclose(prior.score(hypotheses, contexts).numpy(), after, rtol=1e-5)
    assert not np.allclose(expected[0], after[0]) and np.allclose(expected[1], after[1])


def test_where_there_is_no_hypothesis_any_finite_number_is(
    prior: NgramPrior, tiny_tokenizer: Tokenizer
) -> None:
    given = Hypotheses.of_texts([["monday", "ten"]], tiny_tokenizer)
    labels = given.labels.clone()
    labels[0, 1] = tiny_tokenizer.eos
    scores = prior.score(Hypotheses(labels, torch.tensor([[2, 0]]), tiny_tokenizer))
    assert scores.isfinite().all() and scores[0, 0] == prior.score(given)[0, 0]


def test_texts_and_contexts_are_normalized_like_the_training_text() -> None:
    prior = NgramPrior(estimate(["ısı var", "ışık"], 2)[0], Normalizer("turkic"))
    plain, written, other = prior.score_texts(["ısı var", "ISI, var!", "isi var"]).tolist()
    assert plain == written > other
    assert prior.score_texts(["var"], ["Isı..."])[0] == prior.score_texts(["var"], ["ısı"])[0]


def test_centered_scores_subtract_what_each_word_was_expected_to_have(
    prior: NgramPrior, tiny_tokenizer: Tokenizer
) -> None:
    hypotheses = Hypotheses.of_texts([["monday at nine", ""]], tiny_tokenizer)
    centered, plain = prior.score_centered(hypotheses), prior.score(hypotheses)
    pairs = [("", text) for text in hypotheses.texts[0]]
    np.testing.assert_allclose(centered[0].numpy(), prior.model.score(pairs, centered=True), rtol=1e-6)
    assert (centered > plain).all()


def test_what_a_call_scored_is_not_computed_again(prior: NgramPrior, monkeypatch: pytest.MonkeyPatch) -> None:
    first = prior.score_texts(["monday", "ten", "monday"])
    monkeypatch.setattr(prior.model, "score", None)
    assert torch.equal(prior.score_texts(["ten", "monday"]), first[[1, 2]])


def test_perplexity_counts_words_and_the_end(prior: NgramPrior) -> None:
    texts = ["monday at nine", "ten", "ten"]
    found = likelihoods(prior, texts)
    assert [found[text][1] for text in texts] == [4, 2, 2]
    total = float(prior.score_texts(texts).sum())
    assert perplexity(found, texts) == pytest.approx(math.exp(-total / 8))


def test_a_prior_without_scores_of_texts_has_no_perplexity() -> None:
    class Silent:
        def score(self, hypotheses: Hypotheses, context: object = None) -> Tensor:
            return torch.zeros(hypotheses.lengths.shape)

    with pytest.raises(UserError, match="Silent has none"):
        likelihoods(Silent(), ["monday"])


@pytest.mark.parametrize("normalizer", [Normalizer(), Normalizer("unicode", "abcdefghijklmnopqrstuvwxyz")])
def test_a_saved_prior_scores_the_same(prior: NgramPrior, tmp_path: Path, normalizer: Normalizer) -> None:
    NgramPrior(prior.model, normalizer).save(tmp_path)
    for load in (NgramPrior.load, load_prior, load_model):
        again = load(tmp_path)
        assert isinstance(again, NgramPrior) and again.normalizer == normalizer
        texts = ["monday at nine", "unheard ten", ""]
        assert torch.equal(again.score_texts(texts), prior.score_texts(texts))
        assert again.model.words == prior.model.words and again.model.order == ORDER


def test_the_same_prior_is_written_to_the_same_bytes(folder: Path, prior: NgramPrior, tmp_path: Path) -> None:
    NgramPrior.load(folder).save(tmp_path / "again")
    for name in ("model.safetensors", "model.yaml"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def test_a_prior_of_single_words_is_saved_too(tmp_path: Path) -> None:
    prior = NgramPrior(estimate(["monday at nine", "ten"], 1)[0])
    prior.save(tmp_path)
    assert torch.equal(NgramPrior.load(tmp_path).score_texts(["ten at"]), prior.score_texts(["ten at"]))


def test_arpa_files_are_priors(folder: Path, prior: NgramPrior, tmp_path: Path) -> None:
    file = export_arpa(folder, tmp_path / "exported")
    assert file.name == "lm.arpa"
    texts = ["monday at nine", "unheard"]
    again = load_prior(file)
    assert isinstance(again, NgramPrior)
    assert torch.equal(again.score_texts(texts), prior.score_texts(texts))
    with pytest.raises(UserError, match=r"no.arpa cannot be read"):
        load_prior(tmp_path / "no.arpa")


def test_the_prior_of_a_run_is_proposed_whatever_its_kind(folder: Path, tmp_path: Path) -> None:
    assert refusal(load_prior, tmp_path).endswith(f"give {folder}")
    assert "holds a ngram, not a recognizer" in refusal(SpeechRecognizer.load, folder)
    assert "holds a ngram, not a prior" in refusal(ConvPrior.load, folder)


@pytest.mark.parametrize("name", ["model.safetensors", "model.yaml"])
@pytest.mark.parametrize("place", [0.1, 0.5, 0.99])
def test_a_flipped_bit_is_found(folder: Path, name: str, place: float) -> None:
    content = bytearray((folder / name).read_bytes())
    content[int(place * len(content))] ^= 4
    (folder / name).write_bytes(content)
    assert str(folder) in refusal(NgramPrior.load, folder)


def test_a_normalizer_that_is_gone_is_noticed(prior: NgramPrior, tmp_path: Path) -> None:
    NgramPrior(prior.model, Normalizer("turkic")).save(tmp_path)
    (tmp_path / "language.yaml").unlink()
    assert "language.yaml is not the one" in refusal(NgramPrior.load, tmp_path)


def test_infinite_values_are_not_written(prior: NgramPrior, tmp_path: Path) -> None:
    prior.model.log_p[1][0] = -np.inf
    assert "log_p.2 contains NaN or infinity" in refusal(prior.save, tmp_path)


def unsealed(folder: Path, name: str = "", changed: Tensor | None = None) -> None:
    """Replace or remove a tensor, and leave out the hashes, as a stranger would."""
    tensors = load_file(folder / "model.safetensors")
    tensors.pop(name, None)
    save_file(tensors | ({} if changed is None else {name: changed}), folder / "model.safetensors")


def of(text: str) -> Tensor:
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("keys.2", lambda keys: keys.flip(0), "not sorted"),
        ("keys.2", lambda keys: keys.clone().fill_(3), "not sorted"),
        ("keys.2", lambda keys: keys - 10**6, "n-grams that do not exist"),
        ("keys.3", lambda keys: keys + 2**60, "n-grams that do not exist"),
        ("keys.3", lambda keys: keys[:-1].clone(), "does not hold the n-grams of orders 1 to 3"),
        ("keys.3", lambda keys: keys.float(), "does not hold the n-grams of orders 1 to 3"),
        ("keys.3", lambda keys: None, "does not hold the n-grams of orders 1 to 3"),
        ("log_p.1", lambda log_p: log_p[:, None].clone(), "does not hold the n-grams"),
        ("log_p.1", lambda log_p: log_p.double(), "does not hold the n-grams"),
        ("log_p.2", lambda log_p: log_p + 100, "log10 p that is not"),
        ("log_p.2", lambda log_p: log_p.clone().fill_(math.nan), "NaN or infinity in log_p.2"),
        ("backoff.1", lambda backoff: backoff + 100, "backoff that is not"),
        ("backoff.2", lambda backoff: None, "does not hold the n-grams"),
        ("words", lambda words: of("<unk>\n<s>\n</s>\na"), "holds 4 words and 13 1-grams"),
        ("words", lambda words: words.clone().fill_(255), "not UTF-8"),
        ("words", lambda words: of("<unk>\n<s>\n</s>\na\na"), "a word twice"),
        ("words", lambda words: of("a\nb\nc"), "does not begin with"),
        ("words", lambda words: of(""), "does not hold the n-grams"),
        ("keys.4", lambda _: torch.zeros(3, dtype=torch.int64), "does not hold the n-grams"),
    ],
)  # fmt: skip
def test_tensors_of_a_stranger_are_checked(
    folder: Path, name: str, change: Callable[[Tensor], Tensor | None], message: str
) -> None:
    tensors = load_file(folder / "model.safetensors")
    unsealed(folder, name, change(tensors.get(name, torch.zeros(0))))
    with pytest.raises(UserError, match=message):
        NgramPrior.load(folder)


@pytest.mark.parametrize(
    "settings", [{"order": 0}, {"order": 10**9}, {"order": "x"}, {"order": None}, {"more": 1}, None, []]
)
def test_settings_of_a_stranger_are_checked(folder: Path, settings: object) -> None:
    unsealed(folder)
    (folder / "model.yaml").write_text(yaml.safe_dump({"kind": "ngram", "settings": settings}))
    assert "model.yaml cannot be used" in refusal(NgramPrior.load, folder)


def test_an_order_that_is_not_that_of_the_tensors_is_refused(folder: Path) -> None:
    unsealed(folder)
    (folder / "model.yaml").write_text(yaml.safe_dump({"kind": "ngram", "settings": {"order": 2}}))
    assert "does not hold the n-grams of orders 1 to 2" in refusal(NgramPrior.load, folder)


def test_nothing_is_read_before_the_shapes_fit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unsealed(folder, "words")
    monkeypatch.setattr(ngram_prior, "read_weights", None)
    assert "does not hold the n-grams" in refusal(NgramPrior.load, folder)


def test_a_prior_made_of_an_arpa_file_can_be_saved(prior: NgramPrior, tmp_path: Path) -> None:
    write_arpa(prior.model, tmp_path / "lm.arpa")
    NgramPrior.load(tmp_path / "lm.arpa").save(tmp_path / "folder")
    assert torch.equal(load_prior(tmp_path / "folder").score_texts(["ten"]), prior.score_texts(["ten"]))  # type: ignore[attr-defined]
