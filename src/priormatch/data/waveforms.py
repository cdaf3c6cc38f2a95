"""Read the samples of a cut: directly if the file is plain 16-bit audio at 16 kHz, else through Lhotse."""

import os
import stat
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import soundfile
import torch

from priormatch.data import SAMPLE_RATE

if TYPE_CHECKING:  # lhotse is slow to import
    from lhotse import Recording
    from lhotse.cut import Cut

FULL_SCALE = 32768  # 1.0 in int16
LOUDEST = 65536.0
"""The largest sample: floats may exceed 1, and some tools write 16-bit integers unscaled; above it is damage."""
MISSING_SECONDS = 0.1  # of audio that an inexact manifest may declare too much; above it, the file is damaged
WAV_HEADER = struct.Struct("<4sI4s4sIHHIIHH4sI")
"""RIFF, its length, WAVE, fmt, its length, format, channels, rate, bytes per second, block, bits, data, its length."""


def read_samples(cut: "Cut") -> np.ndarray:
    """Read the first channel of a cut at 16 kHz: (N,).

    The samples are int16 if the file has 16 bits at 16 kHz, and float32 in [-1, 1] otherwise.
    """
    samples = _read_plainly(cut)
    return read_with_lhotse(cut) if samples is None else samples


def read_with_lhotse(cut: "Cut") -> np.ndarray:
    """Read a cut as `read_samples` does, as float32, with Lhotse, which also repairs small differences in length."""
    from priormatch.data.resample import with_sinc

    _require_files(cut)
    _make_lhotse_strict()
    if cut.sampling_rate != SAMPLE_RATE:
        cut = cut.resample(SAMPLE_RATE)
    with one_thread(), soundfile_alone():
        samples = with_sinc(cut).load_audio()[0]
    require_sane(samples)
    return samples


def require_sane(samples: np.ndarray) -> None:
    """Raise `ValueError` for samples that no recording has: not numbers, or far beyond full scale."""
    peak = max(samples.max(initial=0), -samples.min(initial=0))
    if not peak <= LOUDEST:  # False for NaN
        what = f"of {peak:.3g}, where full scale is 1" if np.isfinite(peak) else "that are not finite numbers"
        raise ValueError(f"has samples {what}")


def as_float(samples: np.ndarray) -> np.ndarray:
    """Convert samples to float32 in [-1, 1]; exact for int16."""
    return samples * np.float32(1 / FULL_SCALE) if samples.dtype == np.int16 else samples


def to_int16(samples: np.ndarray) -> tuple[np.ndarray, int]:
    """Round samples (N,) to int16 and count those louder than full scale; int16 is returned unchanged."""
    if samples.dtype == np.int16:
        return samples, 0
    rounded = np.rint(samples * np.float32(FULL_SCALE)).clip(-FULL_SCALE, FULL_SCALE - 1).astype(np.int16)
    return rounded, int(np.count_nonzero(np.abs(samples) > 1))


def why_unreadable(cut: "Cut", error: Exception) -> str:
    """Describe in one sentence why reading the audio of a cut raised an error."""
    from priormatch.data.audio import BadAudio, check_audio

    if isinstance(error, BadAudio):
        return str(error)
    recording = getattr(cut, "recording", None)
    for source in recording.sources if recording is not None else []:
        if source.type == "file" and (reason := check_audio(Path(source.source))):
            return f"{source.source}: {reason}"
    return f"{type(error).__name__}: {error}".splitlines()[0][
        :200
    ]  # Lhotse's messages repeat half the manifest


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread: the last bit of Lhotse's change of speed depends on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def soundfile_alone() -> Iterator[None]:
    """Make Lhotse decode with libsndfile only: other decoders differ between machines and accept damaged files."""
    from lhotse.audio.backend import (
        LibsndfileBackend,
        get_current_audio_backend,
        set_current_audio_backend,
    )

    before = get_current_audio_backend()
    set_current_audio_backend(LibsndfileBackend())
    try:
        yield
    finally:
        set_current_audio_backend(before)


