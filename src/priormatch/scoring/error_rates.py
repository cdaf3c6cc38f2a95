"""Word and character errors per utterance, error rates, and the normalizers that are applied before counting.

Error rates depend on the normalizer as much as on the model, so every score names its normalizer.
"""

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import jiwer
import numpy as np

from priormatch.data.normalizer import ENGLISH, Normalizer, normalize_unicode


def none(text: str) -> str:
    """The unchanged words, separated by one space."""
    return " ".join(text.split())


def basic(text: str) -> str:
    """Lower-case words of any script, as `unicode` produces them, but with numbers kept; idempotent."""
    return normalize_unicode(text, numbers=True)


NORMALIZERS: Mapping[str, Callable[[str], str]] = {
    "none": none,
    "basic": basic,
    "english": ENGLISH,
    "unicode": Normalizer("unicode"),
    "turkic": Normalizer("turkic"),
}
"""Normalizers by the names in scores; the last three are those of `priormatch prepare` and delete digits."""


@dataclass(frozen=True, eq=False)
class ErrorCounts:
    """Edit errors and reference lengths of a list of utterances, both of shape (utterances,)."""

    errors: np.ndarray
    lengths: np.ndarray

    def __post_init__(self) -> None:
        if self.errors.ndim != 1 or self.errors.shape != self.lengths.shape:
            raise ValueError(f"errors {self.errors.shape} and lengths {self.lengths.shape} differ in shape")

    def __len__(self) -> int:
        return len(self.errors)

    @property
    def rate(self) -> float:
        """Error rate in percent, 100 * sum(errors) / sum(lengths); nan if there is no reference.

        An utterance with an empty reference adds its insertions to the errors and nothing to the length.
        """
        length = int(self.lengths.sum())
        return 100 * float(self.errors.sum()) / length if length else float("nan")


def word_errors(references: Sequence[str], hypotheses: Sequence[str]) -> ErrorCounts:
    """Count substituted, deleted and inserted words; words are separated by white space."""
    return _count(jiwer.process_words, references, hypotheses)


@dataclass(frozen=True)
class ErrorKinds:
    """How many words of a list of utterances are substituted, deleted and inserted."""

    substituted: int
    deleted: int
    inserted: int


def kinds_of_errors(references: Sequence[str], hypotheses: Sequence[str]) -> ErrorKinds:
    """Count the word errors of each kind."""
    if not references:
        return ErrorKinds(0, 0, 0)
    found = jiwer.process_words(_squeezed(references), _squeezed(hypotheses))
    return ErrorKinds(found.substitutions, found.deletions, found.insertions)


def character_errors(references: Sequence[str], hypotheses: Sequence[str]) -> ErrorCounts:
    """Count character errors, including the single space between words but not white space at the edges.

    Characters are Unicode code points after composition (NFC): é is one, and so is each sign of an Indic syllable.
    """
    return _count(jiwer.process_characters, references, hypotheses)


def summed(runs: Iterable[ErrorCounts]) -> ErrorCounts:
    """Sum the counts of several runs, such as seeds, on the same utterances in the same order."""
    runs = list(runs)
    if any(not np.array_equal(run.lengths, runs[0].lengths) for run in runs):
        raise ValueError("the runs were not scored on the same references in the same order")
    return ErrorCounts(np.sum([run.errors for run in runs], axis=0), runs[0].lengths * len(runs))


def grouped(counts: ErrorCounts, units: Sequence[str | int]) -> ErrorCounts:
    """Sum the counts of utterances that share a unit, such as their speaker; sorted by unit."""
    names, unit = np.unique(np.array(units, dtype=object), return_inverse=True)
    errors, lengths = (np.zeros(len(names), np.int64) for _ in range(2))
    np.add.at(errors, unit, counts.errors)
    np.add.at(lengths, unit, counts.lengths)
    return ErrorCounts(errors, lengths)


def word_error_rate_recovered(base: float, x: float, top: float) -> float:
    """WERR in percent: the share of the gap between baseline and topline that x closes; nan without a gap.

    WERR = 100 * (base - x) / (base - top), for word error rates in the same unit.
    """
    return 100 * (base - x) / (base - top) if base != top else float("nan")


def _count(
    align: Callable[[list[str], list[str]], jiwer.WordOutput | jiwer.CharacterOutput],
    references: Sequence[str],
    hypotheses: Sequence[str],
) -> ErrorCounts:
    if len(references) != len(hypotheses):
        raise ValueError(f"{len(references)} references, but {len(hypotheses)} hypotheses")
    if not references:
        return ErrorCounts(np.zeros(0, np.int64), np.zeros(0, np.int64))
    aligned = align(*map(_squeezed, (references, hypotheses)))
    errors = [
        sum(
            max(chunk.ref_end_idx - chunk.ref_start_idx, chunk.hyp_end_idx - chunk.hyp_start_idx)
            for chunk in chunks
            if chunk.type != "equal"
        )
        for chunks in aligned.alignments
    ]
    return ErrorCounts(np.array(errors), np.array([len(reference) for reference in aligned.references]))


def _squeezed(texts: Sequence[str]) -> list[str]:
    """Compose characters (NFC), and separate words by one space."""
    return [" ".join(unicodedata.normalize("NFC", text).split()) for text in texts]
