"""A user's own audio, in a folder or named in a table."""

import csv
from collections.abc import Iterator
from pathlib import Path

from priormatch.data.audio import audio_in
from priormatch.data.listed import Listed, Listing, read_seconds
from priormatch.errors import UserError
from priormatch.progress import say

COLUMNS = ("path", "text", "speaker", "id", "start", "end")
DELIMITERS = (",", ";", "\t")


def list_folder(folder: Path) -> Listing:
    """All audio in a folder and below it, with transcripts where there are any.

    - `NAME.txt` beside `NAME.wav` (.flac, .mp3 and so on) is its transcript; audio without is
      untranscribed. Where the transcript holds no word, or digits, the utterance is skipped and listed.
    - The speaker is the first folder below `folder` (ann/monday/one.wav is by ann); files directly in `folder`
      have none.
    - The id is the path below `folder` without suffix, with "-" for "/", numbered where two would be equal.
    - Of audio with several channels the first is used: Lhotse cannot mix them lazily.
    """
    listed = []
    for path in audio_in(folder):
        below, beside = path.relative_to(folder), path.with_suffix(".txt")
        speaker = below.parts[0] if len(below.parts) > 1 else ""
        listed.append(Listed(0, below, beside if beside.exists() else "", speaker))
    return Listing(listed, folder, (folder,))


def list_table(file: Path) -> Listing:
    """The audio that a table names, with commas, semicolons or tabs between its columns.

    The header names the columns. `path` is relative to the table's folder or absolute; the others may be
    absent or empty in some lines: `text` (empty: untranscribed), `speaker`, `id` (else made of the path),
    `start` and `end` in seconds (else the whole file). With tabs quotes are just characters; otherwise a
    field may stand in them. A mistake in the table stops with its line number.
    """
    rows = list(read_rows(file))
    if not rows:
        raise UserError(f"{file} has no line below its header: add one for each utterance.")
    return Listing(rows, file, (file.parent,))


def read_rows(file: Path) -> Iterator[Listed]:
    """Read a table of utterances; a mistake in it stops with its line number."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            delimiter = delimiter_of(lines.readline())
            lines.seek(0)
            table = csv.reader(
                lines,
                delimiter=delimiter,
                quoting=csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL,
                strict=True,
            )
            columns = [name.strip().lower() for name in next(table, [])]
            _check_columns(file, columns)
            for fields in table:
                if any(map(str.strip, fields)):
                    yield _read_row(f"{file}, line {table.line_num}", table.line_num, columns, fields)
    except OSError as error:
        raise UserError(f"cannot read the table {file}: {error.strerror}; check the path.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8 text: save it as UTF-8 and try again.") from error
    except csv.Error as error:
        raise UserError(f"{file}, line {table.line_num}: {error}; mind the quotes.") from error


def delimiter_of(header: str) -> str:
    """What parts the columns of a table: the one of the known that sets `path` apart, else the most frequent."""
    for each in DELIMITERS:
        if "path" in (name.strip(' "\r\n').lower() for name in header.split(each)):
            return each
    return max(DELIMITERS, key=header.count)


def _check_columns(file: Path, columns: list[str]) -> None:
    if "path" not in columns:
        raise UserError(
            f"{file}, line 1: there is no column `path` among {', '.join(columns) or 'none'}; "
            f"the header must name the columns, of which {', '.join(COLUMNS)} are known."
        )
    if twice := {name for name in columns if name in COLUMNS and columns.count(name) > 1}:
        raise UserError(f"{file}, line 1: the column {', '.join(sorted(twice))} is there twice; keep one.")
    if unknown := [name for name in columns if name not in COLUMNS]:
        say(f"{file}: the columns {', '.join(unknown)} are not used; known are {', '.join(COLUMNS)}")


def _read_row(where: str, line: int, columns: list[str], fields: list[str]) -> Listed:
    if len(fields) != len(columns):
        raise UserError(
            f"{where}: {len(fields)} fields under {len(columns)} columns; put fields with commas or semicolons in"
            " quotes."
        )
    cells = dict(zip(columns, map(str.strip, fields), strict=True))
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
