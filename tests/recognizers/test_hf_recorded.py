"""Searches of Hugging Face decoders in recorded parts find what the plain search finds."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from narrowing import of_type
from torch import Tensor

from priormatch.config import PretrainedSettings
from priormatch.data.batches import Batch
from priormatch.decoding.beam import Beam
from priormatch.kernels import recorded
from priormatch.recognizers import hf_recognizer
from priormatch.recognizers.hf_recognizer import HuggingFaceRecognizer, ProposalsInPrecision
from priormatch.recognizers.hf_recorded import CastLinears

Folder = Callable[[str], Path]


def tensors_in(value: Any) -> Iterator[Tensor]:
    """All tensors in tuples, lists, and a cache of transformers, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from tensors_in(each)
    elif hasattr(value, "cross_attention_cache"):
        for layer in value.cross_attention_cache.layers:
            yield from (layer.keys, layer.values)


class CalledAgain:
    """What a recording does, without a GPU: results come to where those of the first call were."""

    made = 0

    def __init__(self, function: Callable[[], Any]) -> None:
        function()  # the warm-up
        self.function, self.result = function, function()
        CalledAgain.made += 1

    def __call__(self) -> Any:
        for kept, new in zip(tensors_in(self.result), [*tensors_in(self.function())], strict=True):
            kept.copy_(new)
        return self.result


@pytest.fixture
def whisper(hf_folder: Folder) -> HuggingFaceRecognizer:
    settings = PretrainedSettings(language="en")
    model = HuggingFaceRecognizer.load(hf_folder("whisper"), settings=settings)
    return model.requires_grad_(False)


def batches(count: int) -> list[Batch]:
    torch.manual_seed(0)
    samples = torch.tensor([[24_000, 9000], [32_000, 16_000], [8000, 31_000]])[:count]
    return [
        Batch.of_audio(0.1 * torch.randn(2, 32_000) * (1 + turn), each) for turn, each in enumerate(samples)
    ]


def same(found: Beam, expected: Beam, atol: float = 1e-4) -> None:
    assert torch.equal(found.classes, expected.classes)
    assert torch.equal(found.lengths, expected.lengths)
    assert torch.equal(found.ended, expected.ended)
    torch.testing.assert_close(found.scores, expected.scores, atol=atol, rtol=1e-4 if atol else 0)


@pytest.mark.parametrize("k", [1, 4])
def test_parts_of_a_search_follow_each_other(
    whisper: HuggingFaceRecognizer, monkeypatch: pytest.MonkeyPatch, k: int
) -> None:
    monkeypatch.setattr(recorded, "Recording", CalledAgain)
    monkeypatch.setattr(hf_recognizer, "has_kernels", lambda device: True)
    CalledAgain.made = 0
    proposals, given = ProposalsInPrecision(whisper), batches(3)
    found = [proposals.propose(batch, k) for batch in (*given, given[0])]
    assert proposals.searches.works
    assert 0 < CalledAgain.made <= whisper.settings.longest_output // 8 + 1
    for beam, batch in zip(found, (*given, given[0]), strict=True):
        same(beam, whisper.propose(batch, k))
    assert not torch.equal(found[0].scores, found[2].scores)
    assert torch.equal(found[0].classes, found[3].classes)


def test_few_numbers_of_rows_are_recorded(
    whisper: HuggingFaceRecognizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "Recording", CalledAgain)
    monkeypatch.setattr(hf_recognizer, "has_kernels", lambda device: True)
    proposals, samples = ProposalsInPrecision(whisper), torch.tensor([9000, 32_000, 20_000, 16_000])
    waveforms = 0.1 * torch.randn(4, 32_000, generator=torch.Generator().manual_seed(1))
    for rows in (3, 4):
        batch = Batch.of_audio(waveforms[:rows], samples[:rows])
        same(proposals.propose(batch, 2), whisper.propose(batch, 2))
    assert len(proposals.searches.known) == 1


def test_weights_cast_ahead_give_the_same_to_the_bit(
    whisper: HuggingFaceRecognizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "Recording", CalledAgain)
    monkeypatch.setattr(hf_recognizer, "has_kernels", lambda device: True)
    proposals, (batch,) = ProposalsInPrecision(whisper), batches(1)
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16):
            same(proposals.propose(batch, 4), whisper.propose(batch, 4), atol=0)
        assert of_type(CastLinears, proposals.searches.cast).own[0].dtype == torch.bfloat16
        for each in whisper.parameters():
            each.mul_(1.03)  # as a new proposal changes them


def test_a_search_that_cannot_be_recorded_is_made_without(
    whisper: HuggingFaceRecognizer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(function: Callable[[], Any]) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(recorded, "Recording", fails)
    monkeypatch.setattr(hf_recognizer, "has_kernels", lambda device: True)
    proposals, given = ProposalsInPrecision(whisper), batches(2)
    for batch in given:
        same(proposals.propose(batch, 4), whisper.propose(batch, 4))
    told = capsys.readouterr()
    assert (told.out + told.err).count("WhisperForConditionalGeneration is not recorded: operation") == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_recorded_searches_on_a_gpu_are_the_plain_ones(
    whisper: HuggingFaceRecognizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    model = whisper.to(torch.device("cuda"))
    proposals = of_type(ProposalsInPrecision, model.recorded())
    for batch in (*batches(3), batches(1)[0]):
        moved = batch.to(torch.device("cuda"))
        found = proposals.propose(moved, 4)
        assert proposals.searches.works
        monkeypatch.setattr(hf_recognizer, "has_kernels", lambda device: False)
        same(found, proposals.propose(moved, 4), atol=1e-2)
        monkeypatch.undo()
