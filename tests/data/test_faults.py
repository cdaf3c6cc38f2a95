"""Bad audio is found and named for what it is; sound audio is not accused."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from lhotse import MonoCut
from narrowing import present
from tiny_language import speak

from priormatch.data.audio import open_recording
from priormatch.data.faults import fault_of
from priormatch.data.manifest import utterance
from priormatch.data.waveforms import read_samples

SPEECH = speak("monday at ten with doctor")  # a second
FORMATS = ["wav", "flac", "mp3", "ogg"]
HISS = np.random.default_rng(0).normal(0, 0.003, 16_000)


@pytest.fixture(params=FORMATS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"a.{request.param}"


def cut_of(path: Path, samples: np.ndarray = SPEECH, rate: int = 16_000) -> MonoCut:
    """Write a file and describe it as a cut."""
    soundfile.write(path, samples, rate)
    return utterance("a", open_recording(path, "a", decode=True), "monday at ten", None)


def kind_of(cut: MonoCut) -> str | None:
    fault = fault_of(cut)
    return fault and fault.kind


@pytest.mark.parametrize("rate", [8000, 16_000, 44_100])
def test_sound_audio_has_no_fault(path: Path, rate: int) -> None:
    assert fault_of(cut_of(path, speak("monday at ten", rate), rate)) is None
    assert fault_of(cut_of(path, np.stack([SPEECH, SPEECH], 1))) is None, "in two channels"


def test_faint_speech_and_loud_speech_have_no_fault(path: Path) -> None:
    assert fault_of(cut_of(path, np.pad(0.01 * SPEECH, 8000))) is None
    assert fault_of(cut_of(path, 3 * SPEECH)) is None


@pytest.mark.parametrize("samples", [np.zeros(16_000), HISS], ids=["zero", "hiss"])
def test_silence_is_found(path: Path, samples: np.ndarray) -> None:
    assert kind_of(cut_of(path, samples)) == "silent"


def test_an_offset_without_sound_is_silence(tmp_path: Path) -> None:
    assert kind_of(cut_of(tmp_path / "a.wav", np.full(16_000, 0.3))) == "silent"


def test_clipping_is_found(path: Path) -> None:
    cut = cut_of(path, np.clip(20 * SPEECH, -1, 1))
    assert present(fault_of(cut)).kind == "clipped"
    assert present(fault_of(cut)).reason.endswith("% of its samples are at full scale")


def test_floats_above_full_scale_are_not_clipped(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, 20 * SPEECH, 16_000, subtype="FLOAT")
    assert fault_of(utterance("a", open_recording(path, "a", decode=True), None, None)) is None


@pytest.mark.parametrize(
    ("samples", "rate"), [(SPEECH, 8000), (np.tile(SPEECH, 2), 16_000), (SPEECH[:9000], 16_000)]
)
def test_a_file_that_is_not_the_declared_one_is_found(path: Path, samples: np.ndarray, rate: int) -> None:
    cut = cut_of(path)
    soundfile.write(path, samples, rate)
    found = present(fault_of(cut))
    assert found.kind == "mis-declared"
    assert found.reason.startswith(f"{path} has {rate:,} Hz, 1 channel, ")
    assert found.reason.endswith("but its manifest says 16,000 Hz, 1 channel, 1.00 s")


def test_a_file_of_another_rate_with_as_many_samples_is_found(tmp_path: Path) -> None:
    """Training would read it at the wrong speed."""
    cut = cut_of(tmp_path / "a.flac")
    soundfile.write(tmp_path / "a.flac", SPEECH, 8000)
    assert len(read_samples(cut)) == len(SPEECH)
    assert kind_of(cut) == "mis-declared"


@pytest.mark.parametrize("suffix", ["wav", "flac", "mp3"])
def test_truncated_files_are_found(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    cut = cut_of(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert kind_of(cut) == "truncated"


@pytest.mark.parametrize(
    "spoil", [Path.unlink, lambda path: path.write_bytes(b""), lambda path: path.write_text("no audio")]
)
def test_what_cannot_be_decoded_is_found(path: Path, spoil: Callable[[Path], object]) -> None:
    cut = cut_of(path)
    spoil(path)
    assert kind_of(cut) == "undecodable"


def test_damage_in_the_middle_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.flac"
    cut = cut_of(path)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 1000] = bytes(1000)
    path.write_bytes(content)
    assert "damaged" in present(fault_of(cut)).reason


def test_changes_of_speed_and_rate_in_a_manifest_are_no_fault(tmp_path: Path) -> None:
    recording = present(cut_of(tmp_path / "a.wav", rate=32_000).recording)
    for changed in (recording, recording.perturb_speed(1.25)):
        assert fault_of(utterance("a", changed, "monday", None)) is None
