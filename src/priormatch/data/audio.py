"""Check audio files and describe them to Lhotse."""

import math
import os
import struct
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import BinaryIO, NamedTuple

import numpy as np
import soundfile
from lhotse import Recording
from lhotse.audio import AudioSource

from priormatch.data import SAMPLE_RATE
from priormatch.data.waveforms import require_sane
from priormatch.errors import UserError
from priormatch.files import open_regular
from priormatch.progress import count_text

SUFFIXES = (
    *(".aif", ".aifc", ".aiff", ".au", ".caf", ".flac", ".mp3", ".nist", ".oga", ".ogg"),
    *(".opus", ".rf64", ".snd", ".sph", ".voc", ".w64", ".wav", ".wave"),
)
"""Suffixes that soundfile can read, used to search folders; a file given by name may have any suffix."""

FOREIGN = (
    *(".3gp", ".aac", ".ac3", ".amr", ".ape", ".avi", ".dss", ".flv", ".m4a", ".m4b", ".m4v", ".mka", ".mkv"),
    *(".mov", ".mp4", ".mpeg", ".mpg", ".spx", ".webm", ".wma", ".wmv", ".wv"),
)
"""Suffixes of audio and video files that soundfile cannot read."""

BLOCK = 1 << 19
MP3 = "MP3"
UNKNOWN_LENGTH = 0x7FFF_F000  # tools that write WAV to a pipe declare this many bytes or more
MOST_CHUNKS = 1000  # in a WAV file before its samples
LONGEST_FILE = 1 << 40  # frames; libsndfile reports more than this when the header gives no length
SLOWEST, FASTEST = 2000, 768_000  # Hz: too low for speech below, above every converter beyond
MOST_CHANNELS = 64
MOST_HOURS = 1000  # of one file, times its channels
LARGEST_STEP = (
    16_000  # of the reduced ratio of the file's rate to ours; a resampling filter is as long as this
)
LARGEST_KERNEL = 1 << 24
"""Values in the kernel of Lhotse's resampler, up times down of the reduced ratio: 22,255 Hz fits, no prime does."""


class BadAudio(Exception):
    """An audio file that cannot be used, with the reason; `kind` is a short form of the reason."""

    def __init__(self, path: Path, reason: str, kind: str = "audio unreadable") -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason, self.kind = path, reason, kind


class Header(NamedTuple):
    """What the header of an audio file says; the length of an MP3 may be only an estimate."""

    rate: int
    channels: int
    seconds: float
    exact: bool = True

    def __str__(self) -> str:
        return f"{self.rate:,} Hz, {count_text(self.channels, 'channel')}, {self.seconds:.2f} s"


def audio_in(folder: Path, suffixes: Collection[str] = SUFFIXES) -> list[Path]:
    """List the audio files under a folder by suffix, sorted; raise `UserError` if there are none."""
    found = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in suffixes and not path.name.startswith(".") and not path.is_dir()
    )
    if not found:
        raise UserError(f"{folder} contains no audio ({' '.join(SUFFIXES)}): check the folder.")
    return found


def recordings_in(folder: Path) -> list[Path]:
    """List the recordings under a folder by suffix, including formats that must be converted first.

    A file in such a format is left out if a converted copy is beside it: talk.m4a beside talk.wav.
    """
    found = audio_in(folder, (*SUFFIXES, *FOREIGN))
    ready = {path: path.suffix.lower() in SUFFIXES for path in found}
    converted = {path.with_suffix("") for path in found if ready[path]}
    return [path for path in found if ready[path] or path.with_suffix("") not in converted]


def check_audio(path: Path, decode: bool = True) -> str | None:
    """Return why an audio file cannot be used, or None if it can.

    With `decode`, every sample is read. Without it, only the header and the last frame are read. This takes a tenth
    of a millisecond and finds truncated files, but not damage in the middle.
    """
    try:
        count_frames(path, decode)
    except BadAudio as bad:
        return bad.reason
    return None


