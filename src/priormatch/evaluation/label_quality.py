"""How good labels are where it is known what was really said (Table 8 of the paper)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from priormatch.data.batches import cut_text, read_cuts
from priormatch.errors import UserError
from priormatch.evaluation.error_rates import character_errors, word_errors
from priormatch.evaluation.transcripts import Transcript


@dataclass(frozen=True)
class LabelQuality:
    """WER and CER of labels in percent, their number, and the share of the transcribed utterances that have one."""

    wer: float
    cer: float
    utterances: int
    share: float


def label_quality(transcripts: Sequence[Transcript], references: Mapping[str, str]) -> LabelQuality:
    """Compare hypotheses with references by utterance; those that have no reference are left out."""
    hypotheses = {each.id: each.hypothesis for each in transcripts if each.id in references}
    said = [references[each] for each in hypotheses]
    heard = list(hypotheses.values())
    return LabelQuality(
        word_errors(said, heard).rate,
        character_errors(said, heard).rate,
        len(heard),
        len(heard) / max(len(references), 1),
    )


def references_of(cuts: Path) -> dict[str, str]:
    """The transcripts of a manifest by utterance."""
    if references := {cut.id: text for cut in read_cuts(cuts) if (text := cut_text(cut))}:
        return references
    raise UserError(f"{cuts} holds no transcribed utterance: give cuts with text")


def with_references(transcripts: Sequence[Transcript], references: Mapping[str, str]) -> list[Transcript]:
    """Transcripts with what was really said, None where that is not known."""
    return [replace(each, reference=references.get(each.id)) for each in transcripts]
