"""The demo's recordings: every utterance has its own level, rate and noise."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from priormatch.data import SAMPLE_RATE
from priormatch.prepare.spoken import FRAME, Samples, amplitude, in_noise, rms, speak


@dataclass(frozen=True)
class Conditions:
    """The ranges from which the conditions of each utterance are drawn uniformly."""

    rate: tuple[int, int]
    """Words per minute."""
    pitch: tuple[int, int]
    """From 0 to 99; 50 is the voice's default."""
    snr: tuple[float, float]
    """Signal-to-noise ratio in decibels."""
    level: tuple[float, float] = (-29.0, -21.0)
    """Level of the speech, in decibels relative to full scale."""
    pause: tuple[float, float] = (0.05, 0.2)
    """Silence before and after the speech, in seconds."""


def record(
    sentences: Sequence[str], voice: str, conditions: Conditions, rng: np.random.Generator
) -> list[npt.NDArray[np.int16]]:
    """Synthesize the sentences in one voice, each in its own conditions; 16 kHz, 16 bits, each (N,)."""
    requests = [
        (text, voice, _integer(rng, conditions.rate), _integer(rng, conditions.pitch)) for text in sentences
    ]
    return [_room(speech, conditions, rng) for speech in speak(requests)]


def _integer(rng: np.random.Generator, bounds: tuple[int, int]) -> int:
    return int(rng.integers(bounds[0], bounds[1], endpoint=True))


def _room(speech: Samples, conditions: Conditions, rng: np.random.Generator) -> npt.NDArray[np.int16]:
    """Set the level and add pauses and noise, without clipping."""
    before, after = (round(rng.uniform(*conditions.pause) * SAMPLE_RATE) for _ in range(2))
    after += -(before + len(speech) + after) % FRAME
    level = amplitude(rng.uniform(*conditions.level))
    noise_level = level / amplitude(rng.uniform(*conditions.snr))
    return in_noise(np.pad(speech * (level / rms(speech)), (before, after)), noise_level, rng)
