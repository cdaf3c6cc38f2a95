"""What every form of a user's audio has in common: it can be looked at, and it can be prepared."""

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from priormatch.files import open_regular
from priormatch.prepare.intake import Intake

MOST_BYTES = 1 << 20
"""Of the transcript of one utterance."""


@dataclass(frozen=True)
class Utterance:
    """What is known of an utterance before its audio is opened.

    `find_audio` gives the file that it lies in, or raises `BadAudio`; what has no file of its own is written to one in
    the folder that is given. `transcript` may be a file still to be read, and `seconds` is None where only the audio
    can tell.
    """

    find_audio: Callable[[Path], Path]
    transcript: str | Path | None
    speaker: str | None
    seconds: float | None

    def text(self) -> str:
        """The transcript as it was written, or "" where there is none or none that can be read."""
        if not isinstance(self.transcript, Path):
            return self.transcript or ""
        try:
            return read_transcript(self.transcript).strip()
        except (OSError, UnicodeDecodeError):
            return ""


def read_transcript(path: Path) -> str:
    """The text of a file beside audio; an OSError or UnicodeDecodeError where there is none."""
    with open_regular(path) as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(errno.EFBIG, "too long for a transcript", str(path))
    return content.decode("utf-8-sig")


class Source(Protocol):
    """A user's audio in one of the forms known here."""

    def utterances(self) -> Iterator[Utterance]:
        """What there is; no audio is opened."""

    def write(self, out: Path, intake: Intake, max_bad_share: float, overwrite: bool) -> None:
        """Write the manifest `out`; unusable audio is skipped and listed."""
