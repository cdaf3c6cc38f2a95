"""Word alignment of hypotheses and references, and counts of word confusions."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

import jiwer

from priormatch.scoring.transcripts import Transcript


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
        ours = aligned.hypotheses[0][chunk.hyp_start_idx : chunk.hyp_end_idx]
        theirs = aligned.references[0][chunk.ref_start_idx : chunk.ref_end_idx]
        words += [AlignedWord(*pair) for pair in zip_longest(ours, theirs, fillvalue="")]
    return words


Kind = Literal["substitute", "delete", "insert"]
KINDS: tuple[Kind, ...] = ("substitute", "delete", "insert")


@dataclass(frozen=True)
class AlignedUtterance:
    """The aligned words of an utterance."""

    id: str
    words: list[AlignedWord]

    def count(self, kind: Kind) -> int:
        """The number of errors of a kind."""
        return sum(word.kind == kind for word in self.words)

    @property
    def errors(self) -> int:
        """The number of errors."""
        return sum(word.kind != "equal" for word in self.words)

    @property
    def length(self) -> int:
        """The number of reference words."""
        return sum(word.kind != "insert" for word in self.words)


def misheard(transcripts: Iterable[Transcript]) -> list[AlignedUtterance]:
    """The utterances with errors, sorted by most errors, then by shortest reference."""
    found = [
        AlignedUtterance(each.id, align(each.reference or "", each.hypothesis))
        for each in transcripts
        if each.hypothesis != each.reference
    ]
    wrong = [each for each in found if each.errors]
    return sorted(wrong, key=lambda each: (-each.errors, each.length, each.id))


def confusions(utterances: Iterable[AlignedUtterance]) -> Counter[AlignedWord]:
    """Count each substitution, deletion and insertion."""
    return Counter(word for each in utterances for word in each.words if word.kind != "equal")


def total(counts: Counter[AlignedWord], kind: Kind) -> int:
    """The total number of errors of a kind."""
    return sum(count for word, count in counts.items() if word.kind == kind)


def most_frequent(
    counts: Counter[AlignedWord], kind: Kind, most: int | None
) -> Sequence[tuple[AlignedWord, int]]:
    """The errors of a kind with their counts, the most frequent first, ties in alphabetical order."""
    found = [(word, count) for word, count in counts.items() if word.kind == kind]
    return sorted(found, key=lambda each: (-each[1], each[0].reference, each[0].hypothesis))[:most]