def _require_files(cut: "Cut") -> None:
    """Refuse a cut made in Python or read by Lhotse if its audio is not only in files: Lhotse runs commands."""
    from lhotse.cut import MixedCut, PaddingCut

    from priormatch.data.audio import BadAudio, check_header
    from priormatch.data.cuts import why_refused

    for part in [track.cut for track in cut.tracks] if isinstance(cut, MixedCut) else [cut]:
        if isinstance(part, PaddingCut):
            continue
        if isinstance(part, MixedCut) or not part.has_recording:
            raise BadAudio(Path(cut.id), "the cut has no audio")
        if reason := why_refused(part.recording):
            raise BadAudio(Path(cut.id), reason)
        for source in part.recording.sources:
            check_header(Path(source.source))


@cache
def _make_lhotse_strict() -> None:
    """Keep Lhotse from padding half a second of missing audio."""
    from lhotse import set_audio_duration_mismatch_tolerance

    with warnings.catch_warnings(action="ignore"):
        set_audio_duration_mismatch_tolerance(MISSING_SECONDS)


def _read_plainly(cut: "Cut") -> np.ndarray | None:
    """Read a cut as (N,) int16; return None if its file is not 16-bit audio exactly as in the manifest.

    Any other problem is left for Lhotse to find and report.
    """
    from lhotse import MonoCut
    from lhotse.utils import compute_num_samples

    recording = cut.recording if isinstance(cut, MonoCut) and cut.has_recording else None
    if recording is None or recording.sampling_rate != SAMPLE_RATE or recording.transforms:
        return None
    source = recording.sources[0]
    if len(recording.sources) > 1 or source.type != "file" or cut.channel not in source.channels:
        return None
    start = compute_num_samples(cut.start, SAMPLE_RATE)
    end = start + compute_num_samples(cut.duration, SAMPLE_RATE)
    try:
        samples = _read_wav(source.source, recording, start, end)
        samples = _decode(source.source, recording, start, end) if samples is None else samples
    except (OSError, ValueError, struct.error, soundfile.LibsndfileError):
        return None
    if samples is None or len(samples) != end - start:
        return None
    return samples[:, source.channels.index(cut.channel)]


def _read_wav(path: str, recording: "Recording", start: int, end: int) -> np.ndarray | None:
    """Read frames of a plain 16-bit WAV file: (end - start, channels); None for any other file.

    The file is not memory-mapped: truncating a mapped file kills the process.
    """
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # do not wait for the writer of a named pipe
    try:
        state = os.fstat(file)
        if not stat.S_ISREG(state.st_mode):
            raise OSError(f"{path} is not a regular file")
        channels, frames = recording.num_channels, recording.num_samples
        block = 2 * channels
        if not 0 <= start <= end <= frames or state.st_size < WAV_HEADER.size + block * frames:
            return None
        if os.pread(file, WAV_HEADER.size, 0) != wav_header(frames, channels):
            return None
        content = os.pread(file, block * (end - start), WAV_HEADER.size + block * start)
    finally:
        os.close(file)
    if len(content) < block * (end - start):
        return None
    return np.frombuffer(content, "<i2").reshape(-1, channels)


def wav_header(frames: int, channels: int = 1) -> bytes:
    """Return the first 44 bytes of a 16-bit WAV file at 16 kHz."""
    block = 2 * channels
    length = block * frames
    return WAV_HEADER.pack(
        *(b"RIFF", WAV_HEADER.size - 8 + length, b"WAVE"),
        *(b"fmt ", 16, 1, channels, SAMPLE_RATE, SAMPLE_RATE * block, block, 16),
        *(b"data", length),
    )


def _decode(path: str, recording: "Recording", start: int, end: int) -> np.ndarray | None:
    """Decode frames of a 16-bit file: (end - start, channels); None if depth, length, rate or channels differ."""
    with soundfile.SoundFile(path) as sound:
        promised = (recording.num_samples, SAMPLE_RATE, recording.num_channels)
        if sound.subtype != "PCM_16" or (sound.frames, sound.samplerate, sound.channels) != promised:
            return None
        if start > 0:
            sound.seek(start)
        return sound.read(end - start, dtype="int16", always_2d=True)
