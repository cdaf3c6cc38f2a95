"""JSON lines that name audio files: NeMo manifests, and the `metadata.jsonl` of a folder."""

import json
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from priormatch.data.columns import AUDIO, ID, LOOKED_AT, SPEAKER, TEXT, required, usual, warn_of_text
from priormatch.data.text_files import read_lines
from priormatch.errors import UserError
from priormatch.json_text import parse_object
from priormatch.prepare.listed import Listed, Listing, read_seconds

USUAL = "audio_filepath"


def list_nemo(file: Path, audio_column: str = "", text_column: str = "") -> Listing:
    """List the audio that a NeMo manifest names, one JSON object per line.

    `audio_filepath` is relative to the manifest's folder or to the working directory; `offset` and `duration`
    in seconds, `text` (missing or empty: untranscribed), `speaker` and `id` may be absent. All but the times may have
    other usual names. An error is reported with its line number.
    """
    entries = read_nemo(file)
    first = list(islice(entries, LOOKED_AT))
    keys = dict.fromkeys(key for _, entry in first for key in entry)
    for wanted in filter(None, (audio_column, text_column)):
        required(file, wanted, keys)
    listed = [
        _read_entry(f"{file}, line {number}", number, entry, audio_column, text_column)
        for number, entry in chain(first, entries)
    ]
    if not any(each.text for each in listed):
        unused = [key for key in keys if key.lower() not in (*AUDIO, *SPEAKER, *ID)]
        cells = {
            key: [value for _, entry in first if isinstance(value := entry.get(key), str)] for key in unused
        }
        warn_of_text(file, cells)
    return Listing(listed, file, (file.parent, Path()))


def read_nemo(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a file of JSON lines with their line numbers."""
    for number, line in enumerate(read_lines(file), 1):
        if line:
            yield number, _read_object(f"{file}, line {number}", line)


def _read_object(where: str, line: str) -> dict[str, Any]:
    try:
        return parse_object(line)
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: not JSON ({error.msg}, column {error.colno}); fix the line.") from error
    except ValueError as error:
        raise UserError(
            f"{where}: {error}; write one object with audio_filepath, duration and text."
        ) from error


def _read_entry(
    where: str, number: int, entry: dict[str, Any], audio_column: str, text_column: str
) -> Listed:
    if "shard_id" in entry:
        raise UserError(f"{where}: the audio is in a tar file (shard_id); unpack it and list the files.")
    audio = audio_column or usual(entry, (USUAL, *AUDIO)) or USUAL
    path = Path(_text(where, entry, audio))
    if not path.name:
        raise UserError(f"{where}: there is no {audio}, or it names no file.")
    start = read_seconds(where, "offset", _or(entry, "offset", 0.0))
    duration = _or(entry, "duration", None)
    end = None if duration is None else start + read_seconds(where, "duration", duration)
    if end == start:
        raise UserError(f"{where}: duration must be above 0.")
    text = _text(where, entry, text_column or usual(entry, TEXT))
    speaker, name = (_label(where, entry, usual(entry, known)) for known in (SPEAKER, ID))
    return Listed(number, path, text, speaker, name, start, end)


def _text(where: str, entry: dict[str, Any], key: str | None) -> str:
    value = _or(entry, key, "") if key else ""
    if not isinstance(value, str):
        raise UserError(f"{where}: {key} must be text, not {str(value)[:40]}.")
    return value.strip()


def _label(where: str, entry: dict[str, Any], key: str | None) -> str:
    """Return the label of a speaker or an utterance as text; it may be a number."""
    value = entry.get(key) if key else None
    return str(value) if isinstance(value, int) else _text(where, entry, key)


def _or(entry: dict[str, Any], key: str, absent: Any) -> Any:
    """Return a value, or `absent` if it is missing or null."""
    value = entry.get(key)
    return absent if value is None else value
