"""KenLM's binary n-gram models as priors, through the package kenlm where it is installed."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from priormatch.data.normalizer import ENGLISH, Normalizer
from priormatch.decoding.beam import Hypotheses
from priormatch.errors import UserError
from priormatch.files import open_regular
from priormatch.recognizers.text_scores import CachedScores, TextInContext, score_texts_of

SUFFIXES = (".binary", ".bin", ".klm")
MOST_CACHED = 200_000  # scores
LN_10 = math.log(10)


def is_kenlm(path: Path) -> bool:
    """Whether a path is a file with a name that KenLM's binary models have."""
    return path.name.lower().endswith(SUFFIXES) and path.is_file()


class KenlmPrior:
    """log p_y of hypotheses under a model that KenLM reads; scores are those of `NgramPrior` with the same n-grams.

    A word that the model does not know is looked up in capitals too, as LibriSpeech's models are written.
    """

    def __init__(
        self, model: Any, states: Any, normalizer: Normalizer = ENGLISH, file: Path | None = None
    ) -> None:
        self.model, self.state, self.normalizer, self.file = model, states, normalizer, file
        self.scores = CachedScores(self._score, MOST_CACHED)

    def score(self, hypotheses: Hypotheses, context: Sequence[str] | None = None) -> Tensor:
        """log p_y of the hypotheses in float32, given the text before each utterance, "" for none: -> (B, k)."""
        return score_texts_of(hypotheses, context, self.scores)

    def score_texts(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> Tensor:
        """log p_y of sentences, each optionally given the text before it: -> (N,)."""
        before = [""] * len(texts) if contexts is None else contexts
        return torch.tensor(self.scores([*zip(before, texts, strict=True)]), dtype=torch.float32)

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
            reason = " ".join(str(error).split())[:200]
            raise UserError(f"{file} cannot be read ({reason}): make or copy it again") from error
