"""A user's own audio, in a folder or named in a table, to a manifest."""

import csv
from collections.abc import Iterator
from pathlib import Path

from lhotse import MonoCut

from priormatch.data.audio import BadAudio, open_recording
from priormatch.data.intake import AS_IT_COMES, Intake
from priormatch.data.listed import Listed, read_seconds, write_listed
from priormatch.data.manifest import distinct_names, existing_folder, name_of, utterance, write_manifests
from priormatch.errors import UserError
from priormatch.progress import say

AUDIO_SUFFIXES = (".wav", ".flac", ".ogg", ".opus", ".mp3")
COLUMNS = ("path", "text", "speaker", "id", "start", "end")


def prepare_folder(
    folder: Path,
    out: Path,
    intake: Intake = AS_IT_COMES,
    *,
    max_bad_share: float = 0.05,
    overwrite: bool = False,
) -> Path:
    """Write the manifest `out` of all audio in a folder and below it, with transcripts where there are any.

    - `NAME.txt` beside `NAME.wav` (.flac, .ogg, .opus, .mp3) is its transcript; audio without is
      untranscribed. Where the transcript holds no word, or digits, the utterance is skipped and listed.
    - The speaker is the first folder below `folder` (ann/monday/one.wav is by ann); files directly in `folder`
      have none.
    - The id is the path below `folder` without suffix, with "-" for "/", numbered where two would be equal.
    - Of audio with several channels the first is used: Lhotse cannot mix them lazily.
    - All samples are decoded to find damage.
    - Untranscribed audio of more than `intake.segment` seconds is cut at its pauses.
    """
    existing_folder(folder)
    paths = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in AUDIO_SUFFIXES and not path.name.startswith(".") and not path.is_dir()
    )
    if not paths:
        raise UserError(f"{folder} holds no audio ({' '.join(AUDIO_SUFFIXES)}): check the folder.")

    def cuts_of(source: tuple[Path, str]) -> list[MonoCut]:
        path, name = source
        recording = open_recording(path, name, decode=True)
        *above, _ = path.relative_to(folder).parts
        speaker = above[0] if above else None
        whole = utterance(name, recording, _read_transcript(path, intake), speaker)
        return intake.parts(whole, taken)

    names = list(distinct_names(name_of(path.relative_to(folder)) for path in paths))
    taken = frozenset(names)
    write_manifests({out: list(zip(paths, names, strict=True))}, cuts_of, max_bad_share, overwrite)
    return out


def prepare_csv(
    file: Path,
    out: Path,
    intake: Intake = AS_IT_COMES,
    *,
    max_bad_share: float = 0.05,
    overwrite: bool = False,
) -> Path:
    """Write the manifest `out` of the audio that a table names, with commas or tabs between its columns.

    The header names the columns. `path` is relative to the table's folder or absolute; the others may be
    absent or empty in some lines: `text` (empty: untranscribed), `speaker`, `id` (else made of the path),
    `start` and `end` in seconds (else the whole file). In a table with commas a field may stand in quotes;
    with tabs, quotes are just characters. A mistake in the table stops with its line number; unusable audio
    is skipped and listed.
    """
    rows = list(read_rows(file))
    if not rows:
        raise UserError(f"{file} has no line below its header: add one for each utterance.")
    return write_listed(rows, file, (file.parent,), out, intake, max_bad_share, overwrite)


def read_rows(file: Path) -> Iterator[Listed]:
    """Read a table of utterances; a mistake in it stops with its line number."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            header = lines.readline()
            lines.seek(0)
            tabs = "\t" in header
            table = csv.reader(
                lines,
                delimiter="\t" if tabs else ",",
                quoting=csv.QUOTE_NONE if tabs else csv.QUOTE_MINIMAL,
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
            f"{where}: {len(fields)} fields under {len(columns)} columns; put fields with commas in quotes."
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


def _read_transcript(audio: Path, intake: Intake) -> str | None:
    path = audio.with_suffix(".txt")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        if not intake.transcripts_needed:
            return None
        reason = "is not UTF-8 text" if isinstance(error, ValueError) else f"cannot be read: {error.strerror}"
        raise BadAudio(audio, f"its transcript {path.name} {reason}", "transcript unreadable") from error
    return intake.usable(audio, text)
