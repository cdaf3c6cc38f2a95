"""The interface of every format of a user's audio: it can be inspected and prepared."""

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from priormatch.files import open_regular
from priormatch.prepare.intake import Intake

MOST_BYTES = 1 << 20
"""Maximum size of the transcript of one utterance."""


@dataclass(frozen=True)
class Utterance:
    """An utterance whose audio has not been opened.

    `find_audio` returns the audio file or raises `BadAudio`; audio without its own file is written to the given folder.
    `transcript` may be a file that has not been read, and `seconds` is None if only the audio has the duration.
    """

    find_audio: Callable[[Path], Path]
    transcript: str | Path | None
    speaker: str | None
    seconds: float | None

    def text(self) -> str:
        """Return the original transcript, or "" if it is missing or unreadable."""
        if not isinstance(self.transcript, Path):
            return self.transcript or ""
        try:
            return read_transcript(self.transcript).strip()
        except (OSError, UnicodeDecodeError):
            return ""


def read_transcript(path: Path) -> str:
    """Read the transcript file beside an audio file; raise `OSError` or `UnicodeDecodeError` if it is unreadable."""
    with open_regular(path) as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(errno.EFBIG, "too long for a transcript", str(path))
    return content.decode("utf-8-sig")


class Source(Protocol):
    """A user's audio in one of the supported formats."""

    def utterances(self) -> Iterator[Utterance]:
        """Yield the utterances without opening any audio."""

    def write(self, out: Path, intake: Intake, max_bad_share: float, overwrite: bool) -> None:
        """Write the manifest `out`; unusable audio is skipped and listed."""
