"""Speech made on the spot: espeak-ng's voices, brought to 16 kHz, in some noise."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter, resample_poly

from priormatch.data import SAMPLE_RATE, espeak
from priormatch.errors import UserError

FRAME = SAMPLE_RATE // 100
"""Utterances last a whole number of hundredths of a second, so that their times are short decimals."""

Samples = npt.NDArray[np.floating]
Request = tuple[str, str, int, int]
"""A text, a voice (`accent+variant`), words a minute, and a pitch from 0 to 99."""


def check_installed() -> None:
    """Raise a `UserError` when espeak-ng is not installed."""
    if importlib.util.find_spec("espeakng_loader") is None:
        raise UserError(
            'Spoken corpora are made with espeakng-loader: run pip install "priormatch[demo]" first.'
        )


def speak(requests: Sequence[Request]) -> list[Samples]:
    """Run the espeak program on requests; samples in [-1, 1) at its own rate."""
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


def resample(speech: Samples) -> Samples:
    """Bring espeak's samples to 16 kHz."""
    common = int(np.gcd(SAMPLE_RATE, espeak.SAMPLE_RATE))
    resampled: Samples = resample_poly(speech, SAMPLE_RATE // common, espeak.SAMPLE_RATE // common)
    return resampled


def in_noise(clean: Samples, noise_level: float, rng: np.random.Generator) -> npt.NDArray[np.int16]:
    """Add noise of some colour whose root mean square is `noise_level`; 16 bits, never clipped."""
    darkness = rng.uniform(0.0, 0.9)  # from a hiss to a rumble
    noise = lfilter([1.0], [1.0, -darkness], rng.standard_normal(len(clean), np.float32))
    noisy = clean + noise * (noise_level / rms(noise))
    noisy *= min(1.0, 0.98 / np.abs(noisy).max())
    samples: npt.NDArray[np.int16] = np.round(noisy * 32767).astype(np.int16)
    return samples


def rms(samples: Samples) -> float:
    """The root mean square of samples."""
    return float(np.sqrt(np.mean(np.square(samples))))


def amplitude(decibels: float) -> float:
    """The root mean square of a level in decibels, full scale being 0."""
    return float(10 ** (decibels / 20))
