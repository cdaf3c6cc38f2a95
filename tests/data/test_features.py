"""Features equal a slow reference, and padding leaves no trace."""

import math

import numpy as np
import pytest
import torch

from priormatch.data.features import LogMel, frame_counts, magnitude, normalize, time_mask

RANDOM = np.random.default_rng(1)


def reference_log_mel(wave: np.ndarray, n_mels: int) -> np.ndarray:
    """Log-mel features, one frame, one bin and one filter at a time, in float64."""
    samples = wave.astype(np.float64) * 32768
    window = [0.54 - 0.46 * math.cos(2 * math.pi * i / 399) for i in range(400)]
    top = 2595 * math.log10(1 + 8000 / 700)
    corners = [700 * (10 ** (top * i / (n_mels + 1) / 2595) - 1) * 512 / 16000 for i in range(n_mels + 2)]
    rows = []
    for begin in range(0, len(samples) - 399, 160):
        frame = [samples[begin] * (1 - 0.97)]
        frame += [samples[begin + i] - 0.97 * samples[begin + i - 1] for i in range(1, 400)]
        magnitudes = np.abs(np.fft.fft(np.array(frame) * window, 512))[:257]
        row = []
        for low, peak, high in zip(corners, corners[1:], corners[2:], strict=False):
            energy = 0.0
            for position, size in enumerate(magnitudes):
                if low < position <= peak:
                    energy += size * (position - low) / (peak - low)
                elif peak < position < high:
                    energy += size * (high - position) / (high - peak)
            row.append(math.log(max(energy, 1.0)))
        rows.append(row)
    features = np.array(rows)
    return (features - features.mean()) / features.std()


def log_mel(wave: np.ndarray, n_mels: int = 80) -> torch.Tensor:
    waveforms = torch.from_numpy(wave.astype(np.float32))[None]
    features, lengths = LogMel(n_mels)(waveforms, torch.tensor([len(wave)]))
    assert features.shape[1] == max(int(lengths[0]), 1)
    return features[0]


def chirp(samples: int) -> np.ndarray:
    time = np.arange(samples) / 16000
    return 0.4 * np.sin(2 * np.pi * (200 + 1500 * time) * time) + RANDOM.normal(0, 0.01, samples)


@pytest.mark.parametrize("n_mels", [80, 20])
@pytest.mark.parametrize("samples", [400, 559, 560, 2000])
def test_features_equal_the_slow_reference(samples: int, n_mels: int) -> None:
    wave = chirp(samples)
    expected = reference_log_mel(wave, n_mels)
    np.testing.assert_allclose(log_mel(wave, n_mels).numpy(), expected, atol=1e-4)


def test_magnitudes_are_those_of_numpy() -> None:
    spectrum = np.fft.rfft(32768 * chirp(512)).astype(np.complex64)
    spectrum[:3] = 0, -2, 3j
    found = magnitude(torch.from_numpy(spectrum)).numpy()
    assert found[:3].tolist() == [0, 2, 3]
    np.testing.assert_allclose(found, np.abs(spectrum.astype(np.complex128)), rtol=1e-6)


def test_half_precision_training_does_not_touch_the_features() -> None:
    waveforms, samples = torch.from_numpy(chirp(2000)).float()[None], torch.tensor([2000])
    expected, _ = LogMel(80)(waveforms, samples)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features, _ = LogMel(80)(waveforms, samples)
    assert features.dtype == torch.float32
    assert torch.equal(features, expected)


def test_padding_takes_no_part_and_comes_out_as_zero() -> None:
    waves = [chirp(samples) for samples in (4000, 1600, 399, 2333)]
    padded = torch.zeros(4, 6000)
    for row, wave in zip(padded, waves, strict=True):
        row[: len(wave)] = torch.from_numpy(wave)
    features, lengths = LogMel(80)(padded, torch.tensor([len(wave) for wave in waves]))
    assert lengths.tolist() == [23, 8, 0, 13]
    for row, length, wave in zip(features, lengths.tolist(), waves, strict=True):
        assert torch.all(row[length:] == 0)
        if length:
            torch.testing.assert_close(row[:length], log_mel(wave), atol=1e-5, rtol=0)


def test_silence_is_zero() -> None:
    assert torch.all(log_mel(np.zeros(4000)) == 0)


@pytest.mark.parametrize("samples", [0, 1, 399])
def test_less_than_a_frame_is_no_frame_and_no_nan(samples: int) -> None:
    features, lengths = LogMel(80)(torch.ones(2, samples), torch.full((2,), samples))
    assert lengths.tolist() == [0, 0]
    assert torch.all(features == 0)


def test_frame_counts() -> None:
    samples = torch.tensor([0, 399, 400, 559, 560, 16000])
    assert frame_counts(samples).tolist() == [0, 0, 1, 1, 2, 98]


def test_normalized_features_have_mean_zero_and_deviation_one() -> None:
    features = torch.randn(3, 7, 5) * 4 + 9
    lengths = torch.tensor([7, 3, 1])
    for row, length in zip(normalize(features, lengths), lengths.tolist(), strict=True):
        assert row[:length].mean() == pytest.approx(0, abs=1e-5)
        assert row[:length].std(unbiased=False) == pytest.approx(1, abs=1e-5)


def test_time_mask() -> None:
    assert time_mask(torch.tensor([0, 2, 3]), 3).tolist() == [
        [False, False, False],
        [True, True, False],
        [True, True, True],
    ]
