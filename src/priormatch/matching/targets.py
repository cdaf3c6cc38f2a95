"""What an unlabelled utterance is taught: a support of label sequences and a weight for each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from priormatch.data.batches import Batch
from priormatch.matching.local_prior import entropy, first_spellings, local_prior
from priormatch.matching.prior import Prior
from priormatch.matching.proposal import Proposal


@dataclass(frozen=True)
class Targets:
    """labels (B, k, U) with their lengths (B, k) and weights (B, k); a row of zero weights teaches nothing."""

    labels: Tensor
    lengths: Tensor
    weights: Tensor


def pseudo_labels(batch: Batch) -> tuple[Targets, dict[str, float]]:
    """The batch's own text, whoever wrote it, with weight one."""
    weights = (batch.label_lengths > 1).float()[:, None]
    return Targets(batch.labels[:, None], batch.label_lengths.clamp(min=1)[:, None], weights), {}


@dataclass(frozen=True)
class LocalPriorTargets:
    """The proposal's beam, filtered by length and weighed by the prior.

    `reference_lengths` gives for each utterance's id the estimated number of pieces, EOS not counted; `keep`
    is a LengthFilter or `keep_all`.
    """

    proposal: Proposal
    prior: Prior
    beam_size: int
    keep: Callable[[Tensor, Tensor], Tensor]
    reference_lengths: Mapping[str, int]
    merge_spellings: bool = False

    @torch.no_grad()
    def __call__(self, batch: Batch) -> tuple[Targets, dict[str, float]]:
        """Targets of a batch, and what the diagnostics tell of them."""
        beam = self.proposal.model.propose(batch.waveforms, batch.samples, self.beam_size)
        pieces = [self.reference_lengths.get(each, 0) for each in batch.ids]
        reference = torch.tensor([n + 1 if n > 0 else 0 for n in pieces], device=beam.lengths.device)
        keep = self.keep(beam.lengths, reference)
        if self.merge_spellings:
            tokenizer = self.prior.tokenizer
            texts = [[tokenizer.decode(each) for each in row] for row in beam.classes.tolist()]
            keep = first_spellings(texts, keep)
        weights = local_prior(self.prior.score(beam.classes, beam.lengths), keep)
        found = Targets(beam.classes, beam.lengths.clamp(min=1), weights)
        return found, diagnostics(weights, keep, beam.lengths, reference)


def diagnostics(weights: Tensor, keep: Tensor, lengths: Tensor, reference: Tensor) -> dict[str, float]:
    """What tells of a collapse long before the error rate does."""
    survivors = keep.sum(dim=-1)
    best = lengths.gather(1, weights.argmax(dim=-1, keepdim=True))[:, 0]
    known = (survivors > 0) & (reference > 0)
    ratio = (best / reference.clamp(min=1))[known]
    some = max(int((survivors > 0).sum()), 1)
    return {
        "local_prior_entropy": float(entropy(weights).sum()) / some,
        "survivors": float(survivors.float().mean()),
        "share_without_survivor": float((survivors == 0).float().mean()),
        "length_ratio": float(ratio.mean()) if len(ratio) else float("nan"),
    }
