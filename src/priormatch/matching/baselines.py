"""What local prior matching is compared with: continuous pseudo-labeling as others do it, and a perfect prior."""

from collections.abc import Sequence

import torch
from torch import Tensor

from priormatch.data.batches import Batch
from priormatch.decoding.beam import Hypotheses
from priormatch.matching.kept import KeptTargets
from priormatch.matching.lpm import Proposal, Refresh, TargetsOf
from priormatch.recognizers.protocols import Recognizer
from priormatch.scoring.error_rates import character_errors, word_errors

RENEWED = 0.1  # share of visits at which slimIPL replaces a label: its authors' p
DECAY = 0.999  # what an averaged proposal keeps of itself at every update


class AveragedProposal(Proposal):
    """A proposal that averages the online model's weights: r <- d·r + (1 - d)·q at every update (as in TopIPL)."""

    @torch.no_grad()
    def follow(self, online: Recognizer) -> None:
        """Average in the online model of this update."""
        own: list[Tensor] = list(self.model.parameters())
        torch._foreach_lerp_(own, list[Tensor](online.parameters()), 1 - DECAY)

    def refresh(self, online: Recognizer, online_cer: float, update: int) -> bool:
        """Record a validation; the average is never replaced."""
        self.history.append(Refresh(update, online_cer, self.cer, taken=False))
        return False


class CachedTargets(KeptTargets):
    """Kept targets, made anew at a random share of the visits (slimIPL, Likhomanenko et al., 2021)."""

    def __init__(self, targets: TargetsOf, share: float, eos: int) -> None:
        super().__init__(targets, eos)
        self.share = share

    def due(self, batch: Batch) -> list[bool]:
        """A random share."""
        due: list[bool] = (torch.rand(len(batch)) < self.share).tolist()
        return due


class OraclePrior:
    """A prior that knows the transcripts: what no other prior can exceed, given the beams.

    All weight goes to the hypothesis with the fewest word errors; among equals to that with the fewest character
    errors, then to the likeliest.
    """

    def score(self, hypotheses: Hypotheses, context: Sequence[str] | None = None) -> Tensor:
        """Scores (B, k) that fall by 1,000 with each rank; the context of an utterance is its transcript."""
        scores = [
            [-1000.0 * rank for rank in ranks_by_errors(reference, texts)]
            for texts, reference in zip(hypotheses.texts, context or [], strict=True)
        ]
        return torch.tensor(scores)


def ranks_by_errors(reference: str, texts: Sequence[str]) -> list[int]:
    """The rank of each hypothesis of an utterance by its errors, from 0."""
    references = [reference] * len(texts)
    words, characters = (count(references, texts).errors for count in (word_errors, character_errors))
    order = sorted(range(len(texts)), key=lambda number: (words[number], characters[number]))
    return sorted(range(len(texts)), key=order.__getitem__)
