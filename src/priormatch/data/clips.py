"""Recordings of any length, rate and number of channels, as clips of speech that a recognizer can hear."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.signal import resample_poly

from priormatch.data import SAMPLE_RATE
from priormatch.data.audio import FASTEST, SLOWEST, BadAudio, decoded_blocks, open_sound, read_block
from priormatch.data.pauses import FRAMES, Cutting, Levels, cut_at_pauses, frame_levels
from priormatch.data.waveforms import require_sane
from priormatch.errors import UserError

BLOCK_SECONDS = 60  # that are decoded at a time: whole seconds hold whole frames, at any rate
BLOCK_SAMPLES = 1 << 24  # at most, all channels counted, unless a second has more

ToMono = Callable[[np.ndarray], np.ndarray]
"""Samples (N, channels) -> (N,)."""


class Clip(NamedTuple):
    """A stretch of a recording: the second it begins at, and its samples at 16 kHz, (N,) float32."""

    start: float
    samples: np.ndarray

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return len(self.samples) / SAMPLE_RATE


class Recording(NamedTuple):
    """A recording that was found sound: its length in seconds, and its clips, which are read as they are taken."""

    seconds: float
    clips: Iterator[Clip]


def open_file(path: Path, cutting: Cutting) -> Recording:
    """Listen through an audio file for its pauses; raise `BadAudio` if it is unusable.

    Channels are mixed. In memory there are the levels of its frames and one clip at a time.
    """
    levels = file_levels(path, mixed)
    return Recording(file_seconds(path), _clips_of_file(path, cut_at_pauses(levels, cutting)))


def open_samples(samples: Any, rate: int, cutting: Cutting) -> Recording:
    """The same of samples (N,) or (N, channels), floats in [-1, 1] or signed integers of full scale."""
    mono = _checked(np.asarray(samples), rate)
    spans = cut_at_pauses(frame_levels(mono, rate), cutting)
    clips = (_clip(mono[_samples(start, rate) : _samples(end, rate)], start, rate) for start, end in spans)
    return Recording(len(mono) / rate, clips)


def file_levels(path: Path, to_mono: ToMono) -> Levels:
    """The levels of an audio file's frames, with every sample read; `BadAudio` tells what is wrong with it."""
    try:
        with open_sound(path) as sound:
            rate = sound.samplerate
            seconds = min(BLOCK_SECONDS, max(1, BLOCK_SAMPLES // (rate * sound.channels)))
            blocks = decoded_blocks(sound, seconds * rate)
            return np.concatenate([frame_levels(to_mono(block), rate) for block in blocks])
    except ValueError as error:
        raise BadAudio(path, str(error)) from error


def file_seconds(path: Path) -> float:
    """How long an audio file lasts according to its header."""
    with open_sound(path) as sound:
        return sound.frames / sound.samplerate


def mixed(block: np.ndarray) -> np.ndarray:
    """The mean of the channels."""
    return block.mean(axis=1)


def at_model_rate(samples: np.ndarray, rate: int) -> np.ndarray:
    """Samples (N,) of any rate at 16 kHz, float32."""
    common = math.gcd(rate, SAMPLE_RATE)
    if rate != SAMPLE_RATE:
        samples = resample_poly(samples, SAMPLE_RATE // common, rate // common)
    return samples.astype(np.float32, copy=False)


def _clips_of_file(path: Path, spans: list[tuple[int, int]]) -> Iterator[Clip]:
    with open_sound(path) as sound:
        rate = sound.samplerate
        for start, end in spans:
            sound.seek(_samples(start, rate))
            try:  # a damaged header may lead elsewhere than in the first reading
                block = read_block(sound, _samples(end, rate) - sound.tell())
            except ValueError as error:
                raise BadAudio(path, str(error)) from error
            yield _clip(mixed(block), start, rate)


def _clip(samples: np.ndarray, start: int, rate: int) -> Clip:
    return Clip(start / FRAMES, at_model_rate(samples, rate))


def _samples(frames: int, rate: int) -> int:
    """How many samples there are before a frame."""
    return frames * rate // FRAMES


def _checked(samples: np.ndarray, rate: int) -> np.ndarray:
    """Samples given from Python as float32 (N,)."""
    if not SLOWEST <= rate <= FASTEST:
        raise UserError(f"rate={rate}: give the samples a second, such as 16000")
    if samples.ndim == 1:
        samples = samples[:, None]
    if samples.ndim != 2 or samples.shape[1] > max(len(samples), 1):
        raise UserError(f"samples of the shape {samples.shape} are no recording: give (N,) or (N, channels)")
    if np.issubdtype(samples.dtype, np.signedinteger):
        samples = samples / -float(np.iinfo(samples.dtype).min)
    elif not np.issubdtype(samples.dtype, np.floating):
        raise UserError(f"samples of the type {samples.dtype} are no audio: give floats in [-1, 1] or int16")
    try:
        require_sane(samples)
    except ValueError as error:
        raise UserError(f"the recording {error}: give floats in [-1, 1]") from error
    return mixed(samples).astype(np.float32)
