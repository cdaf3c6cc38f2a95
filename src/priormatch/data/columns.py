"""Columns of tables, JSON lines and data sets: the names that they usually bear, and text that seems to be missed."""

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
"""Lines in which text is looked for."""


def usual(names: Iterable[str], known: Sequence[str]) -> str | None:
    """The column that bears the first of the known names, in small letters or capitals; None if there is none."""
    found = {name.lower(): name for name in names}
    return next((found[each] for each in known if each in found), None)


def required(place: object, wanted: str, fit: Collection[str]) -> str:
    """The name of a column, if it is one of those that will do."""
    if wanted not in fit:
        raise UserError(
            f"{place}: {wanted} is no column that can be read so; name one of {', '.join(fit) or 'another set'}."
        )
    return wanted


def say_columns(place: object, read: Collection[str | None], names: Collection[str]) -> None:
    """Tell which columns are read, where others are not."""
    used = [name for name in names if name in read]
    if len(used) < len(names):
        say(f"{place}: reading the columns {', '.join(used)} of {', '.join(names)}")


def warn_of_text(place: object, unused: Mapping[str, Iterable[str]]) -> None:
    """Warn where nothing is transcribed although the cells of a column that is not used look like text."""
    for name, cells in unused.items():
        filled = list(filter(None, cells))
        if filled and sum(map(looks_like_text, filled)) > len(filled) / 2:
            say(
                f"warning: {place}: nothing is transcribed, though the column {name} looks like text; "
                f"if that is the transcript, call `priormatch prepare audio --text-column {name}`"
            )


def looks_like_text(cell: str) -> bool:
    """Whether a cell holds several words, or letters of a script that may not part them."""
    return len(cell.split()) > 1 or not cell.isascii()


def read_table(file: Path, known: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """The lines of a table with their numbers, empty ones aside; first the header, which should hold a known name."""
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
        raise UserError(f"{file}, line {table.line_num}: {error}; mind the quotes.") from error


def delimiter_of(header: str, known: Sequence[str]) -> str:
    """What parts the columns of a table: what sets a known name apart, else the most frequent."""
    for each in DELIMITERS:
        if usual((name.strip(' "\r\n') for name in header.split(each)), known):
            return each
    return max(DELIMITERS, key=header.count)