def count_frames(path: Path, decode: bool = True) -> int:
    """Count the frames that an audio file decodes to; raise `BadAudio` if it cannot be used (see `check_audio`).

    MP3s are always decoded: libsndfile may only estimate their length.
    """
    with open_sound(path) as sound:
        try:
            if decode or sound.format == MP3:
                return sum(map(len, decoded_blocks(sound)))
            _require_end(sound)
        except ValueError as reason:
            raise BadAudio(path, str(reason)) from reason
        return int(sound.frames)


def read_header(path: Path) -> Header:
    """Read the header of an audio file; raise `BadAudio` if it is unusable or, unless it is an MP3, has no end."""
    with open_sound(path) as sound:
        try:
            if sound.format != MP3:  # in which seeking decodes everything before
                _require_end(sound)
        except ValueError as reason:
            raise BadAudio(path, str(reason)) from reason
        seconds = sound.frames / sound.samplerate
        return Header(sound.samplerate, sound.channels, seconds, not _estimated(sound))


@contextmanager
def open_sound(path: Path) -> Iterator[soundfile.SoundFile]:
    """Open an audio file; raise `BadAudio` if it is not audio, or if its header and its length disagree.

    Limits on the rate, the channels, and the length times the channels bound the cost of decoding.
    """
    try:
        str(path).encode()
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise BadAudio(path, "the file is empty")
            missing = _missing_wav_bytes(file)
        if path.suffix.lower() == ".raw":
            raise BadAudio(path, "cannot be opened: raw samples have no sampling rate; convert it to WAV")
        with soundfile.SoundFile(path) as sound:
            if sound.frames <= 0:
                raise BadAudio(path, "contains no audio")
            if sound.frames > LONGEST_FILE:
                raise BadAudio(path, "the header does not give the length of the audio")
            if reason := why_unbounded(sound):
                raise BadAudio(path, reason)
            if missing:
                raise BadAudio(path, f"truncated: {missing} bytes are missing at the end")
            yield sound
    except UnicodeEncodeError:
        raise BadAudio(path, "the file's name is not valid UTF-8: rename it") from None
    except OSError as error:
        raise BadAudio(path, f"cannot be opened: {error.strerror}") from error
    except soundfile.LibsndfileError as error:
        raise BadAudio(path, f"cannot be opened: {_why_not(path, error)}") from error


def why_unbounded(sound: soundfile.SoundFile) -> str | None:
    """Return why audio must not be decoded: a header outside the limits of speech could cost any memory and time."""
    rate, channels = sound.samplerate, sound.channels
    if rate < SLOWEST:
        return f"has a sampling rate of {rate} Hz, too low for speech"
    if not can_resample(rate):
        return f"has a sampling rate of {rate} Hz: convert it with `ffmpeg -i IN -ar {SAMPLE_RATE} OUT.wav`"
    if channels > MOST_CHANNELS:
        return f"has {channels} channels, more than {MOST_CHANNELS}: extract those with speech"
    if (hours := sound.frames / rate * channels / 3600) > MOST_HOURS:
        return f"lasts {hours:,.0f} hours over all channels, more than {MOST_HOURS:,}: cut it into parts"
    return None


def can_resample(rate: int) -> bool:
    """Return whether our filter resamples this rate to 16 kHz in little memory."""
    return rate <= FASTEST and rate // math.gcd(rate, SAMPLE_RATE) <= LARGEST_STEP


def check_header(path: Path) -> None:
    """Raise `BadAudio` for a file that must not be decoded, or libsndfile's own error for a file without audio."""
    try:
        open_regular(path).close()
    except OSError as error:
        raise BadAudio(path, f"cannot be opened: {error.strerror}") from error
    with soundfile.SoundFile(path) as sound:
        if reason := why_unbounded(sound):
            raise BadAudio(path, reason)


def _why_not(path: Path, error: soundfile.LibsndfileError) -> str:
    """Return why a file cannot be opened, and how to fix it."""
    reason = error.error_string.strip().rstrip(".") or "not an audio file"
    if "does not exist" in reason and path.is_file():  # libsndfile says so of an .mp3 without MP3 frames
        reason = "not an audio file"
    if path.suffix.lower() not in SUFFIXES:
        names = f"{quote(path.name)} {quote(path.with_suffix('.wav').name)}"
        return f"{reason}; if it is a recording, convert it: ffmpeg -i {names}"
    fork = path.with_name(f"._{path.name}")  # libsndfile takes this for part of an MP3
    return f"delete {fork.name}, which macOS left next to it" if fork.exists() else reason


