"""Audio files: can each be trusted, and what does Lhotse need to know of it."""

import math
import os
import struct
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import BinaryIO

import numpy as np
import soundfile
from lhotse import Recording
from lhotse.audio import AudioSource

from priormatch.data import SAMPLE_RATE
from priormatch.data.waveforms import require_sane
from priormatch.errors import UserError
from priormatch.files import open_regular

SUFFIXES = (
    *(".aif", ".aifc", ".aiff", ".au", ".caf", ".flac", ".mp3", ".nist", ".oga", ".ogg"),
    *(".opus", ".rf64", ".snd", ".sph", ".voc", ".w64", ".wav", ".wave"),
)
"""Of files in a folder that soundfile can read; a file that is named itself may have any."""

FOREIGN = (
    *(".3gp", ".aac", ".ac3", ".amr", ".ape", ".avi", ".dss", ".flv", ".m4a", ".m4b", ".m4v", ".mka", ".mkv"),
    *(".mov", ".mp4", ".mpeg", ".mpg", ".spx", ".webm", ".wma", ".wmv", ".wv"),
)
"""Of recordings, and of films, that it cannot read."""

BLOCK = 1 << 19
UNKNOWN_LENGTH = 0x7FFF_F000  # recorders that write WAV to a pipe promise this many bytes or more
MOST_CHUNKS = 1000  # of a WAV file before its samples
LONGEST_FILE = 1 << 40  # frames; libsndfile reports a number beyond this when the header gives no length
SLOWEST, FASTEST = 2000, 768_000  # samples a second: no speech is left below, and no converter has more
MOST_CHANNELS = 64
MOST_HOURS = 1000  # of one file, times its channels
LARGEST_STEP = 16_000  # of the rate's reduced ratio to ours, which the filter of a resampler is as long as
LARGEST_KERNEL = 1 << 24
"""Values in the kernel of Lhotse's resampler, up times down of the reduced ratio: 22,255 Hz fits, no prime does."""


class BadAudio(Exception):
    """A file that cannot be used, with the reason; `kind` is that in a few words."""

    def __init__(self, path: Path, reason: str, kind: str = "audio unreadable") -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason, self.kind = path, reason, kind


def audio_in(folder: Path, suffixes: Collection[str] = SUFFIXES) -> list[Path]:
    """All that is audio by its name in a folder and below it, in order; there must be some."""
    found = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in suffixes and not path.name.startswith(".") and not path.is_dir()
    )
    if not found:
        raise UserError(f"{folder} holds no audio ({' '.join(SUFFIXES)}): check the folder.")
    return found


def recordings_in(folder: Path) -> list[Path]:
    """All recordings by their names in a folder and below it, those that have to be converted first too.

    Of these are left out the ones that have been, so that talk.wav lies beside talk.m4a.
    """
    found = audio_in(folder, (*SUFFIXES, *FOREIGN))
    ready = {path: path.suffix.lower() in SUFFIXES for path in found}
    converted = {path.with_suffix("") for path in found if ready[path]}
    return [path for path in found if ready[path] or path.with_suffix("") not in converted]


def check_audio(path: Path, decode: bool = True) -> str | None:
    """Say why an audio file cannot be used; None if all is well.

    With `decode`, every sample is read. Without, only the header and the last frame are, which takes a tenth
    of a millisecond and still finds truncated files, but no damage in the middle.
    """
    try:
        with open_sound(path) as sound:
            return _find_damage(sound) if decode else _find_missing_end(sound)
    except BadAudio as bad:
        return bad.reason


@contextmanager
def open_sound(path: Path) -> Iterator[soundfile.SoundFile]:
    """Open an audio file to read it; raise `BadAudio` if it is none, or if its header and its length disagree.

    What it may take to decode is bounded by its rate, its channels, and its length times its channels.
    """
    try:
        str(path).encode()
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise BadAudio(path, "the file is empty")
            missing = _missing_wav_bytes(file)
        if path.suffix.lower() == ".raw":
            raise BadAudio(path, "cannot be opened: raw samples tell no rate; convert it to WAV")
        with soundfile.SoundFile(path) as sound:
            if sound.frames <= 0:
                raise BadAudio(path, "holds no audio")
            if sound.frames > LONGEST_FILE:
                raise BadAudio(path, "the header does not say how long the audio is")
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
    """Why audio is not decoded: what its header says is no speech, and could take any memory and time."""
    rate, channels = sound.samplerate, sound.channels
    if rate < SLOWEST:
        return f"has {rate} samples a second, too few for speech"
    if rate > FASTEST or rate // math.gcd(rate, SAMPLE_RATE) > LARGEST_STEP:
        return f"has {rate} samples a second: convert it with `ffmpeg -i IN -ar {SAMPLE_RATE} OUT.wav`"
    if channels > MOST_CHANNELS:
        return f"has {channels} channels, more than {MOST_CHANNELS}: extract those with speech"
    if (hours := sound.frames / rate * channels / 3600) > MOST_HOURS:
        return f"lasts {hours:,.0f} hours, its channels counted, more than {MOST_HOURS:,}: cut it into parts"
    return None


