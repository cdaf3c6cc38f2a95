"""What an unlabelled utterance is taught: a support of label sequences and a weight for each."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from priormatch.data.batches import Batch
from priormatch.device import has_kernels
from priormatch.matching.local_prior import entropy, first_spellings, local_prior
from priormatch.matching.prior import Prior
from priormatch.matching.proposal import Proposal
from priormatch.matching.recorded import RecordedPrior, RecordedProposal
from priormatch.matching.weighing import Weighing
from priormatch.shapes import labels_on_grid
from priormatch.stopwatch import Stopwatch

Figures = dict[str, Tensor]
"""Numbers to report, left on the device so that nobody waits for them."""


class Targets(NamedTuple):
    """labels (B, k, U) with their lengths (B, k) and weights (B, k); a row of zero weights teaches nothing."""

    labels: Tensor
    lengths: Tensor
    weights: Tensor

    def to(self, device: torch.device) -> "Targets":
        """The targets on a device."""
        return Targets(*(each.to(device) for each in self))


TargetsOf = Callable[[Batch, Stopwatch], tuple[Targets, Figures]]


def given_labels(batch: Batch, watch: Stopwatch) -> tuple[Targets, Figures]:
    """The batch's own text, whoever wrote it, with weight one; nothing where there is none."""
    weights = (batch.label_lengths > 0).float()[:, None]
    return Targets(batch.labels[:, None], batch.label_lengths.clamp(min=1)[:, None], weights), {}


class BeamTargets:
    """The proposal's beam of k = `beam_size`, filtered and weighed; the prior may be missing where it has no say."""

    def __init__(self, proposal: Proposal, prior: Prior | None, beam_size: int, weighing: Weighing) -> None:
        self.weighing, self.tokenizer = weighing, proposal.model.tokenizer
        if prior is not None and has_kernels(prior.device):
            prior = prior.in_half_precision()
        lm = prior.lm if prior is not None and weighing.fusion is not None else None
        self.propose = RecordedProposal(proposal.model, beam_size, lm, weighing.fusion)
        self.log_prior = RecordedPrior(prior) if prior is not None and weighing.exponents[0] != 0 else None

    @torch.no_grad()
    def __call__(self, batch: Batch, watch: Stopwatch) -> tuple[Targets, Figures]:
        """Targets of a batch, and what the diagnostics tell of them; rows beyond its ids weigh nothing."""
        reference, context = self._reference(batch), self._context(batch)
        beam = self.propose(batch.waveforms, batch.samples)
        labels = labels_on_grid(beam.classes, self.tokenizer.eos)
        watch.lap("proposal")
        of_prior, of_proposal = self.weighing.exponents
        log_weights = of_proposal * beam.scores.masked_fill(beam.lengths == 0, 0.0)
        if self.log_prior is not None:
            log_weights += of_prior * self.log_prior(labels, beam.lengths, context)
        keep = self.weighing.keep(beam.lengths, reference)
        if self.weighing.merge_spellings:
            texts = [[self.tokenizer.decode(each) for each in row] for row in beam.classes.tolist()]
            keep = first_spellings(texts, keep)
        weights = local_prior(log_weights, keep)
        count = len(batch)
        weights[count:] = 0.0
        figures = diagnostics(weights[:count], keep[:count], beam.lengths[:count], reference[:count])
        watch.lap("prior")
        return Targets(labels, beam.lengths.clamp(min=1), weights), figures

    def _reference(self, batch: Batch) -> Tensor:
        """Reference lengths with the end of sentence, 0 where there is none: (rows,)."""
        pieces = [self.weighing.reference_lengths.get(each, 0) for each in batch.ids]
        known = torch.zeros(len(batch.waveforms), dtype=torch.long, pin_memory=batch.waveforms.is_cuda)
        known[: len(pieces)] = torch.tensor([n + 1 if n > 0 else 0 for n in pieces])
        return known.to(batch.waveforms.device, non_blocking=True)

    def _context(self, batch: Batch) -> Tensor | None:
        """What the prior reads before each utterance, as `Prior.contexts` gives it: (rows, V)."""
        if not self.weighing.contexts or self.log_prior is None:
            return None
        more = len(batch.waveforms) - len(batch)
        texts = [*(self.weighing.contexts.get(each, "") for each in batch.ids), *[""] * more]
        context = self.log_prior.prior.contexts(texts)
        if batch.waveforms.is_cuda:
            context = context.pin_memory()
        return context.to(batch.waveforms.device, non_blocking=True)


def diagnostics(weights: Tensor, keep: Tensor, lengths: Tensor, reference: Tensor) -> Figures:
    """What tells of a collapse long before the error rate does."""
    survivors = keep.sum(dim=-1)
    best = lengths.gather(1, weights.argmax(dim=-1, keepdim=True))[:, 0]
    some = survivors > 0
    known = some & (reference > 0)
    ratio = torch.where(known, best / reference.clamp(min=1), 0.0)
    return {
        "local_prior_entropy": entropy(weights).sum() / some.sum().clamp(min=1),
        "survivors": survivors.float().mean(),
        "share_without_survivor": (~some).float().mean(),
        "length_ratio": ratio.sum() / known.sum(),
    }
