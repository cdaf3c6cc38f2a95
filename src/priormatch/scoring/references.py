"""What was really said, for hypotheses of speech that had no text (Table 8 of the paper)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from priormatch.data.batches import cut_text, read_cuts
from priormatch.data.recordings import place_of
from priormatch.errors import UserError
from priormatch.scoring.texts import FORMS, references_in
from priormatch.scoring.transcripts import Transcript

HEAD = 4096  # bytes


def references_of(path: Path) -> dict[str, str]:
    """What was said, by utterance: the transcripts of a manifest of cuts, or text as other tools write it."""
    path = path / "text" if path.is_dir() else path  # as it is called in a Kaldi folder
    if not path.is_file():
        raise UserError(f"no references at {path}: give cuts, or {FORMS}")
    return transcripts_of(path) if holds_cuts(path) else references_in(path)


def holds_cuts(path: Path) -> bool:
    """Whether a file is a manifest of cuts."""
    if path.suffix in (".gz", ".yaml"):
        return True
    with path.open("rb") as file:
        return b'"supervisions"' in file.read(HEAD)


def transcripts_of(cuts: Path) -> dict[str, str]:
    """The transcripts of a manifest by utterance."""
    if references := {cut.id: text for cut in read_cuts(cuts) if (text := cut_text(cut))}:
        return references
    raise UserError(f"{cuts} holds no transcribed utterance: give cuts with text")


def with_references(transcripts: Sequence[Transcript], references: Mapping[str, str]) -> list[Transcript]:
    """Transcripts with what was really said, None where that is not known."""
    return [replace(each, reference=references.get(each.id)) for each in transcripts]


def units_of(cuts: Path, unit: Literal["speakers", "recordings"]) -> dict[str, str]:
    """Whose or of which recording the utterances of a manifest are, those left out of which that is not known."""
    if unit == "recordings":
        return {cut.id: place_of(cut)[0] for cut in read_cuts(cuts)}
    return {cut.id: each.speaker for cut in read_cuts(cuts) for each in cut.supervisions if each.speaker}
