"""Perplexity of texts under the prior (Table 9 of the paper)."""

from collections.abc import Iterable, Mapping
from itertools import pairwise

import numpy as np
import torch

from priormatch.data.plan import cut_by_seconds
from priormatch.errors import UserError
from priormatch.progress import Meter
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.protocols import Prior, ScoresTexts
from priormatch.scoring.bootstrap import ScoredTexts

BATCH_PIECES = 4096

Likelihoods = Mapping[str, tuple[float, int]]
"""log p_y of each text and its number of pieces or words, both including the end of sentence."""


@torch.no_grad()
def likelihoods(prior: Prior, texts: Iterable[str]) -> Likelihoods:
    """Score every distinct text once; counts are of the prior's pieces, or of words for a prior that reads text."""
    if not isinstance(prior, ScoresTexts):
        what = f"perplexities need a prior with a method score_texts, and a {type(prior).__name__} has none: add it"
        raise UserError(what)
    sizes = {text: size_of(prior, text) for text in texts}
    order = sorted(sizes, key=lambda text: (sizes[text], text))
    starts = cut_by_seconds(np.array([sizes[text] for text in order]), BATCH_PIECES) if order else []
    found: dict[str, tuple[float, int]] = {}
    with Meter("scoring with the prior", len(order)) as meter:
        for start, end in pairwise([*starts, len(order)]):
            batch = order[start:end]
            scores = prior.score_texts(batch).tolist()
            found |= {text: (score, sizes[text]) for text, score in zip(batch, scores, strict=True)}
            meter.advance(len(batch))
    return found


def size_of(prior: Prior, text: str) -> int:
    """The number of pieces of a text, or of words for a prior without pieces, including the end of sentence."""
    return len(prior.tokenizer.encode(text) if isinstance(prior, ConvPrior) else text.split()) + 1


def in_order(scored: Likelihoods, texts: Iterable[str]) -> ScoredTexts:
    """The scores of texts in their order; duplicates count twice."""
    found = [scored[text] for text in texts]
    return ScoredTexts(np.array([log_p for log_p, _ in found]), np.array([count for _, count in found]))


def perplexity(scored: Likelihoods, texts: Iterable[str]) -> float:
    """The perplexity of texts per piece or word."""
    return in_order(scored, texts).perplexity
