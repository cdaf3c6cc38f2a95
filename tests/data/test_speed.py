"""Changes of speed on a device, against the resampler for single recordings."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from priormatch.data.resample import resample
from priormatch.data.speed import change_speed, changed_length, resample_rows, stretch

NOISE = np.random.default_rng(0).standard_normal((3, 1000)).astype(np.float32)


@settings(max_examples=40)
@given(speed=st.sampled_from([0.5, 0.85, 0.9, 0.95, 1.05, 1.1, 2.0, 0.937]), samples=st.integers(1, 1000))
def test_rows_are_resampled_as_single_recordings(speed: float, samples: int) -> None:
    factor = stretch(speed)
    found = resample_rows(torch.from_numpy(NOISE[:, :samples]), factor).numpy()
    expected = [resample(row[:samples], factor.denominator, factor.numerator) for row in NOISE]
    np.testing.assert_allclose(found, np.stack(expected), atol=2e-6 * max(1.0, float(factor)))
    assert found.shape[1] == changed_length(samples, speed)


def test_speed_one_changes_nothing() -> None:
    waves = torch.from_numpy(NOISE)
    assert torch.equal(resample_rows(waves, stretch(1.0)), waves)
    assert changed_length(1000, 1.0) == 1000


@pytest.mark.parametrize("speed", [0.5, 1.1])
def test_audio_without_samples_has_none_at_any_speed(speed: float) -> None:
    nothing = torch.zeros(2, 0)
    assert change_speed(nothing, torch.zeros(2), [speed, speed], 400).tolist() == [[0.0] * 400] * 2


@pytest.mark.parametrize("width", [1200, 1600])
def test_rows_of_a_batch_do_not_depend_on_each_other(width: int) -> None:
    lengths, speeds = [1000, 700, 400], [0.9, 1.0, 1.1]
    waves = torch.from_numpy(NOISE).clone()
    for row, length in zip(waves, lengths, strict=True):
        row[length:] = 0
    after = torch.tensor([changed_length(*each) for each in zip(lengths, speeds, strict=True)])
    found = change_speed(waves, after, speeds, width)
    assert found.shape == (3, width)
    for row, length, speed, new in zip(waves, lengths, speeds, after.tolist(), strict=True):
        alone = resample_rows(row[None, :length], stretch(speed))[0]
        torch.testing.assert_close(found[speeds.index(speed), :new], alone)
        assert torch.all(found[speeds.index(speed), new:] == 0)
