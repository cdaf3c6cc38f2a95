"""The examples of docs/extend.md, unchanged, through matching: on the CPU and, where there is one, on a GPU."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from doc_blocks import PYTHON, ROOT, Block, blocks

from priormatch.data.tokenizer import Tokenizer
from priormatch.pipeline import match as matching
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer

EXAMPLES = [each for each in blocks(ROOT / "docs/extend.md") if each.kind == PYTHON]
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture
def demo_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tiny_corpus: Callable[..., Path],
    tiny_sentences: list[str],
    tiny_tokenizer: Tokenizer,
    tiny_recognizer: SpeechRecognizer,
    tiny_prior: ConvPrior,
) -> Path:
    """What the examples read of a finished demo, with tiny untrained models."""
    run = tmp_path / "runs/demo"
    (run / "data").mkdir(parents=True)
    for name, count in (("labeled", 6), ("unlabeled", 6), ("validation-seen", 3)):
        tiny_corpus(count, name, transcribed=name != "unlabeled").rename(run / f"data/{name}.jsonl.gz")
    (run / "data/text.txt").write_text("\n".join(tiny_sentences))
    tiny_tokenizer.save(run / "tokenizer")
    tiny_recognizer.save(run / "supervised/model")
    tiny_prior.save(run / "prior/model")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(matching, "require_fit", lambda cer, most: None)  # they have not learned anything
    return tmp_path


def test_there_is_an_encoder_a_prior_and_a_target() -> None:
    assert ["def forward" in EXAMPLES[0].code, "def score" in EXAMPLES[1].code] == [True, True]
    assert len(EXAMPLES) == 3


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_an_example_runs_unchanged(
    example: Block, device: str, demo_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device == "cpu":
        for question in ("is_available", "is_initialized"):
            monkeypatch.setattr(torch.cuda, question, lambda: False)
    names: dict[str, object] = {}
    exec(compile(example.code, str(example), "exec"), names)
    if (matched := names.get("matched")) is not None:
        assert isinstance(matched, SpeechRecognizer)
        assert matched.device.type == device
