"""The exported recognizer under onnxruntime does what ours does, and the example in the documentation too."""

import json
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Literal

import numpy as np
import onnxruntime
import pytest
import soundfile
import torch
from doc_blocks import PYTHON, ROOT, runnable
from narrowing import of_type, present
from tiny_run import command

from priormatch.config import ConformerSettings, ModelSettings
from priormatch.data.batches import Batch
from priormatch.data.features import LogMel
from priormatch.data.tokenizer import Tokenizer
from priormatch.errors import UserError
from priormatch.models.tds import TDSEncoder
from priormatch.recognizers import export as exporting
from priormatch.recognizers.export import ENCODER, FACTS, STEP, LogMelByConvolution, check, export
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer

PAGE = ROOT / "docs" / "export.md"
LENGTHS = [16_000, 399, 7_777, 1]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Tokenizer) -> Path:
    """A folder with a recognizer and what `priormatch export` made of it."""
    home = tmp_path_factory.mktemp("export")
    settings = ModelSettings(n_mels=20, channels=[2, 3], blocks=[1, 0], kernel=5, size=16, longest_output=12)
    torch.manual_seed(31)
    model = SpeechRecognizer(settings, tiny_tokenizer)
    with torch.no_grad():
        present(model.decoder).output.weight *= 2  # opinions that differ from sound to sound, and ends
        of_type(TDSEncoder, model.encoder).head.weight *= 2
    model.save(home / "model")
    assert command("export", home / "model", "--out", home / "exported") == 0
    return home


@pytest.fixture
def model(home: Path) -> SpeechRecognizer:
    return SpeechRecognizer.load(home / "model")


def sounds() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [(0.1 * random.normal(size=length)).astype(np.float32) for length in LENGTHS]


