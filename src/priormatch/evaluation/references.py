"""What was really said, for hypotheses of speech that had no text (Table 8 of the paper)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from priormatch.data.batches import cut_text, read_cuts
from priormatch.data.recordings import place_of
from priormatch.errors import UserError
from priormatch.evaluation.transcripts import Transcript


def references_of(cuts: Path) -> dict[str, str]:
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
