"""Decode phone and video formats with ffmpeg, where it is on the PATH.

The files need not be trusted. ffmpeg reads playlists and protocols by content, which could open other files and
addresses, so each file is opened with the one demuxer of its suffix, and only if it begins as such files do.
"""

import errno
import hashlib
import os
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock, Timer
from typing import NamedTuple

import soundfile

from priormatch.data import SAMPLE_RATE
from priormatch.data.audio import MOST_HOURS, BadAudio, check_header
from priormatch.files import open_regular, replacing
from priormatch.progress import say


class Container(NamedTuple):
    """A format: its name, its demuxer in ffmpeg, and the bytes that its files begin with, at an offset."""

    name: str
    demuxer: str
    offset: int
    beginning: bytes


MP4 = Container("MP4", "mov", 4, b"ftyp")
CONTAINERS = {".m4a": MP4, ".mp4": MP4, ".webm": Container("WebM", "matroska", 0, b"\x1a\x45\xdf\xa3")}
"""The formats that are decoded with ffmpeg, by suffix."""

LONGEST_RUN = 3600.0  # seconds for one file; hours of audio take a minute
MOST_SAID = 1 << 14  # bytes of messages that are read
PREFIX = re.compile(r"^(\[[^]]*\] )+")  # of a message: the parts of ffmpeg that print it
INSTALL = "install ffmpeg (`apt install ffmpeg`, `brew install ffmpeg`), or convert the file to WAV elsewhere"


def needs_ffmpeg(path: Path) -> bool:
    """Return whether a file has a suffix of these formats, and libsndfile cannot read it (an MP3 called .mp4)."""
    if path.suffix.lower() not in CONTAINERS:
        return False
    try:
        check_header(path)
    except soundfile.LibsndfileError:
        return True
    except BadAudio:  # whoever opens it says the same
        pass
    return False


def arguments(program: str, source: Path, target: Path, demuxer: str) -> list[str]:
    """The command that decodes the first audio stream of a file to FLAC at 16 kHz, with all its channels."""
    return [
        *(program, "-nostdin", "-hide_banner", "-loglevel", "error", "-xerror", "-y"),
        *("-protocol_whitelist", "file,pipe", "-format_whitelist", demuxer, "-f", demuxer),
        *("-i", f"file:{source.absolute()}", "-map", "0:a:0", "-map_metadata", "-1"),
        *("-t", str(MOST_HOURS * 3600 + 1), "-ar", str(SAMPLE_RATE), "-c:a", "flac", "-sample_fmt", "s16"),
        *("-f", "flac", f"file:{target.absolute()}"),
    ]


def decode(source: Path, target: Path) -> None:
    """Decode a file to FLAC; raise `BadAudio` if it is damaged or of another format, or if there is no ffmpeg."""
    container = CONTAINERS[source.suffix.lower()]
    _require_beginning(source, container)
    program = shutil.which("ffmpeg")
    if program is None:
        raise BadAudio(source, f"is decoded with ffmpeg, which is not on the PATH: {INSTALL}", "needs ffmpeg")
    _say_once(program)
    code, said = _run(arguments(program, source, target, container.demuxer))
    if os.strerror(errno.ENOSPC) in said:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
    if code or said:
        raise BadAudio(source, _reason(said))


@contextmanager
def playable(path: Path) -> Iterator[Path]:
    """Yield a file that libsndfile may read: the given one, or a temporary one decoded with ffmpeg."""
    if not needs_ffmpeg(path):
        yield path
        return
    with TemporaryDirectory(prefix="priormatch-") as folder:
        target = Path(folder) / "audio.flac"
        decode(path, target)
        try:
            yield target
        except BadAudio as bad:
            raise BadAudio(path, bad.reason, bad.kind) from bad


class Decoded:
    """A folder of files decoded with ffmpeg for a manifest, each written once and named after its source's content."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.locks = defaultdict[str, Lock](Lock)

    def readable(self, path: Path) -> Path:
        """The file itself, or the one decoded from it, which is made if it is missing."""
        if not needs_ffmpeg(path):
            return path
        name = _content_name(path)
        target = self.folder / f"{name}.flac"
        with self.locks[name]:  # two files may have the same content
            if not target.is_file():
                self.folder.mkdir(parents=True, exist_ok=True)
                with replacing(target) as temporary:
                    decode(path, temporary)
        return target


def _content_name(path: Path) -> str:
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:24]  # type: ignore[arg-type]
    except OSError as error:
        raise BadAudio(path, f"cannot be opened: {error.strerror}") from error


def _require_beginning(path: Path, container: Container) -> None:
    try:
        str(path).encode()
        with open_regular(path) as file:
            begins = file.read(container.offset + len(container.beginning))
    except UnicodeEncodeError:
        raise BadAudio(path, "the file's name is not valid UTF-8: rename it") from None
    except OSError as error:
        raise BadAudio(path, f"cannot be opened: {error.strerror}") from error
    if not begins:
        raise BadAudio(path, "the file is empty")
    if begins[container.offset :] != container.beginning:
        raise BadAudio(path, f"is not {container.name}, by its content: give the file its real suffix")


@cache
def _say_once(program: str) -> None:
    say(f"{', '.join(CONTAINERS)} files are decoded with {program}")


def _run(command: list[str]) -> tuple[int, str]:
    """Run a command without a shell; return its exit code and the beginning of its messages."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        timer = Timer(LONGEST_RUN, process.kill)
        timer.start()
        try:
            said = process.stderr.read(MOST_SAID) if process.stderr is not None else b""
            if len(said) == MOST_SAID:
                process.kill()
            return process.wait(), said.decode(errors="replace").strip()
        finally:
            process.kill()
            timer.cancel()


def _reason(said: str) -> str:
    """Turn ffmpeg's messages into a reason; the first one has the cause."""
    if "matches no streams" in said:
        return "contains no audio"
    first = PREFIX.sub("", said.partition("\n")[0]).rstrip(".")[:200] or "it was stopped"
    return f"truncated or damaged: ffmpeg cannot decode it completely ({first})"