def batch(filler: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    waveforms = torch.full((len(LENGTHS), 20_000), filler)
    for row, sound in zip(waveforms, sounds(), strict=True):
        row[: len(sound)] = torch.from_numpy(sound)
    return waveforms, torch.tensor(LENGTHS)


@pytest.mark.parametrize("samples", [[8_000, 560], [400, 399], [1, 0]])
def test_features_without_an_fft(samples: list[int]) -> None:
    features, waveforms, lengths = LogMel(40), 0.1 * torch.randn(2, max(samples)), torch.tensor(samples)
    wanted, frames = features(waveforms, lengths)
    found, counted = LogMelByConvolution(features)(waveforms, lengths)
    assert torch.equal(frames, counted)
    torch.testing.assert_close(found[:, : wanted.shape[1]], wanted, atol=2e-5, rtol=0)
    assert not found[:, int(frames.max()) :].any()


@torch.no_grad()
def test_log_probabilities_of_a_batch_of_different_lengths(home: Path, model: SpeechRecognizer) -> None:
    encoder, step = (onnxruntime.InferenceSession(home / "exported" / name) for name in (ENCODER, STEP))
    waveforms, samples = batch()
    labels = torch.randint(model.tokenizer.classes, (len(samples), 1, 6))
    decoder = present(model.decoder)
    remembered = decoder.memory(*model.encode(waveforms, samples))
    wanted = decoder(remembered, labels).log_softmax(dim=-1)[:, 0]
    for filler in (0.0, 0.7):  # what lies behind the end changes nothing
        heard = encoder.run(None, {"waveforms": batch(filler)[0].numpy(), "samples": samples.numpy()})
        memory = dict(zip(("keys", "values", "mask"), heard, strict=True))
        assert memory["mask"].sum(axis=1).tolist() == model.encode(waveforms, samples)[1].tolist()
        state = np.zeros((len(samples), 16), np.float32)
        previous = np.full(len(samples), model.tokenizer.classes)
        for position in range(labels.shape[2]):
            log_q, state = step.run(None, {**memory, "state": state, "previous": previous})
            np.testing.assert_allclose(log_q, wanted[:, position], atol=1e-4, rtol=0)
            previous = labels[:, 0, position].numpy()


def test_the_documented_search_finds_what_ours_finds(
    home: Path, model: SpeechRecognizer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = [each.code for each in runnable(PAGE) if each.kind == PYTHON]
    monkeypatch.chdir(home)
    soundfile.write("speech.wav", sounds()[0], 16_000, subtype="FLOAT")
    names: dict = {}
    exec(compile(example, str(PAGE), "exec"), names)
    beam = model.propose(Batch.of_audio(*batch()), 1)
    ours = [model.tokenizer.decode(row[0].tolist()) for row in beam.classes]
    assert names["transcribe"](sounds()) == ours
    assert capsys.readouterr().out == f"{ours[0]}\n"
    assert len(set(ours)) == 3  # the two without a frame sound alike
    assert beam.ended.any() and not beam.ended.all()


def test_pieces_are_written_in_the_order_of_classes(home: Path, model: SpeechRecognizer) -> None:
    lines = (home / "exported" / "pieces.txt").read_text(encoding="utf-8").split("\n")
    assert lines == [*model.tokenizer.pieces, ""]
    assert Tokenizer.load(home / "exported") == model.tokenizer


def test_a_folder_with_something_in_it_is_left_alone(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (home / "exported" / FACTS).stat().st_mtime_ns
    assert command("export", home / "model", "--out", home / "exported") == 2
    assert "exists: choose another --out, or pass --overwrite" in capsys.readouterr().err
    assert (home / "exported" / FACTS).stat().st_mtime_ns == before
    weights = home / "model" / "model.safetensors"
    assert command("export", home / "model", "--out", weights, "--overwrite") == 2
    assert "is a file, not a folder" in capsys.readouterr().err


def test_an_export_that_is_another_model_is_noticed(home: Path, model: SpeechRecognizer) -> None:
    assert check(model, home / "exported") < 1e-4
    with torch.no_grad():
        present(model.decoder).start.add_(0.1)
    with pytest.raises(UserError, match="do not use this export"):
        check(model, home / "exported")


def test_a_prior_is_refused(
    tiny_prior: ConvPrior, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_prior.save(tmp_path / "prior")
    assert command("export", tmp_path / "prior", "--out", tmp_path / "out") == 2
    assert "holds a prior, not a recognizer" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_without_the_libraries_a_word_on_how_to_get_them(
    model: SpeechRecognizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs onnx: install it with pip install 'priormatch\[export\]'"):
        exporting.export(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@torch.no_grad()
@pytest.mark.parametrize("encoder", ["tds", "conformer"])
def test_a_ctc_model_is_one_file_of_log_probabilities(
    encoder: Literal["tds", "conformer"],
    tiny_model_settings: ModelSettings,
    tiny_tokenizer: Tokenizer,
    tmp_path: Path,
) -> None:
    sizes = ConformerSettings(width=16, layers=1, heads=2, kernel=5)
    settings = replace(tiny_model_settings, kind="ctc", encoder=encoder, conformer=sizes)
    model = SpeechRecognizer(settings, tiny_tokenizer).eval()
    export(model, tmp_path)
    assert check(model, tmp_path) < 1e-4
    assert not (tmp_path / STEP).exists()
    facts = json.loads((tmp_path / FACTS).read_text())
    assert (facts["blank"], facts["end"], facts["frame_seconds"]) == (28, 28, 0.04)
    waveforms, samples = batch()
    log_q, frames = onnxruntime.InferenceSession(tmp_path / ENCODER).run(
        None, {"waveforms": waveforms.numpy(), "samples": samples.numpy()}
    )
    beam = model.propose(Batch.of_audio(waveforms, samples), 1)
    for row, count, classes in zip(log_q, frames, beam.classes[:, 0].tolist(), strict=True):
        path = [int(each) for each in row[:count].argmax(axis=1)]
        kept = [each for each, _ in groupby(path) if each != facts["blank"]]
        assert kept == [each for each in classes if each != facts["blank"]]
    bias = present(model.ctc).bias
    bias.add_(torch.randn_like(bias))
    with pytest.raises(UserError, match="do not use this export"):
        check(model, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("weight", "told"), [(0.0, False), (0.3, True)])
def test_an_export_without_the_ctc_output_that_decodes_is_told(
    weight: float,
    told: bool,
    tiny_model_settings: ModelSettings,
    tiny_tokenizer: Tokenizer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = replace(tiny_model_settings, kind="hybrid", ctc_weight=weight)
    SpeechRecognizer(settings, tiny_tokenizer).save(tmp_path / "model")
    assert command("export", tmp_path / "model", "--out", tmp_path / "out") == 0
    assert ("the exported model decodes by attention alone" in capsys.readouterr().err) == told
