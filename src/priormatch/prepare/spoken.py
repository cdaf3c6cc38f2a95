"""Shared code of the synthesized corpora: espeak-ng voices, silence, noise, parallel jobs and files."""

import gzip
import importlib.util
import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from lhotse import MonoCut

from priormatch.data import SAMPLE_RATE
from priormatch.data.clips import at_model_rate
from priormatch.data.waveforms import wav_header
from priormatch.errors import UserError
from priormatch.files import writing
from priormatch.prepare import espeak
from priormatch.processes import follow

Job = TypeVar("Job")
Result = TypeVar("Result")

FRAME = SAMPLE_RATE // 100
"""Utterances last a whole number of hundredths of a second, so that their times have few decimals."""

Samples = npt.NDArray[np.floating]
Request = tuple[str, str, int, int]
"""A text, a voice (`accent+variant`), words per minute, and a pitch from 0 to 99."""


def check_installed() -> None:
    """Raise `UserError` if espeak-ng is not installed."""
    if importlib.util.find_spec("espeakng_loader") is None:
        raise UserError('Synthesized corpora need espeakng-loader: run pip install "priormatch[demo]" first.')


def speak(requests: Sequence[Request]) -> list[Samples]:
    """Run the espeak program on requests; return samples in [-1, 1] at 16 kHz, each (N,)."""
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
            raise RuntimeError(f"espeak-ng gave no samples for {text!r} in the voice {voice}")
        samples = np.frombuffer(answer.stdout[start:position], np.int16) / np.float32(32768)
        spoken.append(at_model_rate(samples, espeak.SAMPLE_RATE))
    return spoken


def in_noise(clean: Samples, noise_level: float, rng: np.random.Generator) -> npt.NDArray[np.int16]:
    """Add noise of a random color and of root mean square `noise_level`, without clipping: (N,) -> (N,) int16."""
    darkness = rng.uniform(0.0, 0.9)  # from hiss to rumble
    noise = darkened(rng.standard_normal(len(clean), np.float32), darkness)
    noisy = clean + noise * (noise_level / rms(noise))
    noisy *= min(1.0, 0.98 / np.abs(noisy).max())
    samples: npt.NDArray[np.int16] = np.round(noisy * 32767).astype(np.int16)
    return samples


def silence_around(
    speech: Samples, seconds: tuple[float, float], rng: np.random.Generator
) -> tuple[int, int]:
    """Draw the samples of silence before and after speech; with them it lasts a whole number of `FRAME`s."""
    before, after = (round(rng.uniform(*seconds) * SAMPLE_RATE) for _ in range(2))
    return before, after + -(before + len(speech) + after) % FRAME


def darkened(noise: Samples, darkness: float) -> Samples:
    """Filter noise with y[n] = x[n] + darkness·y[n-1], in float64: (N,) -> (N,).

    1 / (1 - d/z) = (1 + d/z)(1 + d²/z²)(1 + d⁴/z⁴)...; nine factors are 512 terms, and 0.9⁵¹² is below rounding.
    """
    filtered = noise.astype(np.float64)
    for lag in (1 << power for power in range(9)):
        filtered[lag:] += darkness**lag * filtered[:-lag]
    return filtered


def rms(samples: Samples) -> float:
    """Return the root mean square of samples."""
    return float(np.sqrt(np.mean(np.square(samples))))


def amplitude(decibels: float) -> float:
    """Return the root mean square of a level in decibels relative to full scale."""
    return float(10 ** (decibels / 20))


@contextmanager
def in_parallel(
    function: Callable[[Job], Result], jobs: Sequence[Job], at_once: int, apart: bool = False
) -> Iterator[Iterator[Result]]:
    """Run jobs in parallel and yield their results in order; jobs not started at the end are canceled.

    Threads are enough for a few jobs: each waits for an espeak process or for NumPy. With more, the GIL limits them,
    and separate processes (`apart`) are better.
    """
    pool: Executor = (
        ProcessPoolExecutor(at_once, multiprocessing.get_context("spawn"), follow, (os.getpid(),))
        if apart and at_once > 1
        else ThreadPoolExecutor(at_once)
    )
    try:
        yield pool.map(function, jobs)
    finally:
        pool.shutdown(cancel_futures=True)


def without_text(cut: MonoCut) -> MonoCut:
    """Return the same utterance without its transcript."""
    return cut.map_supervisions(lambda supervision: replace(supervision, text=None))


def wav_bytes(samples: npt.NDArray[np.int16]) -> bytes:
    """Return the contents of a WAV file of samples at 16 kHz, (N,)."""
    return wav_header(len(samples)) + samples.astype("<i2").tobytes()


def write_cuts(path: Path, cuts: Iterable[MonoCut]) -> None:
    """Write a manifest whose bytes depend only on the cuts (Lhotse's writer adds the time)."""
    lines = "".join(json.dumps(cut.to_dict()) + "\n" for cut in cuts)
    content = gzip.compress(lines.encode(), mtime=0)
    with writing(path, len(content)):
        path.write_bytes(content)
