"""Our resampler, against SciPy's, known tones, and Lhotse's transform."""

import math
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from lhotse import Recording
from lhotse.augmentation import Resample
from scipy.signal import resample_poly

from priormatch.data.manifest import utterance
from priormatch.data.resample import SincResample, resample, with_sinc
from priormatch.data.waveforms import read_with_lhotse

RATES = (8000, 11_025, 22_050, 22_255, 24_000, 32_000, 44_100, 48_000)
NOISE = np.random.default_rng(0).uniform(-1, 1, 48_000).astype(np.float32)


def tone(hertz: float, rate: int, seconds: float = 1.0) -> np.ndarray:
    """A sine of amplitude 1: (N,)."""
    return np.sin(2 * np.pi * hertz * np.arange(round(rate * seconds)) / rate).astype(np.float32)


def decibels(samples: np.ndarray) -> float:
    """Level relative to a sine of amplitude 1, without the ends, where the filter reads silence."""
    return float(10 * np.log10(2 * np.mean(samples[200:-200] ** 2)))


@given(st.sampled_from([(rate, 16_000) for rate in RATES] + [(16_000, 44_100)]), st.integers(0, 20_000))
def test_the_result_is_that_of_scipy(rates: tuple[int, int], length: int) -> None:
    rate, to = rates
    common = math.gcd(rate, to)
    found = resample(NOISE[:length], rate, to)
    assert found.dtype == np.float32
    assert len(found) == math.ceil(length * to / rate)
    if length:
        np.testing.assert_allclose(
            found, resample_poly(NOISE[:length], to // common, rate // common), atol=1e-5
        )


@pytest.mark.parametrize("rate", RATES)
def test_a_tone_stays_a_tone(rate: int) -> None:
    found = resample(tone(1000, rate), rate, 16_000)
    assert decibels(found - tone(1000, 16_000)) < -55


@pytest.mark.parametrize("rate", [44_100, 48_000])
@pytest.mark.parametrize("hertz", [12_000, 15_000, 20_000])
def test_a_tone_above_the_new_nyquist_frequency_is_gone(rate: int, hertz: float) -> None:
    assert decibels(resample(tone(hertz, rate), rate, 16_000)) < -60


def test_the_same_rate_changes_nothing() -> None:
    assert resample(NOISE, 16_000, 16_000) is NOISE


def test_lhotse_reads_other_rates_with_our_filter(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, np.stack([NOISE, -NOISE], axis=1), 48_000, subtype="FLOAT")
    cut = utterance("a", Recording.from_file(path).resample(16_000), None, None)
    assert np.array_equal(read_with_lhotse(cut), resample(NOISE, 48_000, 16_000))
    whole = utterance("a", Recording.from_file(path), None, None)
    assert np.array_equal(read_with_lhotse(whole), resample(NOISE, 48_000, 16_000))
    padded = cut.pad(duration=1.5)
    assert np.array_equal(read_with_lhotse(padded)[:16_000], read_with_lhotse(cut))


def test_only_resampling_is_replaced_and_the_cut_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, NOISE, 48_000)
    recording = Recording.from_file(path).perturb_volume(0.5).resample(16_000).perturb_speed(1.1)
    as_read = Recording.from_dict(recording.to_dict())
    for each in (recording, as_read):
        cut = utterance("a", each, None, None)
        names = [type(transform).__name__ for transform in with_sinc(cut).recording.transforms]
        assert names == ["Volume", "SincResample", "Speed"]
        assert type(cut.recording.transforms[1]) is Resample
    assert SincResample(48_000, 16_000)(NOISE[None], 48_000).shape == (1, 16_000)
