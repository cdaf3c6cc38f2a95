"""Cut recordings of any length, rate and number of channels into clips of speech that a recognizer can decode."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from priormatch.data import SAMPLE_RATE
from priormatch.data.audio import SLOWEST, BadAudio, can_resample, decoded_blocks, open_sound, read_block
from priormatch.data.ffmpeg import playable
from priormatch.data.pauses import FRAMES, Cutting, Levels, cut_at_pauses, frame_levels
from priormatch.data.resample import resample
from priormatch.data.waveforms import require_sane
from priormatch.errors import UserError

BLOCK_SECONDS = 60  # decoded at a time: at any rate, whole seconds contain whole frames
BLOCK_SAMPLES = 1 << 24  # at most, over all channels, unless one second has more

WANTED = "provide a path, samples (N,) or (N, channels), or a pair of samples and their rate"

ToMono = Callable[[np.ndarray], np.ndarray]
"""Samples (N, channels) -> (N,)."""


class Clip(NamedTuple):
    """A segment of a recording: its start in seconds, and its samples at 16 kHz, (N,) float32."""

    start: float
    samples: np.ndarray

    @property
    def seconds(self) -> float:
        """Duration in seconds."""
        return len(self.samples) / SAMPLE_RATE


class Recording(NamedTuple):
    """A recording that passed its checks: its duration in seconds, and its clips, which are read lazily."""

    seconds: float
    clips: Iterator[Clip]


def open_file(path: Path, cutting: Cutting) -> Recording:
    """Find the pauses of an audio file and cut it into clips; raise `BadAudio` if it is unusable.

    Channels are mixed. Only the levels of all frames and one clip at a time are in memory. A file that ffmpeg must
    decode is on disk, decoded, until its last clip has been read.
    """
    with ExitStack() as until_read:
        file = until_read.enter_context(playable(path))
        levels = file_levels(file, mixed)
        seconds = min(file_seconds(file), len(levels) / FRAMES)  # the header of an MP3 may give more
        clips = _clips_of_file(file, cut_at_pauses(levels, cutting))
        return Recording(seconds, _until_read(clips, until_read.pop_all()))


def _until_read(clips: Iterator[Clip], open_files: ExitStack) -> Iterator[Clip]:
    with open_files:
        yield from clips


def open_samples(samples: Any, rate: int, cutting: Cutting) -> Recording:
    """Cut samples into clips: (N,) or (N, channels), floats in [-1, 1] or full-scale signed integers."""
    mono = _checked(samples, rate)
    spans = cut_at_pauses(frame_levels(mono, rate), cutting)
    clips = (_clip(mono[_samples(start, rate) : _samples(end, rate)], start, rate) for start, end in spans)
    return Recording(len(mono) / rate, clips)


def file_levels(path: Path, to_mono: ToMono) -> Levels:
    """Measure the levels of an audio file's frames, reading every sample; raise `BadAudio` if it is damaged."""
    try:
        with open_sound(path) as sound:
            rate = sound.samplerate
            seconds = min(BLOCK_SECONDS, max(1, BLOCK_SAMPLES // (rate * sound.channels)))
            blocks = decoded_blocks(sound, seconds * rate)
            return np.concatenate([frame_levels(to_mono(block), rate) for block in blocks])
    except ValueError as error:
        raise BadAudio(path, str(error)) from error


def file_seconds(path: Path) -> float:
    """Return the duration of an audio file in seconds, according to its header."""
    with open_sound(path) as sound:
        return sound.frames / sound.samplerate


def mixed(block: np.ndarray) -> np.ndarray:
    """Average the channels: (N, channels) -> (N,)."""
    return block.mean(axis=1)


def at_model_rate(samples: np.ndarray, rate: int) -> np.ndarray:
    """Resample samples (N,) of any rate to 16 kHz, float32."""
    return resample(samples, rate, SAMPLE_RATE)


def _clips_of_file(path: Path, spans: list[tuple[int, int]]) -> Iterator[Clip]:
    with open_sound(path) as sound:
        rate = sound.samplerate
        for start, end in spans:
            sound.seek(_samples(start, rate))
            try:  # with a damaged header, this read may fail although the first one did not
                block = read_block(sound, _samples(end, rate) - sound.tell())
            except ValueError as error:
                raise BadAudio(path, str(error)) from error
            yield _clip(mixed(block), start, rate)


def _clip(samples: np.ndarray, start: int, rate: int) -> Clip:
    return Clip(start / FRAMES, at_model_rate(samples, rate))


def _samples(frames: int, rate: int) -> int:
    """Return the number of samples before a frame."""
    return frames * rate // FRAMES


def _checked(given: Any, rate: Any) -> np.ndarray:
    """Check samples given from Python and return them as float32 (N,)."""
    _require_rate(rate)
    samples = _array_of(given)
    if samples.ndim == 1:
        samples = samples[:, None]
    if samples.ndim != 2 or samples.shape[1] > max(len(samples), 1):
        turned = ", its transpose" if samples.ndim == 2 else ""
        raise UserError(
            f"samples of shape {samples.shape} are not a recording: pass (N,) or (N, channels){turned}"
        )
    if np.issubdtype(samples.dtype, np.signedinteger):
        samples = samples / -float(np.iinfo(samples.dtype).min)
    elif not np.issubdtype(samples.dtype, np.floating):
        raise UserError(f"samples of type {samples.dtype} are not audio: use floats in [-1, 1] or int16")
    try:
        require_sane(samples)
    except ValueError as error:
        raise UserError(f"the recording {error}: use floats in [-1, 1]") from error
    return mixed(samples).astype(np.float32)


def _require_rate(rate: Any) -> None:
    """Raise `UserError` unless a sampling rate is a number that can be resampled to 16 kHz."""
    if isinstance(rate, int | np.integer) and not isinstance(rate, bool) and rate >= SLOWEST:
        if can_resample(int(rate)):
            return
        raise UserError(f"rate={rate} cannot be resampled to {SAMPLE_RATE} Hz: resample the samples first")
    shown = f"an array of shape {np.shape(rate)}" if np.ndim(rate) else repr(rate)
    raise UserError(f"rate={shown}: provide the sampling rate in Hz as a whole number, such as 16000")


def _array_of(given: Any) -> np.ndarray:
    """Convert what was given as samples to an array."""
    try:
        return np.asarray(given.detach().cpu() if hasattr(given, "detach") else given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"a {type(given).__name__} that is no array is not a recording: {WANTED}") from error
