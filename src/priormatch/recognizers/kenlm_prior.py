"""KenLM's binary n-gram models as priors, through the package kenlm where it is installed."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from priormatch.data.normalizer import ENGLISH, Normalizer
from priormatch.errors import UserError, one_line
from priormatch.files import open_regular
from priormatch.recognizers.text_scores import CachedScores, TextInContext, TextPrior

SUFFIXES = (".binary", ".bin", ".klm")
MOST_CACHED = 200_000  # scores
LN_10 = math.log(10)


def is_kenlm(path: Path) -> bool:
    """Whether a path is a file with a name that KenLM's binary models have."""
    return path.name.lower().endswith(SUFFIXES) and path.is_file()


class KenlmPrior(TextPrior):
    """log p_y of hypotheses under a model that KenLM reads; scores are those of `NgramPrior` with the same n-grams.

    A word that the model does not know is looked up in capitals too, as LibriSpeech's models are written.
    """

    def __init__(
        self, model: Any, states: Any, normalizer: Normalizer = ENGLISH, file: Path | None = None
    ) -> None:
        self.model, self.state, self.normalizer, self.file = model, states, normalizer, file
        self.scores = CachedScores(self._score, MOST_CACHED)

    def _score(self, pairs: Sequence[TextInContext]) -> list[float]:
        return [LN_10 * self._log10_p(*map(self._words, pair)) for pair in pairs]

    def _words(self, text: str) -> list[str]:
        words = self.normalizer(text).split()
        return [
            word.upper() if word not in self.model and word.upper() in self.model else word for word in words
        ]

    def _log10_p(self, before: Sequence[str], words: Sequence[str]) -> float:
        """log10 p of words and the end of the sentence, after other words or at its beginning."""
        state, following = self.state(), self.state()
        kept = before[max(len(before) - self.model.order + 1, 0) :]
        if before and len(kept) >= self.model.order - 1:
            self.model.NullContextWrite(state)
        else:
            self.model.BeginSentenceWrite(state)
        total = 0.0
        for place, word in enumerate([*kept, *words, "</s>"]):
            log10_p = self.model.BaseScore(state, word, following)
            total += log10_p if place >= len(kept) else 0.0
            state, following = following, state
        return total

    @staticmethod
    def load(file: str | os.PathLike[str]) -> "KenlmPrior":
        """Load a binary model, which must be trusted: KenLM maps it into memory without checking its content."""
        try:
            import kenlm
        except ImportError as error:
            raise UserError(
                f"{file} needs the package kenlm: install it with pip install 'priormatch[kenlm]', or provide an ARPA"
                " file"
            ) from error
        try:
            open_regular(Path(file)).close()
            return KenlmPrior(kenlm.Model(os.fspath(file)), kenlm.State, file=Path(file))
        except (OSError, RuntimeError) as error:
            raise UserError(f"{file} cannot be read ({one_line(error)}): make or copy it again") from error