def open_recording(path: Path, recording_id: str, decode: bool) -> Recording:
    """Check an audio file and describe it as a recording at 16 kHz; raise `BadAudio` if it is unusable."""
    frames = count_frames(path, decode)
    info = soundfile.info(path)
    if reason := why_not_resampled(info.samplerate):
        raise BadAudio(path, reason)
    recording = Recording(
        id=recording_id,
        sources=[AudioSource(type="file", channels=list(range(info.channels)), source=str(path.absolute()))],
        sampling_rate=info.samplerate,
        num_samples=frames,
        duration=frames / info.samplerate,
    )
    return recording if info.samplerate == SAMPLE_RATE else recording.resample(SAMPLE_RATE)


def why_not_resampled(rate: int, to: int = SAMPLE_RATE) -> str | None:
    """Return why Lhotse must not resample audio: the reduced ratio of the rates would need gigabytes."""
    common = math.gcd(rate, to)
    if (rate // common) * (to // common) <= LARGEST_KERNEL:
        return None
    return f"{rate} Hz cannot be resampled to {to} Hz: convert it with `ffmpeg -i IN -ar {to} OUT.wav`"


def recording_at(file: Path, samples: int) -> Recording:
    """Describe a 16 kHz WAV file with one channel and the given number of samples; its id is the file's stem."""
    source = AudioSource(type="file", channels=[0], source=str(file))
    return Recording(file.stem, [source], SAMPLE_RATE, samples, samples / SAMPLE_RATE)


def read_block(sound: soundfile.SoundFile, frames: int) -> np.ndarray:
    """Read the next samples of a file, (frames, channels) float32; raise `ValueError` if they are damaged."""
    try:
        block: np.ndarray = sound.read(frames, dtype="float32", always_2d=True)
    except (soundfile.LibsndfileError, ValueError) as error:  # ValueError: the header pointed beyond the end
        raise ValueError("truncated or damaged: it cannot be decoded completely") from error
    require_sane(block)
    return block


def decoded_blocks(sound: soundfile.SoundFile, frames: int = BLOCK) -> Iterator[np.ndarray]:
    """Yield all samples of a file in blocks, (frames, channels) float32; raise `ValueError` if they are damaged."""
    found = 0
    while len(block := read_block(sound, frames)):
        found += len(block)
        yield block
    if found < sound.frames and not _estimated(sound):
        raise ValueError(f"truncated: it has {found} of {sound.frames} frames")


def _estimated(sound: soundfile.SoundFile) -> bool:
    """Return whether libsndfile only estimates the length: from the size of an MP3 that does not declare it."""
    if sound.format != MP3:
        return False
    with open_regular(Path(sound.name)) as file:
        head = file.read(10)
        size = sum((byte & 127) << shift for byte, shift in zip(head[6:], (21, 14, 7, 0), strict=True))
        file.seek(10 + size if head.startswith(b"ID3") else 0)
        first = file.read(200)  # frame
    return not any(mark in first for mark in (b"Xing", b"Info", b"VBRI"))


def _require_end(sound: soundfile.SoundFile) -> None:
    """Raise `ValueError` if the last frame of a file cannot be read."""
    try:
        sound.seek(sound.frames - 1)
        if len(sound.read(1)):
            return
    except (soundfile.LibsndfileError, ValueError):
        pass
    raise ValueError(f"truncated: the last of {sound.frames} frames is missing")


def _missing_wav_bytes(file: BinaryIO) -> int:
    """Count the bytes that a WAV header declares beyond the end of the file; libsndfile does not check this."""
    if file.read(4) != b"RIFF":
        return 0
    file.seek(12)
    for _ in range(MOST_CHUNKS):
        if len(head := file.read(8)) < 8:
            break
        name, length = struct.unpack("<4sI", head)
        if name == b"data":
            promised = file.tell() + length
            return 0 if length >= UNKNOWN_LENGTH else max(0, promised - os.fstat(file.fileno()).st_size)
        file.seek(length + length % 2, os.SEEK_CUR)
    return 0
