"""References and hypotheses in other formats: cuts, Kaldi and NIST lines, tables, JSON, files of `transcribe`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any, Literal

from priormatch.data.audio import FOREIGN, SUFFIXES
from priormatch.data.columns import AUDIO, ID, TEXT, delimiter_of, read_table, usual
from priormatch.data.corpus import cut_text, read_cuts
from priormatch.data.manifest import name_of
from priormatch.data.recordings import place_of
from priormatch.data.text_files import CONVERT
from priormatch.errors import UserError
from priormatch.json_text import parse_json
from priormatch.scoring.transcripts import Transcript

HYPOTHESIS = ("hypothesis", "hyp", "pred_text", "prediction")
REFERENCE = ("reference", "ref", "ground_truth")
FORMS = "JSON lines, a CSV or TSV table, Kaldi's `id words` or NIST's `words (id)`"
NIST = re.compile(r"(?P<text>.*)\((?P<id>[^()\s]+)\)")
KALDI = "text"  # in a Kaldi folder
HEAD = 4096  # bytes

Row = Mapping[str, Any]


def references_of(path: Path) -> dict[str, str]:
    """References by utterance, from a manifest of cuts or from the text formats of other tools."""
    if is_beside_audio(path):
        return _references_beside_audio(path)
    path = path / KALDI if path.is_dir() else path
    if not path.is_file():
        raise UserError(f"no references at {path}: provide cuts, or {FORMS}")
    if not holds_cuts(path):
        return _references_in_text(path)
    if references := {cut.id: text for cut in read_cuts(path) if (text := cut_text(cut))}:
        return references
    raise UserError(f"{path} contains no transcribed utterances: provide cuts with text")


def is_beside_audio(path: Path) -> bool:
    """Whether references are texts beside recordings, some of which may have none."""
    return path.is_dir() and not (path / KALDI).is_file()


def holds_cuts(path: Path) -> bool:
    """Whether a file is a manifest of cuts; a folder is none."""
    if path.is_dir():
        return False
    if path.suffix in (".gz", ".yaml"):
        return True
    with path.open("rb") as file:
        return b'"supervisions"' in file.read(HEAD)


def with_references(transcripts: Sequence[Transcript], references: Mapping[str, str]) -> list[Transcript]:
    """Transcripts with the given references, None if unknown."""
    return [replace(each, reference=references.get(each.id)) for each in transcripts]


def units_of(cuts: Path, unit: Literal["speakers", "recordings"]) -> dict[str, str]:
    """The speaker or recording of each utterance in a manifest; utterances without one are left out."""
    if unit == "recordings":
        return {cut.id: place_of(cut)[0] for cut in read_cuts(cuts)}
    return {cut.id: each.speaker for cut in read_cuts(cuts) for each in cut.supervisions if each.speaker}


def hypotheses_in(path: Path) -> list[Transcript]:
    """Read hypotheses, with references if the file has them; next to a `pred_text`, `text` is the reference."""
    found = []
    for where, row in _rows(path):
        only_text = _text_of(row, HYPOTHESIS) is None
        reference = _text_of(row, REFERENCE if only_text else (*REFERENCE, *TEXT))
        name, text = _id_of(where, row), _required(where, row, HYPOTHESIS)
        found.append(Transcript(name, text, 0, reference, nbest_of(row)))
    return found


def nbest_of(row: Row) -> list[tuple[str, float]]:
    """The hypotheses and scores that `priormatch decode` wrote for an utterance; empty for other formats."""
    listed = row.get("nbest")
    if not isinstance(listed, list):
        return []
    entries = [(each.get("text"), each.get("score")) for each in listed if isinstance(each, dict)]
    return [(text, score) for text, score in entries if isinstance(text, str) and isinstance(score, float)]


def transcribed_in(folder: Path) -> list[Transcript]:
    """Read the output of `priormatch transcribe` in a folder, named as `priormatch prepare audio` names recordings."""
    texts: dict[str, str] = {}
    for file in sorted(folder.rglob("*.txt")):
        texts[name_of(file.relative_to(folder))] = " ".join(_read(file).split())
    for file in sorted(folder.rglob("*.json")):
        for where, row in _json_rows(file, _read(file)):
            texts[name_of(file.relative_to(folder))] = _required(where, row, HYPOTHESIS)
    if not texts:
        raise UserError(f"{folder} contains no transcript: transcribe with --format txt or json")
    return [Transcript(name, text, 0, None, []) for name, text in sorted(texts.items())]


def _references_beside_audio(folder: Path) -> dict[str, str]:
    """Read NAME.txt beside each NAME.wav, named as `priormatch prepare audio` does; all texts if there is no audio."""
    files = [each for each in sorted(folder.rglob("*")) if not each.name.startswith(".") and each.is_file()]
    texts = [each for each in files if each.suffix.lower() == ".txt"]
    audio = {each.with_suffix("") for each in files if each.suffix.lower() in (*SUFFIXES, *FOREIGN)}
    found: dict[str, Path] = {}
    for file in [each for each in texts if each.with_suffix("") in audio] or texts:
        name = name_of(file.relative_to(folder))
        if found.setdefault(name, file) != file:
            raise UserError(f"{found[name]} and {file} are both for the recording {name}: rename one of them")
    if not found:
        raise UserError(
            f"{folder} contains no references: put NAME.txt next to NAME.wav, or provide cuts, or {FORMS}"
        )
    return {name: " ".join(_read(file).split()) for name, file in found.items()}


def _references_in_text(path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for where, row in _rows(path):
        name, text = _id_of(where, row), _required(where, row, REFERENCE)
        if found.setdefault(name, text) != text:
            raise UserError(f"{where}: {name} occurs before with a different text: keep one of them")
    return found


def _required(where: str, row: Row, names: tuple[str, ...]) -> str:
    """The hypothesis or reference of a row, under one of its own names or as `text`."""
    text = _text_of(row, (*names, *TEXT))
    if text is None:
        raise _lacking(where, names[0], (names[0], TEXT[0]), row)
    return text


def _id_of(where: str, row: Row) -> str:
    """The id of an utterance, or the name of its audio file."""
    given = next((str(row[name]) for name in ID if isinstance(row.get(name), str | int)), "").strip()
    if found := given or PurePath(_text_of(row, AUDIO) or "").stem:
        return found
    raise _lacking(where, "id", (ID[0], AUDIO[0]), row)


def _text_of(row: Row, names: tuple[str, ...]) -> str | None:
    """The text of the first of the named fields that a row has."""
    return next((row[name].strip() for name in names if isinstance(row.get(name), str)), None)


def _lacking(where: str, what: str, names: tuple[str, ...], row: Row) -> UserError:
    """The error for a row without a required field."""
    held = ", ".join(map(str, row)) or "nothing"
    return UserError(f"{where}: no {what} in {held}: name it {' or '.join(names)}; formats: {FORMS}")


def _rows(path: Path) -> Iterator[tuple[str, Row]]:
    """Yield the location and fields of each utterance in a file; the format is detected from the content."""
    content = _read(path)
    if not content.strip():
        raise UserError(f"{path} is empty: provide {FORMS}")
    if content.lstrip()[0] in "{[":
        return _json_rows(path, content)
    if _is_table(path, content.lstrip().partition("\n")[0]):
        return _table_rows(path)
    lines = [each for each in _lines(path, content) if not each[1].startswith(";;")]  # NIST's comments
    found = [(where, NIST.fullmatch(line)) for where, line in lines]
    if all(match for _, match in found):
        return ((where, match.groupdict()) for where, match in found if match)
    parts = ((where, line.split(maxsplit=1)) for where, line in lines)
    return ((where, {"id": name, "text": " ".join(words)}) for where, (name, *words) in parts)


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text: {CONVERT} Formats: {FORMS}") from error


def _lines(path: Path, content: str) -> Iterator[tuple[str, str]]:
    """Yield the location and text of each line that is not blank."""
    for number, line in enumerate(content.split("\n"), 1):
        if stripped := line.strip():
            yield f"{path}, line {number}", stripped


def _json_rows(path: Path, content: str) -> Iterator[tuple[str, Row]]:
    """Yield the objects of JSON lines, of a list, or the only one."""
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
