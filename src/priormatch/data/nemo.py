"""NeMo's manifests, JSON lines that name audio files."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from priormatch.data.listed import Listed, Listing, read_seconds
from priormatch.data.text_files import read_lines
from priormatch.errors import UserError


def list_nemo(file: Path) -> Listing:
    """The audio that a NeMo manifest names, one JSON object a line.

    `audio_filepath` is relative to the manifest's folder or to the working directory; `offset` and `duration`
    in seconds, `text` (none or empty: untranscribed), `speaker` and `id` may be absent. A mistake in a line
    stops with its number.
    """
    return Listing(list(read_nemo(file)), file, (file.parent, Path()))


def read_nemo(file: Path) -> Iterator[Listed]:
    """The utterances of a NeMo manifest."""
    for number, line in enumerate(read_lines(file), 1):
        if line:
            yield _read_entry(f"{file}, line {number}", number, line)


def _read_entry(where: str, number: int, line: str) -> Listed:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: not JSON ({error.msg}, column {error.colno}); mend the line.") from error
    if not isinstance(entry, dict):
        raise UserError(f"{where}: not a JSON object; write one with audio_filepath, duration and text.")
    if "shard_id" in entry:
        raise UserError(f"{where}: the audio lies in a tar file (shard_id); unpack it and name the files.")
    path = Path(_text(where, entry, "audio_filepath"))
    if not path.name:
        raise UserError(f"{where}: there is no audio_filepath, or it names no file.")
    start = read_seconds(where, "offset", _or(entry, "offset", 0.0))
    duration = _or(entry, "duration", None)
    end = None if duration is None else start + read_seconds(where, "duration", duration)
    if end == start:
        raise UserError(f"{where}: duration must be above 0.")
    text, speaker, name = (_text(where, entry, key) for key in ("text", "speaker", "id"))
    return Listed(number, path, text, speaker, name, start, end)


def _text(where: str, entry: dict[str, Any], key: str) -> str:
    value = _or(entry, key, "")
    if isinstance(value, int) and key in ("speaker", "id"):
        return str(value)
    if not isinstance(value, str):
        raise UserError(f"{where}: {key} must be text, not {str(value)[:40]}.")
    return value.strip()


def _or(entry: dict[str, Any], key: str, absent: Any) -> Any:
    """A value, or another where it is absent or null."""
    value = entry.get(key)
    return absent if value is None else value
