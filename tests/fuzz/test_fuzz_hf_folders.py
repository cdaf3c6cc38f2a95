"""Hostile and damaged folders of Hugging Face language models: each is refused in one sentence or read."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from guard import fuzzed, survives
from hf_models import tiny_gpt2, tiny_llama
from hypothesis import given
from hypothesis import strategies as st
from test_fuzz_model_files import changed, contents, holding, odd

from priormatch.recognizers.hf_prior import HuggingFacePrior

pytestmark = pytest.mark.slow
FILES = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "model.safetensors",
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("language-models")
    return [tiny_gpt2(folder / "gpt2"), tiny_llama(folder / "llama")]


def score(folder: Path) -> list[float]:
    prior = HuggingFacePrior.load(folder)
    assert prior.cannot_write("ab") is not None
    return prior.score_texts(["monday at nine", "", "x" * 300]).tolist()


@given(st.sampled_from([0, 1]), st.sampled_from(FILES), contents)
@fuzzed
def test_files(models: list[Path], which: int, name: str, change: Any) -> None:
    file = models[which] / name
    with holding(file, changed(file.read_bytes(), change)):
        survives(score, models[which])


@given(
    st.sampled_from([0, 1]), st.sampled_from(FILES[:4]), st.lists(st.tuples(st.floats(0, 1), odd), max_size=2)
)
@fuzzed
def test_entries(models: list[Path], which: int, name: str, changes: Any) -> None:
    file = models[which] / name
    tree = json.loads(file.read_text())
    for share, value in changes:
        places = entries(tree)
        parent, key = places[int(share * (len(places) - 1))]
        parent[key] = copy.deepcopy(value)  # it may be changed itself
    with holding(file, json.dumps(tree).encode()):
        survives(score, models[which])


def entries(tree: Any) -> list[tuple[Any, Any]]:
    """The places of all values in a JSON value, those of objects before the many of lists."""
    keys = [*tree] if isinstance(tree, dict) else [*range(len(tree))][:20] if isinstance(tree, list) else []
    found = [(tree, key) for key in keys]
    for key in keys:
        found += entries(tree[key])
    return found
