"""Read a user's audio in a folder or listed in a table."""

import os
from itertools import chain, islice
from pathlib import Path

from priormatch.data.audio import recordings_in
from priormatch.data.columns import (
    AUDIO,
    ID,
    LOOKED_AT,
    NAME_AUDIO,
    SPEAKER,
    TEXT,
    read_table,
    required,
    say_columns,
    usual,
    warn_of_text,
)
from priormatch.errors import UserError
from priormatch.prepare.listed import Listed, Listing, read_seconds
from priormatch.progress import say

LISTS = (".csv", ".tsv", ".jsonl", ".parquet")
MOST_NAMED = 3
CLIPS = "clips"  # Common Voice's folder for the audio of its tables


def list_folder(folder: Path) -> Listing:
    """List all audio under a folder, with transcripts if there are any; unreadable files are reported later.

    - `NAME.txt` beside `NAME.wav` (.flac, .mp3 and so on) is its transcript; audio without one is
      untranscribed. If the transcript has no word, or has digits, the utterance is skipped and listed.
    - The speaker is the first folder below `folder` (ann/monday/one.wav is by ann); files directly in `folder`
      have none.
    - The id is the path below `folder` without suffix, with "-" for "/", numbered if two would be equal.
    - Only the first channel is used: Lhotse cannot mix channels lazily.
    """
    listed = []
    for path in recordings_in(folder):
        below, beside = path.relative_to(folder), path.with_suffix(".txt")
        speaker = below.parts[0] if len(below.parts) > 1 else ""
        listed.append(Listed(0, below, beside if os.path.lexists(beside) else "", speaker))
    if not any(each.text for each in listed):
        _name_lists(folder)
    return Listing(listed, folder, (folder,))


def _name_lists(folder: Path) -> None:
    """Warn about files of a folder that may contain its transcripts."""
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix in LISTS)
    if found:
        names = ", ".join(found[:MOST_NAMED])
        say(
            f"warning: {folder}: no audio has a transcript beside it; "
            f"if the transcripts are in {names}, give that file"
        )


def list_table(file: Path, audio_column: str = "", text_column: str = "") -> Listing:
    """List the audio that a table names; commas, semicolons or tabs separate its columns.

    The header names the columns. The audio column, unless given here, is `path` or another of `columns.AUDIO`; its
    files are relative to the table's folder or its `clips`, or absolute. The other columns may be absent, or empty in
    some lines: `text` (empty: untranscribed), `speaker` and `id` (else made from the path), each under any of its
    usual names; `start` and `end` in seconds (else the whole file). With tabs, quotes are ordinary characters;
    otherwise a field may be quoted. An error is reported with its line number.
    """
    lines = read_table(file, [audio_column.lower()] if audio_column else AUDIO)
    _, names = next(lines, (1, []))
    places = find_columns(file, names, audio_column, text_column)
    first = list(islice(lines, LOOKED_AT))
    rows = [_read_row(file, number, len(names), fields, places) for number, fields in chain(first, lines)]
    if not rows:
        raise UserError(f"{file} has no line below its header: add one for each utterance.")
    if not any(row.text for row in rows):
        unused = set(range(len(names))) - set(places.values())
        warn_of_text(file, {names[place]: [fields[place] for _, fields in first] for place in sorted(unused)})
    return Listing(rows, file, (file.parent, file.parent / CLIPS))


def find_columns(file: Path, names: list[str], audio_column: str, text_column: str) -> dict[str, int]:
    """Return the index of each column by role: `path`, and any others of `Listed` that exist."""
    where = f"{file}, line 1"
    audio = required(where, audio_column, names) if audio_column else usual(names, AUDIO)
    if audio is None:
        raise UserError(
            f"{where}: no audio column among {', '.join(names) or 'none'}; the header must name the columns:"
            f" call it path, or {NAME_AUDIO}."
        )
    text = required(where, text_column, names) if text_column else usual(names, TEXT)
    others = {"speaker": SPEAKER, "id": ID, "start": ("start",), "end": ("end",)}
    found = {"path": audio, "text": text} | {role: usual(names, known) for role, known in others.items()}
    lower = [name.lower() for name in names]
    if twice := [name for name in found.values() if name and lower.count(name.lower()) > 1]:
        raise UserError(f"{where}: the column {', '.join(twice)} occurs twice; keep one.")
    say_columns(file, found.values(), names)
    return {role: names.index(name) for role, name in found.items() if name}


def _read_row(file: Path, line: int, width: int, fields: list[str], places: dict[str, int]) -> Listed:
    where = f"{file}, line {line}"
    if len(fields) != width:
        raise UserError(
            f"{where}: {len(fields)} fields under {width} columns; put fields with commas or semicolons in quotes."
        )
    cells = {role: fields[place] for role, place in places.items()}
    path = Path(cells["path"])
    if not path.name:
        raise UserError(f"{where}: the path {cells['path']!r} names no file.")
    start, end = (
        read_seconds(where, column, cells[column]) if cells.get(column) else None
        for column in ("start", "end")
    )
    start = start or 0.0
    if end is not None and end <= start:
        raise UserError(f"{where}: the end {end:g} must come after the start {start:g}.")
    return Listed(
        line, path, cells.get("text", ""), cells.get("speaker", ""), cells.get("id", ""), start, end
    )
