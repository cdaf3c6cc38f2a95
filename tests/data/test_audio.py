"""Damaged files are found, sound ones are not accused."""

import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile
from narrowing import present

from priormatch.data import audio
from priormatch.data.audio import BadAudio, check_audio, open_recording
from priormatch.data.clips import open_file
from priormatch.data.pauses import Cutting

NOISE = np.random.default_rng(0).uniform(-0.3, 0.3, 32_000).astype(np.float32)
FORMATS = {"wav": {}, "flac": {}, "ogg": {}, "opus": {"format": "OGG", "subtype": "OPUS"}, "mp3": {}}


@pytest.fixture(params=[True, False], ids=["decode", "header"])
def decode(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.mark.parametrize("suffix", FORMATS)
def test_sound_files_pass(tmp_path: Path, suffix: str, decode: bool) -> None:
    path = tmp_path / f"a.{suffix}"
    soundfile.write(path, NOISE, 16_000, **FORMATS[suffix])
    assert check_audio(path, decode) is None


@pytest.mark.parametrize("suffix", ["wav", "flac", "mp3"])
@pytest.mark.parametrize("share", [0.4, 0.97])
def test_truncated_files_are_found(tmp_path: Path, suffix: str, share: float, decode: bool) -> None:
    path = tmp_path / f"a.{suffix}"
    soundfile.write(path, NOISE, 16_000)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    assert "truncated" in (check_audio(path, decode) or "")


def test_an_mp3_that_does_not_declare_its_length_is_as_long_as_it_decodes(tmp_path: Path) -> None:
    path, tag = tmp_path / "a.mp3", 20_000  # bytes; as in Common Voice, no header gives the length
    soundfile.write(path, NOISE, 32_000, bitrate_mode="CONSTANT")
    content = path.read_bytes()
    frames = content[content.index(content[:2], 100) :]
    path.write_bytes(b"ID3\3\0\0\0" + bytes([tag >> 14, tag >> 7 & 127, tag & 127]) + bytes(tag) + frames)
    assert soundfile.info(path).frames > len(soundfile.read(path)[0])
    cut = open_recording(path, "a", decode=False)
    assert cut.num_samples == len(soundfile.read(path)[0]) / 2
    assert open_file(path, Cutting()).seconds == pytest.approx(cut.duration, abs=0.01)


def test_a_wav_short_by_one_byte_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, NOISE, 16_000)
    path.write_bytes(path.read_bytes()[:-1])
    assert check_audio(path) == "truncated: 1 bytes are missing at the end"


def test_a_wav_with_other_chunks_first_is_measured_at_its_data(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, NOISE, 16_000)
    content = path.read_bytes()
    path.write_bytes(content[:36] + b"note" + struct.pack("<I", 5) + b"hello\0" + content[36:])
    assert check_audio(path) is None
    path.write_bytes(path.read_bytes()[:-10])
    assert check_audio(path) == "truncated: 10 bytes are missing at the end"


def test_a_wav_written_to_a_pipe_has_no_known_length_and_passes(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, NOISE, 16_000)
    content = path.read_bytes()
    path.write_bytes(content[:40] + b"\xff\xff\xff\xff" + content[44:])
    assert check_audio(path) is None


def test_damage_in_the_middle_needs_decoding(tmp_path: Path) -> None:
    path = tmp_path / "a.flac"
    soundfile.write(path, NOISE, 16_000)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 1000] = bytes(1000)
    path.write_bytes(content)
    assert "damaged" in (check_audio(path) or "")


def test_a_flac_without_a_length_is_refused(tmp_path: Path, decode: bool) -> None:
    path = tmp_path / "a.flac"
    soundfile.write(path, NOISE, 16_000)
    content = bytearray(path.read_bytes())
    content[21] &= 0xF0
    content[22:26] = bytes(4)
    path.write_bytes(content)
    assert check_audio(path, decode) == "the header does not give the length of the audio"


def test_samples_that_are_no_numbers_are_found(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, np.where(np.arange(len(NOISE)) == 17, np.nan, NOISE), 16_000, subtype="FLOAT")
    assert "not finite" in (check_audio(path) or "")


def test_files_that_are_not_audio(tmp_path: Path, decode: bool) -> None:
    (tmp_path / "empty.wav").touch()
    (tmp_path / "text.flac").write_text("hello, I am a text")
    soundfile.write(tmp_path / "silent.wav", NOISE[:0], 16_000)
    assert check_audio(tmp_path / "empty.wav", decode) == "the file is empty"
    assert check_audio(tmp_path / "text.flac", decode) == "cannot be opened: Format not recognised"
    assert check_audio(tmp_path / "silent.wav", decode) == "contains no audio"
    assert check_audio(tmp_path / "none.wav", decode) == "cannot be opened: No such file or directory"


