"""Filters for pseudo-labels, after Kahn, Lee and Hannun (2020, arXiv 1909.09116)."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

EMPTY, UNENDED, REPEATING, UNSURE = "empty", "without an end", "repeating themselves", "with a low score"


@dataclass(frozen=True)
class LabelFilter:
    """Drops hypotheses that are empty, unfinished or looping, then those with the lowest scores.

    A hypothesis loops if a sequence of `ngram` words occurs in it more than `most_repeats` times (0 disables the
    check), and is unfinished if the search found no end. Of the rest, the share `keep_best` with the highest scores per
    piece is kept.
    """

    ngram: int = 2
    most_repeats: int = 4
    keep_best: float = 1.0
    keep_unended: bool = False

    def __call__(
        self, texts: Sequence[str], pieces: Sequence[int], scores: Sequence[float], ended: Sequence[bool]
    ) -> list[str | None]:
        """Why each hypothesis is dropped, or None if it is kept; with `keep_best` 1 the scores are not used."""
        reasons = [self._why(text, end) for text, end in zip(texts, ended, strict=True)]
        if self.keep_best == 1:
            return reasons
        left = [index for index, reason in enumerate(reasons) if reason is None]
        sure = best_share([score_a_piece(scores[index], pieces[index]) for index in left], self.keep_best)
        for index, stays in zip(left, sure, strict=True):
            reasons[index] = None if stays else UNSURE
        return reasons

    def _why(self, text: str, ended: bool) -> str | None:
        if not text:
            return EMPTY
        if not (ended or self.keep_unended):
            return UNENDED
        looping = self.most_repeats > 0 and repeats(text, self.ngram) > self.most_repeats
        return REPEATING if looping else None


def repeats(text: str, ngram: int) -> int:
    """Occurrences of the most frequent sequence of `ngram` words in a text, including overlapping ones."""
    words = text.split()
    sequences = zip(*(words[start:] for start in range(ngram)), strict=False)
    return max(Counter(sequences).values(), default=0)


def score_a_piece(score: float, pieces: int) -> float:
    """log q(y|x) / len(y), including the end of sentence."""
    return score / (pieces + 1)


def best_share(scores: Sequence[float], share: float) -> list[bool]:
    """True for the highest scores, the given share rounded up; ties with the lowest kept score are kept too."""
    count = math.ceil(round(share * len(scores), 9))  # 0.07 · 100 is a hair more than 7
    if count == 0:
        return [False] * len(scores)
    lowest = sorted(scores, reverse=True)[count - 1]
    return [score >= lowest for score in scores]
