"""Recordings are cut at their pauses, and nothing loud is lost."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from priormatch.data.pauses import (
    BURST,
    FRAMES,
    SILENCE,
    Cutting,
    cut_at_pauses,
    frame_levels,
    loud_frames,
)
from priormatch.errors import UserError

RATE = 16_000


def sound(*parts: tuple[float, float], noise: float = 0.001, rate: int = RATE) -> np.ndarray:
    """Stretches of (seconds, amplitude) of a warbling tone in some noise."""
    amplitudes = np.concatenate([np.full(round(seconds * rate), level) for seconds, level in parts])
    time = np.arange(len(amplitudes)) / rate
    voice = np.sin(2 * np.pi * 300 * time) * (0.6 + 0.4 * np.sin(2 * np.pi * 3 * time))
    return amplitudes * voice + np.random.default_rng(0).normal(0, noise, len(amplitudes))


def segments(samples: np.ndarray, **options: float) -> list[tuple[float, float]]:
    spans = cut_at_pauses(frame_levels(samples, RATE), Cutting(**options))
    return [(start / FRAMES, end / FRAMES) for start, end in spans]


def near(found: list[tuple[float, float]], expected: list[tuple[float, float]], by: float) -> bool:
    return len(found) == len(expected) and np.allclose(found, expected, rtol=0, atol=by)


TALK = ((1.0, 0.0), (2.0, 0.3), (0.8, 0.0), (3.0, 0.1), (1.2, 0.0))


@pytest.mark.parametrize("noise", [0.0, 1e-5, 1e-3, 1e-2])
@pytest.mark.parametrize("offset", [0.0, 0.2])
def test_pauses_are_found_in_any_noise(noise: float, offset: float) -> None:
    found = segments(sound(*TALK, noise=noise) + offset)
    assert near(found, [(0.85, 3.15), (3.65, 6.95)], by=0.06)


def test_how_loud_the_whole_is_does_not_matter() -> None:
    assert segments(sound(*TALK, noise=1e-3)) == segments(sound(*TALK, noise=1e-3) * 0.1)


def test_short_pauses_are_part_of_speech() -> None:
    talk = sound((1.0, 0.0), (1.0, 0.3), (0.36, 0.0), (1.0, 0.3), (1.0, 0.0))
    assert near(segments(talk), [(0.85, 3.51)], by=0.06)
    assert near(segments(talk, pause=0.3), [(0.85, 2.15), (2.21, 3.51)], by=0.06)


def hiss(seconds: float, level: float) -> np.ndarray:
    return np.random.default_rng(2).normal(0, level, round(seconds * RATE))


def test_the_noise_floor_is_that_of_the_neighborhood() -> None:
    """A fan that is switched on hides nothing that is said, and is taken for speech for a moment alone."""
    found = segments(np.concatenate([sound(*TALK * 5, noise=1e-4), sound(*TALK * 7, noise=0.02)]))
    starts = [8 * turn + second for turn in range(12) for second in (0.85, 3.65)]
    starts[10] = 39.85  # what is said first joins the beginning of the fan
    assert np.allclose([start for start, _ in found], starts, rtol=0, atol=0.1)


@pytest.mark.parametrize("seconds", [25, 60])
@pytest.mark.parametrize(("voice", "noise"), [(1.0, 0.02), (0.05, 0.1)], ids=["louder", "drowned"])
def test_a_noise_that_comes_and_goes_is_hardly_heard_and_hides_no_speech_around_it(
    voice: float, noise: float, seconds: float
) -> None:
    talk = voice * sound(*TALK * 4, noise=1e-4)
    found = segments(np.concatenate([talk, hiss(seconds, noise), talk]))
    starts = [8 * turn + second for turn in range(4) for second in (0.85, 3.65)]
    ends = [8 * turn + second for turn in range(4) for second in (3.15, 6.95)]
    again = 32 + seconds
    around = [(start, end) for start, end in found if not 31 < start < again]
    assert near(
        around, [(s + t, e + t) for t in (0, again) for s, e in zip(starts, ends, strict=True)], by=0.1
    )
    assert sum(end - start for start, end in found if 31 < start < again) < 6


def test_speech_without_a_pause_is_no_noise() -> None:
    found = segments(sound((1.0, 0.0), (100.0, 0.3), (1.0, 0.0)), longest=20.0)
    assert found[0][0] == pytest.approx(0.85, abs=0.06)
    assert found[-1][1] == pytest.approx(101.15, abs=0.06)
    assert all(one[1] == other[0] for one, other in pairwise(found))


@pytest.mark.parametrize("level", [0.0, 1e-5, 1e-3, 0.05])
def test_quiet_and_even_noise_hold_no_segment(level: float) -> None:
    assert segments(np.random.default_rng(1).normal(0, level, 40 * RATE)) == []


@pytest.mark.parametrize("count", [0, 1, 100, 161])
def test_next_to_nothing_holds_no_segment(count: int) -> None:
    assert segments(np.zeros(count)) == []


def test_a_click_is_no_speech() -> None:
    assert segments(sound((3.0, 0.0), (0.02, 0.5), (3.0, 0.0))) == []


def test_a_short_word_is_widened_with_the_quiet_around_it() -> None:
    (found,) = segments(sound((3.0, 0.0), (0.3, 0.3), (3.0, 0.0)), shortest=2.0)
    assert found[1] - found[0] == pytest.approx(2.0, abs=0.05)
    assert sum(found) / 2 == pytest.approx(3.15, abs=0.1)


def test_without_a_pause_the_cut_is_at_the_quietest_place() -> None:
    found = segments(sound((1.0, 0.0), (9.0, 0.3), (0.25, 0.0), (8.0, 0.3), (1.0, 0.0)), longest=15.0)
    assert len(found) == 2
    assert found[0][1] == found[1][0]
    assert 10.0 <= found[0][1] <= 10.25


@pytest.mark.parametrize("rate", [8000, 11_025, 16_000, 44_100])
def test_levels_are_the_same_in_blocks_of_seconds(rate: int) -> None:
    samples = sound((2.5, 0.3), (0.503, 0.01), rate=rate)
    whole = frame_levels(samples, rate)
    blocks = [frame_levels(samples[start : start + rate], rate) for start in range(0, len(samples), rate)]
    assert np.array_equal(whole, np.concatenate(blocks))
    assert len(whole) == 301


def test_levels_are_those_of_a_slow_reference() -> None:
    samples = sound((0.213, 0.3))
    expected = [10 * np.log10(max(np.var(samples[i : i + 160]), 1e-12)) for i in range(0, len(samples), 160)]
    assert np.allclose(frame_levels(samples, RATE), expected)
    assert frame_levels(np.full(160, 0.7), RATE) == [SILENCE]


@st.composite
def levels(draw: st.DrawFn) -> np.ndarray:
    """A recording of stretches that are loud or quiet, in decibels."""
    parts = draw(st.lists(st.tuples(st.integers(1, 900), st.floats(-90, -5)), min_size=1, max_size=25))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    return np.concatenate([level + random.normal(0, 1.5, count) for count, level in parts])


@given(levels(), st.floats(1, 30), st.floats(0, 1), st.floats(0.3, 2))
def test_segments_are_in_order_apart_within_limits_and_miss_nothing_loud(
    levels: np.ndarray, longest: float, shortest: float, pause: float
) -> None:
    found = cut_at_pauses(levels, Cutting(longest, shortest, pause))
    ends = [0, *(each for span in found for each in span), len(levels)]
    assert ends == sorted(ends)
    assert all(0 < end - start <= longest * FRAMES for start, end in found)
    loud, covered = loud_frames(levels), np.zeros(len(levels), bool)
    for start, end in found:
        covered[start:end] = True
    runs = "".join("x" if each else "." for each in loud & ~covered).split(".")
    assert max(map(len, runs)) < BURST


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"longest": 0.5}, "1 s or more"),
        ({"longest": float("nan")}, "1 s or more"),
        ({"shortest": 30.0}, "between 0 and the longest"),
        ({"pause": 0.1}, "0.3 s or more"),
    ],
)
def test_a_cutting_that_makes_no_sense_is_refused(options: dict, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        Cutting(**options)
