"""Word alignment of hypotheses and references."""

from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

import jiwer


@dataclass(frozen=True)
class AlignedWord:
    """A hypothesis word and its reference word; the hypothesis is "" for a deletion, the reference for an insertion."""

    hypothesis: str
    reference: str

    @property
    def kind(self) -> Literal["equal", "substitute", "insert", "delete"]:
        """The kind of error, or "equal"."""
        if self.hypothesis == self.reference:
            return "equal"
        return "delete" if not self.hypothesis else "insert" if not self.reference else "substitute"


def align(reference: str, hypothesis: str) -> list[AlignedWord]:
    """Align the words of a hypothesis with those of the reference, with the fewest errors."""
    aligned = jiwer.process_words([reference], [hypothesis])
    words = []
    for chunk in aligned.alignments[0]:
        heard = aligned.hypotheses[0][chunk.hyp_start_idx : chunk.hyp_end_idx]
        said = aligned.references[0][chunk.ref_start_idx : chunk.ref_end_idx]
        words += [AlignedWord(*pair) for pair in zip_longest(heard, said, fillvalue="")]
    return words
