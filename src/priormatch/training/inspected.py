"""The beams of a few unlabeled utterances, kept while matching goes on: the first proposal's and the latest one's."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from priormatch.data.batches import Corpus
from priormatch.errors import UserError
from priormatch.files import read_text, replace_text
from priormatch.json_text import parse_json
from priormatch.matching.hypotheses import Hypothesis, Inspection, look_into
from priormatch.matching.lpm import Weighing
from priormatch.recognizers.prior import Prior
from priormatch.recognizers.recognizer import Recognizer
from priormatch.scoring.alignment import AlignedWord

FILE = "inspected.jsonl"
FIRST = '{"update": 0, '


@dataclass(frozen=True)
class Inspected:
    """A beam, the update whose proposal listed it, and the utterance's cut as its manifest has it."""

    update: int
    cut: dict[str, Any]
    inspection: Inspection


@dataclass(frozen=True)
class Inspector:
    """Looks into the beams of a corpus whenever the proposal is new, and keeps the first and the latest in a file.

    The file is replaced at once, and what a resumed training finds out again takes the place of what it knew.
    """

    corpus: Corpus
    prior: Prior
    beam_size: int
    weighing: Weighing
    file: Path

    def __call__(self, proposal: Recognizer, update: int) -> None:
        """Keep what this proposal lists; its beams are the first at update 0."""
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
    """A beam as a line of JSON, which begins with the update; of the cut, what JSON has no word for is left out."""
    return json.dumps(asdict(inspected), default=lambda _: None) + "\n"


def from_line(line: str) -> Inspected:
    """What `to_line` wrote; anything else raises a ValueError."""
    try:
        entry = parse_json(line)
        of = entry["inspection"]
        if not isinstance(of["id"], str):
            raise TypeError("its id is no text")
        score = None if of["reference"] is None else float(of["reference_log_prior"])
        hypotheses = [hypothesis_of(each) for each in of["hypotheses"]]
        beam = Inspection(**{**of, "reference_log_prior": score, "hypotheses": hypotheses})
        return Inspected(int(entry["update"]), entry["cut"], beam)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not an inspected beam: {error}") from error


def hypothesis_of(entry: dict[str, Any]) -> Hypothesis:
    """A hypothesis as JSON has it, with its figures checked."""
    figures = {name: float(entry[name]) for name in ("log_q", "log_prior", "weight")}
    words = None if entry["words"] is None else [AlignedWord(**each) for each in entry["words"]]
    return Hypothesis(**{**entry, **figures, "words": words})


def read_inspected(path: Path) -> list[Inspected]:
    """The beams of a file, the first proposal's before the latest one's."""
    try:
        return [from_line(line) for line in read_text(path).splitlines()]
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error}): remove it, and the report goes without it") from error
