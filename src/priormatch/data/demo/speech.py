"""From sentences to recordings: espeak-ng's voice, at 16 kHz, at some level, with some noise."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter, resample_poly

from priormatch.data import SAMPLE_RATE
from priormatch.data.demo import espeak
from priormatch.errors import UserError

FRAME = SAMPLE_RATE // 100
"""Utterances last a whole number of hundredths of a second, so that their times are short decimals."""

Samples = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Conditions:
    """The ranges from which the circumstances of each utterance are drawn evenly."""

    rate: tuple[int, int]
    """Words a minute."""
    pitch: tuple[int, int]
    """From 0 to 99; 50 is the voice's own."""
    snr: tuple[float, float]
    """Level of the speech over the noise, in decibels."""
    level: tuple[float, float] = (-29.0, -21.0)
    """Level of the speech, in decibels below full scale."""
    pause: tuple[float, float] = (0.05, 0.2)
    """Silence before and after the speech, in seconds."""


def check_installed() -> None:
    """Raise a `UserError` when espeak-ng is not installed."""
    if importlib.util.find_spec("espeakng_loader") is None:
        raise UserError('The demo corpus needs espeakng-loader: run pip install "priormatch[demo]" first.')


def record(
    sentences: Sequence[str], voice: str, conditions: Conditions, rng: np.random.Generator
) -> list[npt.NDArray[np.int16]]:
    """Speak the sentences in one voice, each in circumstances of its own; 16 kHz, 16 bits."""
    requests = [
        (text, voice, _integer(rng, conditions.rate), _integer(rng, conditions.pitch)) for text in sentences
    ]
    return [_room(speech, conditions, rng) for speech in _speak(requests)]


def _integer(rng: np.random.Generator, bounds: tuple[int, int]) -> int:
    return int(rng.integers(bounds[0], bounds[1], endpoint=True))


def _speak(requests: Sequence[tuple[str, str, int, int]]) -> list[Samples]:
    """Run the espeak program on (text, voice, rate, pitch) requests; samples in [-1, 1) at its own rate."""
    command = [sys.executable, "-P", str(espeak.__file__)]
    answer = subprocess.run(command, input=json.dumps(requests).encode(), capture_output=True)
    if answer.returncode != 0:
        last_line = (answer.stderr.decode(errors="replace").strip() or "no message").splitlines()[-1]
        raise UserError(
            f"espeak-ng failed with exit code {answer.returncode} ({last_line}): "
            "try pip install --force-reinstall espeakng-loader."
        )
    spoken: list[Samples] = []
    position = 0
    for text, voice, *_ in requests:
        start = position + 4
        position = start + int.from_bytes(answer.stdout[position:start], "little")
        if position == start:
            raise RuntimeError(f"espeak-ng said nothing for {text!r} in the voice {voice}")
        spoken.append(np.frombuffer(answer.stdout[start:position], np.int16) / np.float32(32768))
    return spoken


def _room(speech: Samples, conditions: Conditions, rng: np.random.Generator) -> npt.NDArray[np.int16]:
    """Resample to 16 kHz, set the level, add pauses and noise; never clipped."""
    common = int(np.gcd(SAMPLE_RATE, espeak.SAMPLE_RATE))
    speech = resample_poly(speech, SAMPLE_RATE // common, espeak.SAMPLE_RATE // common)
    before, after = (round(rng.uniform(*conditions.pause) * SAMPLE_RATE) for _ in range(2))
    after += -(before + len(speech) + after) % FRAME
    level = 10 ** (rng.uniform(*conditions.level) / 20)
    noise_level = level / 10 ** (rng.uniform(*conditions.snr) / 20)
    clean = np.pad(speech * (level / _rms(speech)), (before, after))
    darkness = rng.uniform(0.0, 0.9)  # from a hiss to a rumble
    noise = lfilter([1.0], [1.0, -darkness], rng.standard_normal(len(clean), np.float32))
    noisy = clean + noise * (noise_level / _rms(noise))
    noisy *= min(1.0, 0.98 / np.abs(noisy).max())
    samples: npt.NDArray[np.int16] = np.round(noisy * 32767).astype(np.int16)
    return samples


def _rms(samples: Samples) -> float:
    return float(np.sqrt(np.mean(np.square(samples))))
