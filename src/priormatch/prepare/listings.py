"""Audio in a folder, or listed by a table, a NeMo manifest or a Kaldi folder."""

import json
import math
import os
import re
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any
from unicodedata import normalize

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
from priormatch.data.text_files import read_lines
from priormatch.errors import UserError
from priormatch.json_text import parse_object
from priormatch.prepare.source import Listed, Listing
from priormatch.progress import count_text, say

LISTS = (".csv", ".tsv", ".jsonl", ".parquet")
MOST_NAMED = 3
MOST_SECONDS = 1e9  # 30 years; sums of larger claims would overflow
CLIPS = "clips"  # Common Voice's folder for the audio of its tables
AUDIO_FILEPATH = "audio_filepath"  # NeMo's name for the audio
WAV_SCP = "wav.scp"  # Kaldi's list of recordings
ARCHIVED = re.compile(r"\.ark(:\d+)?$")
PLAIN = r"([\w./][\w./@%+=:,-]*)"  # a file name without characters special to a shell
DECODING = [
    re.compile(command.replace("FILE", PLAIN))
    for command in (
        r"flac(?: -[cds]+)+ FILE",
        r"sox(?: -t \w+)? FILE -t wav -",
        r"ffmpeg(?: -nostdin| -hide_banner| -v \w+| -loglevel \w+)* -i FILE -f wav (?:-|pipe:1)",
    )
]
"""Commands that only decode one file to standard output."""
TO_THE_END = -1.0  # an end in Kaldi's `segments` that means the end of the recording


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
        below = path.relative_to(folder)
        speaker = (
            normalize("NFC", below.parts[0]) if len(below.parts) > 1 else ""
        )  # macOS stores ü as u and ¨
        listed.append(Listed(0, below, _text_beside(path), speaker))
    if not any(each.text for each in listed):
        _name_lists(folder)
    return Listing(listed, folder, (folder,))


def _text_beside(audio: Path) -> Path | str:
    texts = (audio.with_suffix(suffix) for suffix in (".txt", ".TXT"))
    return next((each for each in texts if os.path.lexists(each)), "")


def _name_lists(folder: Path) -> None:
    """Warn about files of a folder that may contain its transcripts."""
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix in LISTS)
    if found:
        what = f"warning: {folder}: no audio has a transcript next to it"
        say(f"{what}; if the transcripts are in {', '.join(found[:MOST_NAMED])}, provide that file")


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
    if end is not None:
        require_order(where, start, end)
    text, speaker, name = (cells.get(role, "") for role in ("text", "speaker", "id"))
    return Listed(line, path, text, speaker, name, start, end)


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
        values = {key: [entry.get(key) for _, entry in first] for key in unused}
        warn_of_text(file, {key: [each for each in values[key] if isinstance(each, str)] for key in unused})
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
        wanted = "write one object with audio_filepath, duration and text"
        raise UserError(f"{where}: {error}; {wanted}.") from error


def _read_entry(
    where: str, number: int, entry: dict[str, Any], audio_column: str, text_column: str
) -> Listed:
    if "shard_id" in entry:
        raise UserError(f"{where}: the audio is in a tar file (shard_id); unpack it and list the files.")
    audio = audio_column or usual(entry, (AUDIO_FILEPATH, *AUDIO)) or AUDIO_FILEPATH
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


def list_kaldi(folder: Path) -> Listing:
    """List the utterances of a Kaldi folder: `wav.scp`, and optionally `segments`, `text`, `utt2spk`.

    Paths in `wav.scp` are relative to the folder or to the working directory. Commands in it are never run, unlike in
    Kaldi: if a command only decodes a file, that file is used; any other command is refused. Without `segments`, every
    recording is an utterance. An utterance without a line in `text`, or with an empty one, is untranscribed. An error
    is reported with its file and line.
    """
    listed = list(read_kaldi(folder))
    file = folder / ("segments" if (folder / "segments").is_file() else WAV_SCP)
    if not listed:
        raise UserError(f"{file} lists no utterance: check the folder.")
    return Listing(listed, file, (folder, Path()))


