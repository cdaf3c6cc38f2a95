"""Files and arrays become the same clips, whatever their rate and channels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from test_pauses import sound

from priormatch.data.audio import BadAudio
from priormatch.data.clips import Clip, file_levels, mixed, open_file, open_samples
from priormatch.data.pauses import Cutting
from priormatch.errors import UserError

TALK = ((1.0, 0.0), (2.0, 0.3), (0.8, 0.0), (3.0, 0.1), (1.2, 0.0))
CUTTING = Cutting()


def clips_of(samples: object, rate: int = 16_000) -> list[Clip]:
    return list(open_samples(samples, rate, CUTTING).clips)


def same(first: list[Clip], second: list[Clip], by: float) -> bool:
    return [each.start for each in first] == [each.start for each in second] and all(
        np.allclose(one.samples, other.samples, atol=by) for one, other in zip(first, second, strict=True)
    )


@pytest.mark.parametrize("rate", [8000, 11_025, 16_000, 44_100, 48_000])
def test_clips_of_any_rate_are_heard_at_16_khz(rate: int) -> None:
    found, expected = clips_of(sound(*TALK, rate=rate), rate), clips_of(sound(*TALK))
    assert [each.start for each in found] == pytest.approx([each.start for each in expected], abs=0.03)
    assert [each.seconds for each in found] == pytest.approx([each.seconds for each in expected], abs=0.05)
    assert all(each.samples.dtype == np.float32 for each in found)
    spectrum = np.abs(np.fft.rfft(found[0].samples))
    assert spectrum.argmax() * 16_000 / len(found[0].samples) == pytest.approx(300, abs=2)


def test_a_file_gives_the_clips_of_its_samples(tmp_path: Path) -> None:
    samples = np.stack([sound(*TALK), 0.5 * sound(*TALK)], axis=1)
    soundfile.write(tmp_path / "talk.flac", samples, 16_000, subtype="PCM_24")
    recording = open_file(tmp_path / "talk.flac", CUTTING)
    assert recording.seconds == 8.0
    assert same(list(recording.clips), clips_of(samples), by=1e-6)
    assert same(clips_of(samples), clips_of(0.75 * sound(*TALK)), by=1e-3)


def test_speech_on_any_channel_is_heard(tmp_path: Path) -> None:
    samples = np.stack([np.zeros(8 * 16_000), sound(*TALK)], axis=1)
    soundfile.write(tmp_path / "right.wav", samples, 16_000)
    assert len(list(open_file(tmp_path / "right.wav", CUTTING).clips)) == 2
    assert len(set(file_levels(tmp_path / "right.wav", lambda block: block[:, 0]))) == 1
    assert len(set(file_levels(tmp_path / "right.wav", mixed))) > 1


def test_integers_are_scaled() -> None:
    floats = sound(*TALK)
    assert same(clips_of(np.round(floats * 32768).astype(np.int16)), clips_of(floats), by=1e-4)
    assert same(clips_of(np.round(floats * 2**31).astype(np.int32)), clips_of(floats), by=1e-6)


@pytest.mark.parametrize(
    ("samples", "rate", "expected"),
    [
        (np.zeros((2, 16_000)), 16_000, r"\(2, 16000\) are not a recording"),
        (np.zeros((2, 2, 2)), 16_000, "not a recording"),
        (np.array([0.0, np.nan]), 16_000, "not finite"),
        (np.zeros(9, np.uint8), 16_000, "uint8"),
        (np.zeros(9), 16, "rate=16"),
        (np.zeros(9), "8k", "rate='8k': provide the sampling rate in Hz as a whole number"),
        (np.zeros(9), 16_000.5, r"rate=16000\.5"),
        (np.zeros(9), None, "rate=None"),
        (np.zeros(9), True, "rate=True"),
        (np.zeros(9), np.zeros(3), r"rate=an array of shape \(3,\)"),
        (np.zeros(9), 767_999, "rate=767999 cannot be resampled to 16000 Hz"),
        (np.zeros((1, 16_000)), 16_000, r"\(N, channels\), its transpose"),
        ([[0.0, 0.1], [0.2]], 16_000, "a list that is no array is not a recording"),
        ({"array": [0.0]}, 16_000, "not a recording"),
        (None, 16_000, "not a recording"),
        (["a", "b"], 16_000, "not audio"),
    ],
)
def test_samples_that_are_no_audio_are_refused(samples: object, rate: Any, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        open_samples(samples, rate, CUTTING)


def test_no_samples_are_no_clips() -> None:
    assert clips_of([]) == clips_of(np.zeros(0, np.int16)) == []


def damaged(path: Path) -> dict[str, Path]:
    files = {
        name: path / name for name in ("text.wav", "empty.wav", "gone.wav", "a.raw", "slow.wav", "nan.wav")
    }
    files["text.wav"].write_text("not audio")
    files["empty.wav"].write_bytes(b"")
    files["a.raw"].write_bytes(bytes(1000))
    soundfile.write(files["slow.wav"], np.zeros(500), 100)
    soundfile.write(files["nan.wav"], np.array([0.0, np.nan]), 16_000, subtype="FLOAT")
    soundfile.write(path / "cut.wav", sound(*TALK), 16_000)
    (path / "cut.wav").write_bytes((path / "cut.wav").read_bytes()[:-1000])
    return {**files, "cut.wav": path / "cut.wav"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("text.wav", "cannot be opened: Format not recognised"),
        ("empty.wav", "the file is empty"),
        ("gone.wav", "No such file"),
        ("a.raw", "convert it to WAV"),
        ("slow.wav", "100 Hz"),
        ("nan.wav", "not finite"),
        ("cut.wav", "truncated: 1000 bytes"),
    ],
)
def test_a_bad_file_tells_what_is_wrong(tmp_path: Path, name: str, expected: str) -> None:
    with pytest.raises(BadAudio, match=expected):
        open_file(damaged(tmp_path)[name], CUTTING)
