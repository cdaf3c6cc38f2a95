"""Decoded utterances on disk: one JSON object per line."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from priormatch.errors import UserError
from priormatch.files import replace_text, writing
from priormatch.json_text import parse_json


@dataclass(frozen=True)
class Transcript:
    """One decoded utterance: its best hypothesis, the length of that in pieces, and the n-best list with scores.

    The first of the n-best list is the best hypothesis; `ended` is whether the search found an end of sentence.
    """

    id: str
    hypothesis: str
    pieces: int
    reference: str | None
    nbest: list[tuple[str, float]]
    ended: bool = True

    @property
    def score(self) -> float | None:
        """The score of the hypothesis, or None if it is not stored."""
        return self.nbest[0][1] if self.nbest else None


def both_sides(transcripts: Sequence[Transcript]) -> tuple[list[str], list[str]]:
    """References and hypotheses of all utterances; "" for a missing reference."""
    return [each.reference or "" for each in transcripts], [each.hypothesis for each in transcripts]


def to_line(transcript: Transcript) -> str:
    """Format a transcript as a line of JSON."""
    entry: dict[str, object] = {
        "id": transcript.id,
        "hypothesis": transcript.hypothesis,
        "pieces": transcript.pieces,
    }
    if transcript.reference is not None:
        entry["reference"] = transcript.reference
    if not transcript.ended:
        entry["ended"] = False
    if len(transcript.nbest) == 1:
        entry["score"] = transcript.score
    elif transcript.nbest:
        entry["nbest"] = [{"text": text, "score": score} for text, score in transcript.nbest]
    return json.dumps(entry, ensure_ascii=False) + "\n"


def from_line(line: bytes) -> Transcript:
    """Parse the output of `to_line`; raise ValueError for anything else."""
    try:
        entry = parse_json(line)
        nbest = [(each["text"], each["score"]) for each in entry.get("nbest", [])]
        if "score" in entry:
            nbest = [(entry["hypothesis"], entry["score"])]
        if not (isinstance(entry["hypothesis"], str) and isinstance(entry.get("reference"), str | None)):
            raise TypeError("hypothesis or reference is not a string")
        return Transcript(
            str(entry["id"]),
            entry["hypothesis"],
            entry.get("pieces", 0),
            entry.get("reference"),
            nbest,
            entry.get("ended", True),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error


def write_transcripts(path: Path, transcripts: Sequence[Transcript]) -> None:
    """Write transcripts as JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, "".join(map(to_line, transcripts)))


def read_transcripts(path: Path) -> list[Transcript]:
    """Read what `write_transcripts` wrote."""
    if not path.is_file():
        raise UserError(f"no transcripts at {path}: make them with `priormatch decode`")
    transcripts = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            transcripts.append(from_line(line))
        except ValueError as error:
            raise UserError(f"{path}:{number}: not a transcript ({error}); decode again") from error
    if not transcripts:
        raise UserError(f"{path} holds no transcripts: decode again")
    return transcripts


class PartialTranscripts:
    """Transcripts of unfinished decoding, in `OUT.partial`, so that it can resume.

    The first line identifies the model and search (`key`); transcripts of others are discarded.
    """

    def __init__(self, out: Path, key: str) -> None:
        self.path = out.with_name(f"{out.name}.partial")
        self.found: dict[str, Transcript] = {}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        first = json.dumps({"key": key}) + "\n"
        lines = self.path.read_bytes().splitlines(keepends=True) if self.path.is_file() else []
        if lines and lines[0] == first.encode():
            for line in lines[1:]:
                try:
                    transcript = from_line(line)
                except ValueError:
                    break  # a line cut off by a kill
                self.found[transcript.id] = transcript
        replace_text(self.path, first + "".join(map(to_line, self.found.values())))

    def add(self, transcripts: Sequence[Transcript]) -> None:
        """Append decoded transcripts to the file."""
        with writing(self.path), self.path.open("a", encoding="utf-8") as file:
            file.writelines(map(to_line, transcripts))
        self.found |= {each.id: each for each in transcripts}

    def remove(self) -> None:
        """Remove the file when all transcripts are written."""
        os.unlink(self.path)
