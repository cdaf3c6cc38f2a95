"""KenLM's models as priors: the scores of our own reader, and sentences where they cannot be loaded."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from priormatch.data.tokenizer import Tokenizer
from priormatch.decoding.beam import Hypotheses
from priormatch.errors import UserError
from priormatch.models.arpa import write_arpa
from priormatch.models.kneser_ney import estimate
from priormatch.recognizers.kenlm_prior import KenlmPrior, is_kenlm
from priormatch.recognizers.load import load_prior
from priormatch.recognizers.ngram_prior import NgramPrior

needs_kenlm = pytest.mark.skipif(importlib.util.find_spec("kenlm") is None, reason="needs kenlm")


@needs_kenlm
@pytest.mark.parametrize("order", [2, 4])
@pytest.mark.parametrize("capitals", [False, True])
def test_scores_are_those_of_our_own_reader(
    tmp_path: Path, tiny_sentences: list[str], tiny_tokenizer: Tokenizer, order: int, capitals: bool
) -> None:
    sentences = [each.upper() for each in tiny_sentences] if capitals else tiny_sentences
    write_arpa(estimate(sentences, order)[0], tmp_path / "lm.arpa")
    own, theirs = NgramPrior.load(tmp_path / "lm.arpa"), KenlmPrior.load(tmp_path / "lm.arpa")
    hypotheses = Hypotheses.of_texts([["monday at nine", "ten"], ["", "meeting at at"]], tiny_tokenizer)
    for context in (None, ["monday", "ten at nine with doctor"]):
        np.testing.assert_allclose(
            theirs.score(hypotheses, context), own.score(hypotheses, context), rtol=1e-5
        )
    texts = ["unheard monday", "Ten, at nine!"]
    np.testing.assert_allclose(theirs.score_texts(texts), own.score_texts(texts), rtol=1e-5)


@needs_kenlm
def test_a_damaged_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lm.binary").write_bytes(
        b"mmap lm http://kheafield.com/code format version 5\n\0 and nothing"
    )
    with pytest.raises(UserError, match=r"lm.binary cannot be read"):
        load_prior(tmp_path / "lm.binary")


def test_without_kenlm_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kenlm", None)
    (tmp_path / "lm.binary").touch()
    with pytest.raises(UserError, match=r"'priormatch\[kenlm\]', or provide an ARPA file"):
        load_prior(tmp_path / "lm.binary")


def test_folders_and_missing_files_are_not_models_of_kenlm(tmp_path: Path) -> None:
    (tmp_path / "run.bin").mkdir()
    assert not is_kenlm(tmp_path / "run.bin") and not is_kenlm(tmp_path / "lm.binary")
