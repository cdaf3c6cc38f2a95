"""Beams of a few unlabeled utterances during matching: those of the first and of the latest proposal."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from priormatch.data.corpus import Corpus
from priormatch.errors import UserError
from priormatch.files import read_text, replace_text
from priormatch.json_text import parse_json
from priormatch.matching.hypotheses import Hypothesis, Inspection, look_into
from priormatch.matching.lpm import Weighing
from priormatch.recognizers.protocols import Prior, Recognizer
from priormatch.scoring.alignment import AlignedWord

FILE = "inspected.jsonl"
FIRST = '{"update": 0, '


@dataclass(frozen=True)
class Inspected:
    """A beam, the update of the proposal that listed it, and the cut of the utterance from its manifest."""

    update: int
    cut: dict[str, Any]
    inspection: Inspection


@dataclass(frozen=True)
class Inspector:
    """Records the beams of a corpus for every new proposal; a file keeps those of the first and the latest.

    The file is replaced atomically. A resumed run overwrites the beams that it computes again.
    """

    corpus: Corpus
    prior: Prior
    beam_size: int
    weighing: Weighing
    file: Path

    def __call__(self, proposal: Recognizer, update: int) -> None:
        """Record the beams of a proposal; those of update 0 are the first."""
        beams = look_into(proposal, self.prior, self.corpus, self.beam_size, self.weighing)
        found = {each.id: each for each in beams}
        cuts = [cut for cut in self.corpus.cuts if cut.id in found]
        new = [to_line(Inspected(update, cut.to_dict(), found[cut.id])) for cut in cuts]
        self.file.parent.mkdir(parents=True, exist_ok=True)
        replace_text(self.file, "".join(self._first() if update > 0 else []) + "".join(new))

    def _first(self) -> list[str]:
        if not self.file.exists():
            return []
        lines = self.file.read_text(encoding="utf-8").splitlines(keepends=True)
        return [line for line in lines if line.startswith(FIRST)]


def to_line(inspected: Inspected) -> str:
    """Format a beam as a line of JSON that starts with the update; what JSON cannot represent becomes null."""
    return json.dumps(asdict(inspected), default=lambda _: None) + "\n"


def from_line(line: str) -> Inspected:
    """Parse a line of `to_line`; raise ValueError for anything else."""
    try:
        entry = parse_json(line)
        of = entry["inspection"]
        if not isinstance(of["id"], str):
            raise TypeError("its id is not a string")
        score = None if of["reference"] is None else float(of["reference_log_prior"])
        hypotheses = [hypothesis_of(each) for each in of["hypotheses"]]
        beam = Inspection(**{**of, "reference_log_prior": score, "hypotheses": hypotheses})
        return Inspected(int(entry["update"]), entry["cut"], beam)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not an inspected beam: {error}") from error


def hypothesis_of(entry: dict[str, Any]) -> Hypothesis:
    """Convert a JSON entry to a hypothesis, and check its numbers."""
    figures = {name: float(entry[name]) for name in ("log_q", "log_prior", "weight")}
    words = None if entry["words"] is None else [AlignedWord(**each) for each in entry["words"]]
    return Hypothesis(**{**entry, **figures, "words": words})


def read_inspected(path: Path) -> list[Inspected]:
    """Read the beams in a file; those of the first proposal come before those of the latest."""
    try:
        return [from_line(line) for line in read_text(path).splitlines()]
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error}): remove it to make the report without it") from error
