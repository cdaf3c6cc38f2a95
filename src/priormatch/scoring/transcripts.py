"""Decoded utterances on disk: one JSON object per line."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from priormatch.distributed import from_main
from priormatch.errors import UserError
from priormatch.files import begin_parts, remove_parts, replacing
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


def write_transcripts(path: Path, transcripts: Iterable[Transcript]) -> None:
    """Write transcripts as JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(map(to_line, transcripts))


def _lines(path: Path) -> Iterator[Transcript]:
    """The transcripts of a file, line by line."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield from_line(line)
            except ValueError as error:
                raise UserError(f"{path}:{number}: not a transcript ({error}); decode again") from error


def read_transcripts(path: Path) -> list[Transcript]:
    """Read what `write_transcripts` wrote."""
    if not path.is_file():
        raise UserError(f"no transcripts at {path}: make them with `priormatch decode`")
    transcripts = list(_lines(path))
    if not transcripts:
        raise UserError(f"{path} contains no transcripts: decode again")
    return transcripts


class PartialTranscripts:
    """Transcripts of unfinished decoding, in the folder `OUT.partial`: one file a part, written as a whole.

    So decoding resumes, and several processes can share it. `key` identifies the model, the search and the speech;
    parts of others are discarded.
    """

    def __init__(self, out: Path, key: str) -> None:
        self.folder = begin_parts(out, key)

    def file(self, part: int) -> Path:
        """The file of one part."""
        return self.folder / f"{part:06d}.jsonl"

    def missing(self, parts: int) -> list[int]:
        """The parts that are still to be decoded, the same in all processes."""
        return from_main([part for part in range(parts) if not self.file(part).exists()])

    def transcripts(self, parts: int) -> Iterator[Transcript]:
        """The transcripts of all parts, in their order."""
        for part in range(parts):
            yield from _lines(self.file(part))

    def remove(self) -> None:
        """Remove all parts."""
        remove_parts(self.folder)
