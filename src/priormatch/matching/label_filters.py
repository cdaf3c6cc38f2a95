"""Which pseudo-labels to train on: the filters of Kahn, Lee and Hannun (2020, arXiv 1909.09116)."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

EMPTY, UNENDED, REPEATING, UNSURE = "empty", "without an end", "repeating themselves", "with a low score"


@dataclass(frozen=True)
class LabelFilter:
    """Drops hypotheses that are empty, broken off or looping, and of the others those the recognizer is least sure of.

    A hypothesis loops when a sequence of `ngram` words occurs in it more than `most_repeats` times (0: any number
    will do), and is broken off when the search found no end. Of what is then left the share `keep_best` with the
    highest scores a piece stays.
    """

    ngram: int = 2
    most_repeats: int = 4
    keep_best: float = 1.0
    keep_unended: bool = False

    def __call__(
        self, texts: Sequence[str], pieces: Sequence[int], scores: Sequence[float], ended: Sequence[bool]
    ) -> list[str | None]:
        """Why each hypothesis is dropped, or None where it is kept; with `keep_best` 1 the scores do not matter."""
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
    """How often the commonest sequence of `ngram` words occurs in a text, overlaps counted."""
    words = text.split()
    sequences = zip(*(words[start:] for start in range(ngram)), strict=False)
    return max(Counter(sequences).values(), default=0)


def score_a_piece(score: float, pieces: int) -> float:
    """log q(y|x) / len(y), the end of sentence counted."""
    return score / (pieces + 1)


def best_share(scores: Sequence[float], share: float) -> list[bool]:
    """True for the given share of the scores, rounded up, that is highest; equals of the lowest kept stay too."""
    count = math.ceil(round(share * len(scores), 9))  # 0.07 · 100 is a hair more than 7
    if count == 0:
        return [False] * len(scores)
    lowest = sorted(scores, reverse=True)[count - 1]
    return [score >= lowest for score in scores]
