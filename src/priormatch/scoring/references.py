"""Reference transcripts for hypotheses of unlabeled speech (Table 8 of the paper)."""

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
    """References by utterance, from a manifest of cuts or from the text formats of other tools."""
    path = path / "text" if path.is_dir() else path  # its name in a Kaldi folder
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
    """Transcripts with the given references, None if unknown."""
    return [replace(each, reference=references.get(each.id)) for each in transcripts]


def units_of(cuts: Path, unit: Literal["speakers", "recordings"]) -> dict[str, str]:
    """The speaker or recording of each utterance in a manifest; utterances without one are left out."""
    if unit == "recordings":
        return {cut.id: place_of(cut)[0] for cut in read_cuts(cuts)}
    return {cut.id: each.speaker for cut in read_cuts(cuts) for each in cut.supervisions if each.speaker}
