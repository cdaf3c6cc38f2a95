"""Scores of hypotheses for priors that read text: each text is scored once, and recent scores are kept."""

from collections.abc import Callable, Sequence
from itertools import islice

import torch
from torch import Tensor

from priormatch.decoding.beam import Hypotheses

TextInContext = tuple[str, str]
"""The text before an utterance, "" for none, and a hypothesis."""


class CachedScores:
    """A function of pairs (context, text) that computes each pair once while it is among the last `most` ones used.

    `compute` maps distinct pairs to their scores.
    """

    def __init__(
        self, compute: Callable[[Sequence[TextInContext]], Sequence[float] | Tensor], most: int
    ) -> None:
        self.compute, self.most = compute, most
        self.known: dict[TextInContext, float] = {}  # the most recently used ones come last

    def __call__(self, pairs: Sequence[TextInContext]) -> list[float]:
        """The score of each pair, in order."""
        wanted = dict.fromkeys(pairs)
        new = self._new([pair for pair in wanted if pair not in self.known])
        found = {pair: new[pair] if pair in new else self.known.pop(pair) for pair in wanted}
        self.known |= found
        for pair in list(islice(self.known, max(len(self.known) - self.most, 0))):
            del self.known[pair]
        return [found[pair] for pair in pairs]

    def _new(self, pairs: Sequence[TextInContext]) -> dict[TextInContext, float]:
        if not pairs:
            return {}
        scores = self.compute(pairs)
        values = scores.tolist() if isinstance(scores, Tensor) else scores
        return dict(zip(pairs, map(float, values), strict=True))


class TextPrior:
    """The scores of a prior that reads text, from its `scores`."""

    scores: CachedScores

    def score(self, hypotheses: Hypotheses, context: Sequence[str] | None = None) -> Tensor:
        """log p_y of the hypotheses in float32, given the text before each utterance, "" for none: -> (B, k)."""
        return score_texts_of(hypotheses, context, self.scores)

    def score_texts(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> Tensor:
        """log p_y of sentences, each optionally given the text before it: -> (N,)."""
        before = [""] * len(texts) if contexts is None else contexts
        return torch.tensor(self.scores([*zip(before, texts, strict=True)]), dtype=torch.float32)


def score_texts_of(hypotheses: Hypotheses, context: Sequence[str] | None, scores: CachedScores) -> Tensor:
    """Scores of hypotheses by their text, given the text before each utterance: -> (B, k) in float32."""
    texts = hypotheses.texts
    before = [""] * len(texts) if context is None else context
    pairs = [(first, text) for first, beam in zip(before, texts, strict=True) for text in beam]
    return torch.tensor(scores(pairs), dtype=torch.float32).view(hypotheses.lengths.shape)
