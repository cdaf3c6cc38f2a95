"""ARPA files and folders of n-gram priors with anything in them score finite numbers, or are refused in a sentence."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from guard import fuzzed, survives
from hostile import damaged
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from priormatch.models.arpa import write_arpa
from priormatch.models.kneser_ney import estimate
from priormatch.recognizers.ngram_prior import NgramPrior

pytestmark = pytest.mark.slow
SENTENCES = ["the cat sat", "the dog sat down", "a dog", "ünï cat"]
TEXTS = ["the cat sat down", "unheard dog", ""]
LINES = [
    b"\\data\\",
    b"ngram 1=2",
    b"\\1-grams:",
    b"-1 <s> 0",
    b"-1 </s>",
    b"-0.5\ta\t1",
    b"\\2-grams:",
    b"\\end\\",
]
NUMBERS = [0, -1, 1, 7, 2**31, 2**62, -(2**63), 2**63 - 1]


def use(path: Path) -> None:
    """What verbs do with a prior."""
    prior = NgramPrior.load(path)
    for scores in (prior.score_texts(TEXTS), prior.score_texts(TEXTS, ["the", "a dog", "x"])):
        assert scores.isfinite().all()
    assert np.isfinite(prior.model.score([("", text) for text in TEXTS], centered=True)).all()


@pytest.fixture(scope="module")
def prior(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a prior, and the same n-grams as an ARPA file in it."""
    folder = tmp_path_factory.mktemp("ngrams")
    made = NgramPrior(estimate(SENTENCES, 3)[0])
    made.save(folder)
    write_arpa(made.model, folder / "lm.arpa")
    return folder


@fuzzed
@given(data=st.data(), packed=st.booleans())
def test_arpa_files(prior: Path, data: st.DataObject, packed: bool) -> None:
    valid = (prior / "lm.arpa").read_bytes()
    lines = st.lists(st.sampled_from(LINES) | st.binary(max_size=12), max_size=12).map(b"\n".join)
    content = data.draw(damaged(valid) | lines)
    path = prior / ("fuzzed.arpa.gz" if packed else "fuzzed.arpa")
    compressed = gzip.compress(content, 1)
    path.write_bytes((data.draw(damaged(compressed) | st.just(compressed))) if packed else content)
    survives(use, path)


@fuzzed
@given(data=st.data())
def test_folders(prior: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.getbasetemp() / "fuzzed"
    folder.mkdir(exist_ok=True)
    (folder / "model.yaml").write_bytes((prior / "model.yaml").read_bytes())
    tensors = load_file(prior / "model.safetensors")
    for name in data.draw(st.lists(st.sampled_from(sorted(tensors)), max_size=3)):
        values = tensors[name].copy()
        place = data.draw(st.integers(0, len(values) - 1))
        change = data.draw(st.sampled_from(["number", "bytes", "cut", "swap"]))
        if change == "number":
            number = data.draw(st.sampled_from(NUMBERS) | st.integers(-(2**63), 2**63 - 1))
            values[place] = number % 256 if values.dtype == np.uint8 else number
        elif change == "bytes":
            raw = data.draw(st.binary(min_size=values.itemsize, max_size=values.itemsize))
            values[place] = np.frombuffer(raw, values.dtype)[0]
        elif change == "cut":
            values = values[: place + 1].copy()
        else:
            values[[0, place]] = values[[place, 0]]
        tensors[name] = values
    save_file(tensors, folder / "model.safetensors")
    survives(use, folder)
