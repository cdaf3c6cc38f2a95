"""Columns of tables, JSON lines and datasets: their usual names, and warnings about text columns not used."""

import csv
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path

from priormatch.errors import UserError
from priormatch.files import open_regular
from priormatch.progress import say

AUDIO = (
    *("path", "audio", "file", "file_name", "filename", "audio_filepath", "audio_path"),
    *("wav", "wav_filename"),
)
TEXT = ("text", "sentence", "transcript", "transcription", "normalized_text")
SPEAKER = ("speaker", "speaker_id", "client_id")
ID = ("id", "utterance_id", "utt_id", "utt", "key")

NAME_AUDIO = "name it with `priormatch prepare audio --audio-column`"
DELIMITERS = (",", ";", "\t")
LOOKED_AT = 100
"""Lines searched for text."""


def usual(names: Iterable[str], known: Sequence[str]) -> str | None:
    """Return the column with the first of the known names, ignoring case, or None."""
    found = {name.lower(): name for name in names}
    return next((found[each] for each in known if each in found), None)


def required(place: object, wanted: str, fit: Collection[str]) -> str:
    """Return the name of a column if it is among those that fit; else raise `UserError`."""
    if wanted not in fit:
        raise UserError(
            f"{place}: {wanted} is not a column that fits; name one of {', '.join(fit) or 'another set'}."
        )
    return wanted


def say_columns(place: object, read: Collection[str | None], names: Collection[str]) -> None:
    """Report which columns are read, if some are not."""
    used = [name for name in names if name in read]
    if len(used) < len(names):
        say(f"{place}: reading the columns {', '.join(used)} of {', '.join(names)}")


def warn_of_text(place: object, unused: Mapping[str, Iterable[str]]) -> None:
    """Warn if nothing is transcribed although the cells of an unused column look like text."""
    for name, cells in unused.items():
        filled = list(filter(None, cells))
        if filled and sum(map(looks_like_text, filled)) > len(filled) / 2:
            say(
                f"warning: {place}: nothing is transcribed, but the column {name} looks like text; "
                f"if it is the transcript, run `priormatch prepare audio --text-column {name}`"
            )


def looks_like_text(cell: str) -> bool:
    """Return whether a cell has several words, or letters of a script that may not separate words."""
    return len(cell.split()) > 1 or not cell.isascii()


def read_table(file: Path, known: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the non-empty lines of a table with their numbers, the header first; it should have a known name."""
    try:
        with TextIOWrapper(open_regular(file), encoding="utf-8-sig", newline="") as lines:
            delimiter = delimiter_of(lines.readline(csv.field_size_limit()), known)
            lines.seek(0)
            table = csv.reader(
                lines,
                delimiter=delimiter,
                quoting=csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL,
                strict=True,
            )
            for fields in table:
                if any("\0" in field for field in fields):
                    raise UserError(
                        f"{file}, line {table.line_num}: a NUL character; save it as UTF-8 and try again."
                    )
                if any(cells := [field.strip() for field in fields]):
                    yield table.line_num, cells
    except OSError as error:
        raise UserError(f"cannot read the table {file}: {error.strerror}; check the path.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8 text: save it as UTF-8 and try again.") from error
    except csv.Error as error:
        raise UserError(f"{file}, line {table.line_num}: {error}; check the quotes.") from error


def delimiter_of(header: str, known: Sequence[str]) -> str:
    """Return the delimiter of a table: one that separates a known name, else the most frequent."""
    for each in DELIMITERS:
        if usual((name.strip(' "\r\n') for name in header.split(each)), known):
            return each
    return max(DELIMITERS, key=header.count)
