"""A stand-in for ffmpeg on the PATH, and files that begin as the formats it decodes."""

import os
from pathlib import Path

import numpy as np
import pytest
import soundfile

MP4 = b"\0\0\0\x1cftypM4A \0\0\0\0M4A isommp42" + bytes(100)
WEBM = b"\x1a\x45\xdf\xa3" + bytes(100)
COPY = 'for last; do :; done; cp "$FLAC" "${last#file:}"'


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str = COPY, seconds: float = 2.0) -> Path:
    """Put a shell script first on the PATH as ffmpeg; the file of its arguments, one a line, of all its calls.

    The script may copy the FLAC file that FLAC names: tones between pauses, in two channels.
    """
    program, called = folder / "bin" / "ffmpeg", folder / "called.txt"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {called}\n{script}\n')
    program.chmod(0o755)
    time = np.arange(round(16_000 * seconds)) / 16_000
    tone = 0.3 * np.sin(2 * np.pi * 440 * time) * (np.sin(2 * np.pi * time) > 0)
    soundfile.write(folder / "decoded.flac", np.stack([tone, tone], 1), 16_000)
    monkeypatch.setenv("FLAC", str(folder / "decoded.flac"))
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return called
