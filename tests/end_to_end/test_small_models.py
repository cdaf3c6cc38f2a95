"""The experiment with small models of transformers runs, resumes, and writes its table."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_language import sentences

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "small_models.py"
SETTINGS = ["matching.max_proposal_cer=100000", "audio.workers=0", "training.validate_every=1"]


@pytest.mark.slow
def test_the_experiment_runs_and_resumes(tiny_corpus: Callable[..., Path], tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{each}\n" for each in sentences(300)))
    sets = {name: tiny_corpus(6, name) for name in ("labeled", "unlabeled", "validation", "report")}
    given = [word for name, path in sets.items() for word in (f"--{name}", str(path))]
    words = [sys.executable, str(SCRIPT), *given, "--text", str(text), "--out", str(tmp_path / "out")]
    words += ["--small", "--device", "cpu", "--made-updates", "2", "--updates", "1", "--batch-seconds", "8"]
    words += ["--batch-tokens", "200", "--priors", "gpt2,ngram", *SETTINGS]
    for resumed in (False, True):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert ("loss" in done.stdout + done.stderr) is not resumed
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    systems = {"supervised_start", "supervised", "pseudo_label", "topline", "gpt2", "ngram"}
    assert {kind: set(each["0"]["systems"]) for kind, each in results.items()} == {
        "whisper": systems,
        "wav2vec2": systems,
    }
    assert len((tmp_path / "out" / "table.md").read_text().splitlines()) == 2 + 2 * len(systems)
