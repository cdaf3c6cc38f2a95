"""Read Kaldi data folders."""

import re
from collections.abc import Iterator
from pathlib import Path

from priormatch.data.text_files import read_lines
from priormatch.errors import UserError
from priormatch.prepare.listed import Listed, Listing, read_seconds
from priormatch.progress import count_text, say

RECORDINGS = "wav.scp"
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
TO_THE_END = -1.0  # an end in `segments` that means the end of the recording


def list_kaldi(folder: Path) -> Listing:
    """List the utterances of a Kaldi folder: `wav.scp`, and optionally `segments`, `text`, `utt2spk`.

    Paths in `wav.scp` are relative to the folder or to the working directory. Commands in it are never run, unlike in
    Kaldi: if a command only decodes a file, that file is used; any other command is refused. Without `segments`, every
    recording is an utterance. An utterance without a line in `text`, or with an empty one, is untranscribed. An error
    is reported with its file and line.
    """
    listed = list(read_kaldi(folder))
    file = folder / ("segments" if (folder / "segments").is_file() else RECORDINGS)
    if not listed:
        raise UserError(f"{file} lists no utterance: check the folder.")
    return Listing(listed, file, (folder, Path()))


def read_kaldi(folder: Path) -> Iterator[Listed]:
    """Yield the utterances of a Kaldi folder."""
    recordings = _read_table(folder / RECORDINGS)
    paths = {name: _plain_path(folder, line, path) for name, (line, path) in recordings.items()}
    segments, texts, speakers = (_read_table(folder / name) for name in ("segments", "text", "utt2spk"))
    utterances = segments if (folder / "segments").is_file() else recordings
    for name, table in (("text", texts), ("utt2spk", speakers)):
        if unknown := [utterance for utterance in table if utterance not in utterances]:
            say(
                f"{folder / name}: no audio for {count_text(len(unknown), 'utterance')}, the first is {unknown[0]}"
            )
    for name, (line, rest) in utterances.items():
        recording, start, end = _read_segment(folder, line, rest) if segments else (name, 0.0, None)
        if recording not in paths:
            raise UserError(
                f"{folder / 'segments'}, line {line}: {RECORDINGS} has no recording {recording!r}."
            )
        text, speaker = texts.get(name, (0, ""))[1], speakers.get(name, (0, ""))[1]
        yield Listed(line, paths[recording], text, speaker, name, start, end)


def _read_table(path: Path) -> dict[str, tuple[int, str]]:
    """Read the lines `KEY REST` of a file by key, with their numbers; empty if the file does not exist."""
    table: dict[str, tuple[int, str]] = {}
    if path.name != RECORDINGS and not path.is_file():
        return table
    for number, line in enumerate(read_lines(path), 1):
        if line:
            key, *rest = line.split(maxsplit=1)
            if key in table:
                raise UserError(f"{path}, line {number}: {key!r} is already on line {table[key][0]}.")
            table[key] = number, "".join(rest)
    return table


def _plain_path(folder: Path, line: int, path: str) -> Path:
    where = f"{folder / RECORDINGS}, line {line}"
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
        raise UserError(
            f"{where}: {len(fields) + 1} fields; write utterance, recording, start and end in seconds."
        )
    start = read_seconds(where, "start", fields[1])
    try:
        if float(fields[2]) == TO_THE_END:
            return fields[0], start, None
    except ValueError:
        pass
    end = read_seconds(where, "end", fields[2])
    if end <= start:
        raise UserError(f"{where}: the end {end:g} must come after the start {start:g}.")
    return fields[0], start, end