def test_a_format_that_is_not_read_says_how_to_convert_it(tmp_path: Path, decode: bool) -> None:
    path = tmp_path / "my talk.M4A"
    path.write_bytes(b"\0\0\0\x1cftypM4A \0\0\0\0M4A isommp42" + bytes(100))
    assert (check_audio(path, decode) or "").endswith("convert it: ffmpeg -i 'my talk.M4A' 'my talk.wav'")


def test_a_text_called_mp3_is_not_said_to_be_missing(tmp_path: Path) -> None:
    (tmp_path / "a.mp3").write_text("hello")
    assert check_audio(tmp_path / "a.mp3") == "cannot be opened: not an audio file"


def test_a_resource_fork_beside_an_mp3_is_named(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.mp3", NOISE, 16_000)
    (tmp_path / "._a.mp3").write_bytes(b"left by a file manager")
    assert "delete ._a.mp3" in (check_audio(tmp_path / "a.mp3") or "")


def test_recordings_load_at_16_khz(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, np.stack([NOISE, -NOISE], axis=1), 44_100)
    recording = open_recording(path, "a", decode=True)
    assert recording.sampling_rate == 16_000
    assert recording.num_samples == round(len(NOISE) * 16_000 / 44_100)
    assert recording.load_audio(channels=0).shape == (1, recording.num_samples)


def test_unusable_recordings_carry_their_path_and_reason(tmp_path: Path) -> None:
    with pytest.raises(BadAudio) as error:
        open_recording(tmp_path / "none.wav", "none", decode=False)
    assert error.value.path == tmp_path / "none.wav"
    assert "No such file" in error.value.reason
    with pytest.raises(BadAudio, match="UTF-8"):
        open_recording(tmp_path / "\udcff.wav", "odd", decode=False)


def wav_with(path: Path, rate: int, channels: int = 1, frames: int = 1000) -> Path:
    """A WAV file of 8 bits whose header says so, whatever libraries would write."""
    content = bytes([128]) * (frames * channels)
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, channels, rate, rate * channels, channels, 8)
    data = form + struct.pack("<4sI", b"data", len(content)) + content
    path.write_bytes(struct.pack("<4sI4s", b"RIFF", 4 + len(data), b"WAVE") + data)
    return path


@pytest.mark.parametrize(
    ("rate", "channels", "reason"),
    [
        (19_999_999, 1, "has a sampling rate of 19999999 Hz: convert it"),
        (44_101, 1, "has a sampling rate of 44101 Hz: convert it"),
        (1999, 1, "has a sampling rate of 1999 Hz, too low for speech"),
        (16_000, 65, "has 65 channels, more than 64"),
    ],
)
def test_what_a_header_asks_for_is_bounded_before_anything_is_decoded(
    tmp_path: Path, rate: int, channels: int, reason: str
) -> None:
    path = wav_with(tmp_path / "a.wav", rate, channels)
    for decode in (True, False):
        assert present(check_audio(path, decode)).startswith(reason)
    with pytest.raises(BadAudio, match=reason):
        open_file(path, Cutting())


def test_no_file_lasts_a_thousand_hours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = wav_with(tmp_path / "a.wav", 2000, 64, 2000)
    monkeypatch.setattr(audio, "MOST_HOURS", 0.01)
    assert present(check_audio(path)).startswith("lasts 0 hours over all channels, more than 0.01")


@pytest.mark.parametrize(
    "rate", [8000, 11_025, 22_050, 22_255, 44_056, 44_100, 48_000, 96_000, 192_000, 384_000]
)
def test_usual_rates_are_taken(tmp_path: Path, rate: int) -> None:
    path = wav_with(tmp_path / "a.wav", rate)
    assert open_recording(path, "a", decode=True).sampling_rate == 16_000


def test_a_rate_whose_resampling_would_take_gigabytes_is_not_prepared(tmp_path: Path) -> None:
    path = wav_with(tmp_path / "a.wav", 22_254)
    assert check_audio(path) is None
    with pytest.raises(BadAudio, match="22254 Hz cannot be resampled to 16000 Hz"):
        open_recording(path, "a", decode=True)


@pytest.mark.parametrize("name", ["a\0.wav", "a\ud800.wav"])
def test_names_that_no_file_can_have(name: str) -> None:
    assert check_audio(Path(name)) in (
        "cannot be opened: not a valid file name",
        "the file's name is not valid UTF-8: rename it",
    )


def test_links_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a.wav").symlink_to("b.wav")
    (tmp_path / "b.wav").symlink_to("a.wav")
    assert "symbolic links" in present(check_audio(tmp_path / "a.wav"))
