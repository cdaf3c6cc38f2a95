"""Samples: plain files are read as Lhotse reads them, to the bit, and all others by Lhotse itself."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given
from hypothesis import strategies as st
from lhotse import MonoCut, Recording
from lhotse.audio import AudioSource

from priormatch.config import AudioSettings
from priormatch.data import waveforms
from priormatch.data.audio import BadAudio, check_audio
from priormatch.data.batches import UtteranceReader, once
from priormatch.data.corpus import Corpus
from priormatch.data.manifest import utterance
from priormatch.data.plan import Request, Visit
from priormatch.data.tokenizer import Tokenizer
from priormatch.data.waveforms import (
    FULL_SCALE,
    as_float,
    read_samples,
    read_with_lhotse,
    wav_header,
    why_unreadable,
)

NOISE = np.random.default_rng(0).uniform(-1, 1, (8000, 2))


def cut_of(
    path: Path, start: float = 0.0, duration: float | None = None, channel: int = 0, rate: int = 16_000
) -> MonoCut:
    recording = Recording.from_file(path)
    cut = utterance(path.stem, recording, "ten", None, start=start, duration=duration)
    cut.channel = channel
    return cut if rate == recording.sampling_rate else cut.resample(rate)


def same_as_lhotse(cut: MonoCut) -> bool:
    samples = read_samples(cut)
    expected = read_with_lhotse(cut)
    return as_float(samples).dtype == np.float32 and np.array_equal(as_float(samples), expected)


@pytest.mark.parametrize("suffix", ["wav", "flac", "aiff"])
@pytest.mark.parametrize("channel", [0, 1])
@pytest.mark.parametrize("window", [(0.0, None), (0.1, 0.25), (0.3, None)])
def test_16_bits_are_read_as_they_are(
    tmp_path: Path, suffix: str, channel: int, window: tuple[float, float | None]
) -> None:
    soundfile.write(tmp_path / f"a.{suffix}", NOISE, 16_000, subtype="PCM_16")
    cut = cut_of(tmp_path / f"a.{suffix}", *window, channel=channel)
    assert read_samples(cut).dtype == np.int16
    assert same_as_lhotse(cut)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recording]:
    paths = [tmp_path_factory.mktemp("sound") / f"a.{suffix}" for suffix in ("wav", "flac")]
    for path in paths:
        soundfile.write(path, NOISE[:, 0], 16_000)
    return {path.suffix: Recording.from_file(path) for path in paths}


@given(start=st.floats(0, 0.45), duration=st.floats(0.001, 0.05), suffix=st.sampled_from([".wav", ".flac"]))
def test_any_window_rounds_to_the_samples_that_lhotse_reads(
    sound: dict[str, Recording], start: float, duration: float, suffix: str
) -> None:
    assert same_as_lhotse(utterance("a", sound[suffix], None, None, start=start, duration=duration))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.wav", {"subtype": "PCM_24"}),
        ("a.wav", {"subtype": "FLOAT"}),
        ("a.wav", {"subtype": "ULAW"}),
        ("a.wav", {"subtype": "PCM_U8"}),
        ("a.flac", {"subtype": "PCM_24"}),
        ("a.ogg", {}),
        ("a.mp3", {}),
    ],
)
def test_other_depths_are_left_to_lhotse(tmp_path: Path, name: str, options: dict[str, str]) -> None:
    soundfile.write(tmp_path / name, NOISE[:, 0] / 2, 16_000, **options)
    cut = cut_of(tmp_path / name)
    assert read_samples(cut).dtype == np.float32
    assert same_as_lhotse(cut)


@pytest.mark.parametrize("speed", [0.9, 1.1])
def test_speed_and_resampling_are_left_to_lhotse(tmp_path: Path, speed: float) -> None:
    for rate in (8_000, 16_000):
        soundfile.write(tmp_path / f"{rate}.wav", NOISE[:, 0], rate)
    (same, other) = (cut_of(tmp_path / f"{rate}.wav") for rate in (16_000, 8_000))
    assert [read_samples(cut).dtype for cut in (same, other)] == [np.int16, np.float32]
    assert same_as_lhotse(other)
    slowed = same.perturb_speed(speed)  # in the manifest already
    assert read_samples(slowed).dtype == np.float32
    assert same_as_lhotse(slowed)


def test_mixtures_and_recordings_of_several_files_are_left_to_lhotse(tmp_path: Path) -> None:
    for channel in (0, 1):
        soundfile.write(tmp_path / f"{channel}.wav", NOISE[:, channel], 16_000)
    cut = cut_of(tmp_path / "0.wav")
    assert same_as_lhotse(cut.pad(duration=1.0))
    sources = [AudioSource("file", [channel], str(tmp_path / f"{channel}.wav")) for channel in (0, 1)]
    both = Recording("both", sources, 16_000, 8000, 0.5)
    for channel in (0, 1):
        cut = utterance("both", both, None, None)
        cut.channel = channel
        assert same_as_lhotse(cut)
        assert np.allclose(read_samples(cut), NOISE[:, channel], atol=1e-4)


def test_a_wav_that_is_not_plain_is_decoded_instead_of_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, NOISE[:, 0], 16_000)
    cut = cut_of(path, start=0.1)
    mapped = read_samples(cut).copy()  # the map itself follows the file
    content = path.read_bytes()
    assert content[:44] == wav_header(8000)
    path.write_bytes(content[:36] + b"note\4\0\0\0oops" + content[36:])
    assert np.array_equal(read_samples(cut), mapped)
    path.write_bytes(content)
    monkeypatch.setattr(waveforms, "_decode", None)  # a plain one is not even opened by libsndfile
    assert np.array_equal(read_samples(cut), mapped)


@pytest.mark.parametrize("suffix", ["wav", "flac"])
@pytest.mark.parametrize("frames", [4000, 6300, 6400, 7900, 8100, 9600, 12_000])
def test_a_file_of_another_length_than_its_manifest_says_is_judged_by_lhotse(
    tmp_path: Path, suffix: str, frames: int
) -> None:
    path = tmp_path / f"a.{suffix}"
    soundfile.write(path, NOISE[:, 0], 16_000)
    cut = cut_of(path)
    soundfile.write(path, np.resize(NOISE[:, 0], frames), 16_000)
    if abs(frames - 8000) > 1600:  # a tenth of a second
        with pytest.raises(Exception, match="number of declared samples"):
            read_samples(cut)
    else:
        assert same_as_lhotse(cut)


def test_a_batch_is_small_on_its_way_and_float_where_it_is_used(
    tmp_path: Path, tiny_tokenizer: Tokenizer
) -> None:
    subtypes = ["PCM_16", "PCM_16", "FLOAT"]
    for number, subtype in enumerate(subtypes):
        soundfile.write(tmp_path / f"{number}.wav", NOISE[: 4000 + 1000 * number, 0], 16_000, subtype=subtype)
    cuts = [cut_of(tmp_path / f"{number}.wav") for number in range(3)]
    reader = UtteranceReader(Corpus(cuts, AudioSettings()), tiny_tokenizer)
    batch = reader.__getitems__(Request([Visit(row) for row in range(3)]))
    assert batch.waveforms.dtype == torch.int16
    moved = batch.to(torch.device("cpu"))
    assert moved.waveforms.dtype == torch.float32
    for cut, subtype, wave, length in zip(
        cuts, subtypes, moved.waveforms, moved.samples.tolist(), strict=True
    ):
        rounded = 0.0 if subtype == "PCM_16" else 1 / FULL_SCALE  # 1.0 itself does not exist in 16 bits
        np.testing.assert_allclose(wave[:length].numpy(), read_with_lhotse(cut), rtol=0, atol=rounded)
        assert not wave[length:].any()


@pytest.mark.skipif(
    torch.cuda.is_available(), reason="on a GPU's machine they stay small until they are there"
)
def test_streams_give_float_whatever_the_workers(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    soundfile.write(tmp_path / "a.wav", NOISE[:, 0], 16_000)
    reader = UtteranceReader(Corpus([cut_of(tmp_path / "a.wav")], AudioSettings()), tiny_tokenizer)
    for workers in (0, 1):
        (batch,) = once(reader, 10.0, workers)
        assert batch.waveforms.dtype == torch.float32


def test_a_file_truncated_after_it_was_read_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, np.tile(NOISE[:, 0], 9), 16_000)
    cut = cut_of(path)
    samples = read_samples(cut)
    expected, _ = soundfile.read(path, dtype="int16")
    os.truncate(path, 100)  # would kill a process that has it mapped, when it gets to the samples
    assert (samples == expected).all()
    with pytest.raises(Exception, match=r"duration|samples|frames|audio") as error:
        read_samples(cut)
    assert "truncated" in why_unreadable(cut, error.value)


@pytest.mark.parametrize("suffix", [".wav", ".flac"])
def test_a_named_pipe_in_the_place_of_audio_is_not_waited_for(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    soundfile.write(path, NOISE[:, 0], 16_000)
    cut = cut_of(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(BadAudio, match=r"not a regular file"):
        read_samples(cut)
    assert check_audio(path) == "cannot be opened: not a regular file"


@pytest.mark.parametrize("value", [1e38, -1e38, 1e6, np.nan, np.inf])
def test_samples_that_no_recording_has(tmp_path: Path, value: float) -> None:
    path = tmp_path / "a.wav"
    samples = NOISE[:, 0].astype(np.float32)
    samples[len(samples) // 2] = 30_000  # 16-bit integers in a file of floats
    soundfile.write(path, samples, 16_000, subtype="FLOAT")
    assert check_audio(path) is None
    read_samples(cut_of(path))
    samples[len(samples) // 2] = value
    soundfile.write(path, samples, 16_000, subtype="FLOAT")
    with pytest.raises(ValueError, match=r"has samples") as error:
        read_samples(cut_of(path))
    assert re.match(
        rf"{path}: has samples (of|that are not finite)", why_unreadable(cut_of(path), error.value)
    )