def check_header(path: Path) -> None:
    """Raise `BadAudio` for a file that must not be decoded, and what libsndfile raises for no audio at all."""
    try:
        open_regular(path).close()
    except OSError as error:
        raise BadAudio(path, f"cannot be opened: {error.strerror}") from error
    with soundfile.SoundFile(path) as sound:
        if reason := why_unbounded(sound):
            raise BadAudio(path, reason)


def _why_not(path: Path, error: soundfile.LibsndfileError) -> str:
    """Why a file cannot be opened, and how to get what can."""
    reason = error.error_string.strip().rstrip(".") or "not an audio file"
    if path.suffix.lower() not in SUFFIXES:
        names = f"{quote(path.name)} {quote(path.with_suffix('.wav').name)}"
        return f"{reason}; if it is a recording, convert it: ffmpeg -i {names}"
    fork = path.with_name(f"._{path.name}")  # libsndfile takes it for a part of an MP3
    return f"delete {fork.name}, which macOS left beside it" if fork.exists() else reason


def open_recording(path: Path, recording_id: str, decode: bool) -> Recording:
    """Check an audio file and describe it as a recording at 16 kHz; raise `BadAudio` if it is unusable."""
    if reason := check_audio(path, decode):
        raise BadAudio(path, reason)
    info = soundfile.info(path)
    if reason := why_not_resampled(info.samplerate):
        raise BadAudio(path, reason)
    recording = Recording(
        id=recording_id,
        sources=[AudioSource(type="file", channels=list(range(info.channels)), source=str(path.absolute()))],
        sampling_rate=info.samplerate,
        num_samples=info.frames,
        duration=info.frames / info.samplerate,
    )
    return recording if info.samplerate == SAMPLE_RATE else recording.resample(SAMPLE_RATE)


def why_not_resampled(rate: int, to: int = SAMPLE_RATE) -> str | None:
    """Why Lhotse is not asked to resample audio, as the reduced ratio of the rates would take gigabytes."""
    common = math.gcd(rate, to)
    if (rate // common) * (to // common) <= LARGEST_KERNEL:
        return None
    return f"{rate} samples a second cannot be resampled to {to}: convert it with `ffmpeg -i IN -ar {to} OUT.wav`"


def recording_at(file: Path, samples: int) -> Recording:
    """Describe a WAV file at 16 kHz with one channel and so many samples; it is called as the file is."""
    source = AudioSource(type="file", channels=[0], source=str(file))
    return Recording(file.stem, [source], SAMPLE_RATE, samples, samples / SAMPLE_RATE)


def read_block(sound: soundfile.SoundFile, frames: int) -> np.ndarray:
    """The next samples of a file (frames, channels), float32; a `ValueError` says what is wrong with them."""
    try:
        block: np.ndarray = sound.read(frames, dtype="float32", always_2d=True)
    except (soundfile.LibsndfileError, ValueError) as error:  # the latter where a header led beyond the end
        raise ValueError("truncated or damaged: not all of it can be decoded") from error
    require_sane(block)
    return block


def decoded_blocks(sound: soundfile.SoundFile, frames: int = BLOCK) -> Iterator[np.ndarray]:
    """All samples of a file in blocks (frames, channels), float32; a `ValueError` says what is wrong with them."""
    found = 0
    while len(block := read_block(sound, frames)):
        found += len(block)
        yield block
    if found < sound.frames:
        raise ValueError(f"truncated: {found} of {sound.frames} frames are there")


def _find_damage(sound: soundfile.SoundFile) -> str | None:
    try:
        for _ in decoded_blocks(sound):
            pass
    except ValueError as reason:
        return str(reason)
    return None


def _find_missing_end(sound: soundfile.SoundFile) -> str | None:
    try:
        sound.seek(sound.frames - 1)
        if len(sound.read(1)):
            return None
    except (soundfile.LibsndfileError, ValueError):
        pass
    return f"truncated: the last of {sound.frames} frames is not there"


def _missing_wav_bytes(file: BinaryIO) -> int:
    """Count the bytes a WAV header promises beyond the file's end, of which libsndfile does not complain."""
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