def read_kaldi(folder: Path) -> Iterator[Listed]:
    """Yield the utterances of a Kaldi folder."""
    recordings = _read_keyed(folder / WAV_SCP)
    paths = {name: _plain_path(folder, line, path) for name, (line, path) in recordings.items()}
    segments, texts, speakers = (_read_keyed(folder / name) for name in ("segments", "text", "utt2spk"))
    utterances = segments if (folder / "segments").is_file() else recordings
    for name, table in (("text", texts), ("utt2spk", speakers)):
        if unknown := [utterance for utterance in table if utterance not in utterances]:
            count = count_text(len(unknown), "utterance")
            say(f"{folder / name}: no audio for {count}, the first is {unknown[0]}")
    for name, (line, rest) in utterances.items():
        recording, start, end = _read_segment(folder, line, rest) if segments else (name, 0.0, None)
        if recording not in paths:
            where = f"{folder / 'segments'}, line {line}"
            raise UserError(f"{where}: {WAV_SCP} has no recording {recording!r}.")
        text, speaker = texts.get(name, (0, ""))[1], speakers.get(name, (0, ""))[1]
        yield Listed(line, paths[recording], text, speaker, name, start, end)


def _read_keyed(path: Path) -> dict[str, tuple[int, str]]:
    """Read the lines `KEY REST` of a file by key, with their numbers; empty if the file does not exist."""
    table: dict[str, tuple[int, str]] = {}
    if path.name != WAV_SCP and not path.is_file():
        return table
    for number, line in enumerate(read_lines(path), 1):
        if line:
            key, *rest = line.split(maxsplit=1)
            if key in table:
                raise UserError(f"{path}, line {number}: {key!r} is already on line {table[key][0]}.")
            table[key] = number, "".join(rest)
    return table


def _plain_path(folder: Path, line: int, path: str) -> Path:
    where = f"{folder / WAV_SCP}, line {line}"
    if path.startswith("|") or path.endswith("|"):
        command = " ".join(path.removesuffix("|").split())
        file = next((found[1] for each in DECODING if (found := each.fullmatch(command))), None)
        if file is None:
            raise UserError(
                f"{where}: {path[:60]!r} is a command that does more than decode a file, and commands are never run; "
                "decode the audio to files and list those."
            )
        path = file
    if ARCHIVED.search(path):
        raise UserError(f"{where}: {path[:60]!r} is in an archive; write its audio to files and list those.")
    if not Path(path).name or path == "-":
        raise UserError(f"{where}: the path {path!r} names no file.")
    return Path(path)


def _read_segment(folder: Path, line: int, rest: str) -> tuple[str, float, float | None]:
    """Return the recording of a line of `segments`, and the utterance's start and end in it."""
    where, fields = f"{folder / 'segments'}, line {line}", rest.split()
    if len(fields) not in (3, 4):  # the fourth is a channel
        wanted = "utterance, recording, start and end in seconds"
        raise UserError(f"{where}: {len(fields) + 1} fields; write {wanted}.")
    start = read_seconds(where, "start", fields[1])
    try:
        if float(fields[2]) == TO_THE_END:
            return fields[0], start, None
    except ValueError:
        pass
    end = read_seconds(where, "end", fields[2])
    require_order(where, start, end)
    return fields[0], start, end


def read_seconds(where: str, what: str, value: str | float) -> float:
    """Return a time in seconds; raise `UserError` if it is not one."""
    try:
        seconds = math.nan if isinstance(value, bool) else float(value)
    except (ValueError, TypeError, OverflowError):
        seconds = math.nan
    if 0 <= seconds <= MOST_SECONDS:
        return seconds
    raise UserError(f"{where}: {what} must be a number of seconds, not {repr(value)[:40]}.")


def require_order(where: str, start: float, end: float) -> None:
    """Raise `UserError` unless a segment ends after its start."""
    if end <= start:
        raise UserError(f"{where}: the end {end:g} must come after the start {start:g}.")
