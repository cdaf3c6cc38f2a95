"""The benchmarks run; how fast, they tell themselves."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SMALL = {
    "any_recognizer": "--device cpu --small --repetitions 1",
    "beam_search": "--device cpu --utterances 2 --frames 20 --pieces 5 --classes 40 --size 16 --repetitions 1",
    "coverage": "--sets 2",
    "ctc": "--device cpu --utterances 2 --frames 20 --tokens 5 --classes 12 --repetitions 1",
    "growth": "--device cpu --repetitions 1 --steps 2",
    "large_corpus": "--utterances 400 --pieces 30000 --workers 1",
    "loader": "--device cpu --hours 0.01 --workers 1 --seconds 20 --batches 2",
    "prior": "--device cpu --repetitions 1",
    "step": "--device cpu --repetitions 1",
    "training": "--device cpu --updates 2 model.conformer.layers=1 model.conformer.width=16 model.conformer.kernel=3"
    " training.optimizer.warm_up=1 audio.workers=0 training.batch.seconds=4",
    "word_times": "--encoder tds --updates 1 --sentences 1",
}


def test_all_of_them_are_here() -> None:
    others = {"espeak_words", "made_models", "measure", "small_models"}
    assert SMALL.keys() == {each.stem for each in BENCHMARKS.glob("*.py")} - others


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_tells_its_figures(name: str, tiny_corpus: Callable[..., Path]) -> None:
    words = [sys.executable, str(BENCHMARKS / f"{name}.py"), *SMALL[name].split(), "--json"]
    if name == "training":
        words += ["--labeled", str(tiny_corpus(8)), "--validation", str(tiny_corpus(2, "validation"))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


@pytest.mark.slow
def test_a_peer_that_crashes_ends_only_its_own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    ctc = importlib.import_module("ctc")
    assert ctc.alone(sum, [1, 2]) == 3
    with pytest.raises(BrokenProcessPool):
        ctc.alone(os.abort)
