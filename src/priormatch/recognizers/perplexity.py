"""Perplexity of texts under the prior (Table 9 of the paper)."""

from collections.abc import Iterable, Mapping
from itertools import pairwise

import numpy as np
import torch

from priormatch.data.plan import cut_by_seconds
from priormatch.decoding.beam import pad
from priormatch.progress import Meter
from priormatch.recognizers.prior import ConvPrior
from priormatch.scoring.bootstrap import ScoredTexts

BATCH_PIECES = 4096

Likelihoods = Mapping[str, tuple[float, int]]
"""log p_y of each text and its number of pieces, both including the end of sentence."""


@torch.no_grad()
def likelihoods(prior: ConvPrior, texts: Iterable[str]) -> Likelihoods:
    """Score every distinct text once, with the tokenizer's segmentation."""
    tokenizer = prior.tokenizer
    rows = {text: [*tokenizer.encode(text), tokenizer.eos] for text in texts}
    order = sorted(rows, key=lambda text: (len(rows[text]), text))
    starts = cut_by_seconds(np.array([len(rows[text]) for text in order]), BATCH_PIECES) if order else []
    found: dict[str, tuple[float, int]] = {}
    with Meter("scoring with the prior", len(order)) as meter:
        for start, end in pairwise([*starts, len(order)]):
            batch = order[start:end]
            labels, lengths = pad([rows[text] for text in batch])
            scores = prior.score_classes(labels.to(prior.device), lengths.to(prior.device))
            found |= zip(batch, zip(scores.tolist(), lengths.tolist(), strict=True), strict=True)
            meter.advance(len(batch))
    return found


def in_order(scored: Likelihoods, texts: Iterable[str]) -> ScoredTexts:
    """The scores of texts in their order; duplicates count twice."""
    found = [scored[text] for text in texts]
    return ScoredTexts(np.array([log_p for log_p, _ in found]), np.array([count for _, count in found]))


def perplexity(scored: Likelihoods, texts: Iterable[str]) -> float:
    """The perplexity of texts per piece."""
    return in_order(scored, texts).perplexity
