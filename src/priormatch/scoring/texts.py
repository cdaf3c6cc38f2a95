"""Readers of transcripts from other tools (Kaldi and NIST lines, tables, JSON) and from `priormatch transcribe`."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from priormatch.data.columns import AUDIO, ID, TEXT, delimiter_of, read_table, usual
from priormatch.data.manifest import name_of
from priormatch.errors import UserError
from priormatch.json_text import parse_json
from priormatch.scoring.transcripts import Transcript

HEARD = ("hypothesis", "hyp", "pred_text", "prediction")
SAID = ("reference", "ref", "ground_truth")
FORMS = "JSON lines, a CSV or TSV table, Kaldi's `id words` or NIST's `words (id)`"
NIST = re.compile(r"(?P<text>.*)\((?P<id>[^()\s]+)\)")

Row = Mapping[str, Any]


def hypotheses_in(path: Path) -> list[Transcript]:
    """Read hypotheses, with references if the file has them; next to a `pred_text`, `text` is the reference."""
    found = []
    for where, row in read_rows(path):
        said = text_of(row, SAID if text_of(row, HEARD) is None else (*SAID, *TEXT))
        found.append(Transcript(id_of(where, row), heard_in(where, row), 0, said, []))
    return found


def references_in(path: Path) -> dict[str, str]:
    """Read references by utterance."""
    found: dict[str, str] = {}
    for where, row in read_rows(path):
        name, said = id_of(where, row), text_of(row, (*SAID, *TEXT))
        if said is None:
            raise lacking(where, "reference", (SAID[0], TEXT[0]), row)
        if found.setdefault(name, said) != said:
            raise UserError(f"{where}: {name} occurs before with a different text: keep one of them")
    return found


def transcribed_in(folder: Path) -> list[Transcript]:
    """Read the output of `priormatch transcribe` in a folder, named as `priormatch prepare audio` names recordings."""
    texts: dict[str, str] = {}
    for file in sorted(folder.rglob("*.txt")):
        texts[name_of(file.relative_to(folder))] = " ".join(_read(file).split())
    for file in sorted(folder.rglob("*.json")):
        for where, row in _json_rows(file, _read(file)):
            texts[name_of(file.relative_to(folder))] = heard_in(where, row)
    if not texts:
        raise UserError(f"{folder} holds no transcript: transcribe with --format txt or json")
    return [Transcript(name, text, 0, None, []) for name, text in sorted(texts.items())]


def read_rows(path: Path) -> Iterator[tuple[str, Row]]:
    """Yield the location and fields of each utterance in a file; the format is detected from the content."""
    content = _read(path)
    if not content.strip():
        raise UserError(f"{path} is empty: give {FORMS}")
    if content.lstrip()[0] in "{[":
        return _json_rows(path, content)
    header = content.lstrip().partition("\n")[0]
    if _is_table(path, header):
        return _table_rows(path)
    lines = [each for each in _lines(path, content) if not each[1].startswith(";;")]  # NIST's comments
    found = [(where, NIST.fullmatch(line)) for where, line in lines]
    if all(match for _, match in found):
        return ((where, match.groupdict()) for where, match in found if match)
    parts = ((where, line.split(maxsplit=1)) for where, line in lines)
    return ((where, {"id": name, "text": " ".join(words)}) for where, (name, *words) in parts)


def heard_in(where: str, row: Row) -> str:
    """The hypothesis of a row."""
    heard = text_of(row, (*HEARD, *TEXT))
    if heard is None:
        raise lacking(where, "hypothesis", (HEARD[0], TEXT[0]), row)
    return heard


def id_of(where: str, row: Row) -> str:
    """The id of an utterance, or the name of its audio file."""
    given = next((str(row[name]) for name in ID if isinstance(row.get(name), str | int)), "").strip()
    if found := given or PurePath(text_of(row, AUDIO) or "").stem:
        return found
    raise lacking(where, "id", (ID[0], AUDIO[0]), row)


def text_of(row: Row, names: tuple[str, ...]) -> str | None:
    """The text of the first of the named fields that a row has."""
    return next((row[name].strip() for name in names if isinstance(row.get(name), str)), None)


def lacking(where: str, what: str, names: tuple[str, ...], row: Row) -> UserError:
    """The error for a row without a required field."""
    held = ", ".join(map(str, row)) or "nothing"
    return UserError(f"{where}: no {what} in {held}: name it {' or '.join(names)}; formats: {FORMS}")


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text: give {FORMS}") from error


def _lines(path: Path, content: str) -> Iterator[tuple[str, str]]:
    """Yield the location and text of each line that is not blank."""
    for number, line in enumerate(content.split("\n"), 1):
        if stripped := line.strip():
            yield f"{path}, line {number}", stripped


def _json_rows(path: Path, content: str) -> Iterator[tuple[str, Row]]:
    """JSON lines, a list of objects, or one object."""
    for where, found in _json_values(path, content):
        if not isinstance(found, dict):
            raise UserError(f"{where}: not a JSON object: write one for each utterance, with id and text")
        yield where, found


def _json_values(path: Path, content: str) -> Iterator[tuple[str, Any]]:
    try:
        whole = parse_json(content)
    except ValueError:
        for where, line in _lines(path, content):
            try:
                found = parse_json(line)
            except ValueError as error:
                raise UserError(f"{where}: not JSON ({error}): fix or remove it") from error
            yield where, found
        return
    for number, found in enumerate(whole if isinstance(whole, list) else [whole], 1):
        yield f"{path}, entry {number}", found


def _is_table(path: Path, header: str) -> bool:
    """Whether the first line is a header with a column of ids or audio files."""
    known = (*ID, *AUDIO)
    names = [name.strip(' "\r') for name in header.split(delimiter_of(header, known))]
    return path.suffix in (".csv", ".tsv") or (len(names) > 1 and usual(names, known) is not None)


def _table_rows(path: Path) -> Iterator[tuple[str, Row]]:
    """Yield the rows of a table below its header."""
    lines = read_table(path, (*ID, *AUDIO))
    _, names = next(lines)
    columns = [name.lower() for name in names]
    for number, cells in lines:
        where = f"{path}, line {number}"
        if len(cells) != len(columns):
            raise UserError(f"{where}: {len(cells)} fields under {len(columns)} columns: fix the line")
        yield where, dict(zip(columns, cells, strict=True))
