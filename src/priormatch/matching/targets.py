"""What an unlabelled utterance is taught: a support of label sequences and a weight for each."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from priormatch.data.batches import Batch
from priormatch.device import has_kernels, mixed_precision
from priormatch.graphs import Arena, Graphed
from priormatch.matching.local_prior import entropy, first_spellings, local_prior
from priormatch.matching.prior import PrefixTree, Prior, prefix_tree
from priormatch.matching.proposal import Proposal
from priormatch.models.decoder import Memory
from priormatch.models.recognizer import Recognizer
from priormatch.search.beam import Beam
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
    """The proposal's beam, filtered by length, with weights in proportion to p_y(y)^a · r(y|x)^b.

    Local prior matching is a = 1, b = 0; distillation with the proposal's own posterior is a = 0, b = 1; and with
    a = b = 0 all hypotheses weigh the same. Without a prior, a must be 0. `reference_lengths` gives for each
    utterance's id the estimated number of pieces, EOS not counted; `keep` is a LengthFilter or `keep_all`.
    `contexts` gives texts that the prior reads before the hypotheses of utterances: p_y(y | text) takes p_y(y)'s place.
    """

    def __init__(
        self,
        proposal: Proposal,
        prior: Prior | None,
        beam_size: int,
        keep: Callable[[Tensor, Tensor], Tensor],
        reference_lengths: Mapping[str, int],
        merge_spellings: bool = False,
        exponents: tuple[float, float] = (1.0, 0.0),
        contexts: Mapping[str, str] | None = None,
    ) -> None:
        self.keep, self.exponents, self.tokenizer = keep, exponents, proposal.model.tokenizer
        self.reference_lengths, self.merge_spellings = reference_lengths, merge_spellings
        self.contexts = contexts
        self.propose = RecordedProposal(proposal.model, beam_size)
        self.log_prior = RecordedPrior(prior) if prior is not None and exponents[0] != 0 else None

    @torch.no_grad()
    def __call__(self, batch: Batch, watch: Stopwatch) -> tuple[Targets, Figures]:
        """Targets of a batch, and what the diagnostics tell of them; rows beyond its ids weigh nothing."""
        reference, context = self._reference(batch), self._context(batch)
        beam = self.propose(batch.waveforms, batch.samples)
        labels = labels_on_grid(beam.classes, self.tokenizer.eos)
        watch.lap("proposal")
        log_weights = self.exponents[1] * beam.scores.masked_fill(beam.lengths == 0, 0.0)
        if self.log_prior is not None:
            log_weights += self.exponents[0] * self.log_prior(labels, beam.lengths, context)
        keep = self.keep(beam.lengths, reference)
        if self.merge_spellings:
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
        pieces = [self.reference_lengths.get(each, 0) for each in batch.ids]
        known = torch.zeros(len(batch.waveforms), dtype=torch.long, pin_memory=batch.waveforms.is_cuda)
        known[: len(pieces)] = torch.tensor([n + 1 if n > 0 else 0 for n in pieces])
        return known.to(batch.waveforms.device, non_blocking=True)

    def _context(self, batch: Batch) -> Tensor | None:
        """What the prior reads before each utterance, as `Prior.contexts` gives it: (rows, V)."""
        if self.contexts is None or self.log_prior is None:
            return None
        more = len(batch.waveforms) - len(batch)
        texts = [*(self.contexts.get(each, "") for each in batch.ids), *[""] * more]
        context = self.log_prior.prior.contexts(texts)
        if batch.waveforms.is_cuda:
            context = context.pin_memory()
        return context.to(batch.waveforms.device, non_blocking=True)


class RecordedPrior:
    """A prior's `score`, with the recordings of a GPU where there is one."""

    def __init__(self, prior: Prior) -> None:
        self.prior = prior.in_half_precision() if has_kernels(prior.device) else prior
        self.grow_tree, self.score_tree = Graphed(self._tree), Graphed(self.prior.score_tree)

    def __call__(self, labels: Tensor, lengths: Tensor, context: Tensor | None = None) -> Tensor:
        """log p_y of each hypothesis, perhaps given a context (B, V): (B, k, U), (B, k) -> (B, k)."""
        if not has_kernels(labels.device):
            return self.prior.score(labels, lengths, context)
        tree = self.grow_tree(labels, lengths, *([] if context is None else [context]))
        size = tree.on_grid()
        return self.score_tree(tree.inputs[:size], tree.before[:size], tree.nodes, labels, lengths)

    def _tree(self, labels: Tensor, lengths: Tensor, context: Tensor | None = None) -> PrefixTree:
        return prefix_tree(labels, lengths, self.prior.lm.eos, self.prior.settings.kernel, context)


class RecordedProposal:
    """A recogniser's `propose`, with the kernels and recordings of a GPU where there is one."""

    def __init__(self, model: Recognizer, beam_size: int) -> None:
        self.model, self.beam_size = model, beam_size
        self.encode, self.arena = Graphed(self._encode), Arena()
        self.searches: dict[tuple[int, ...], Callable[[Memory], Beam]] = {}

    def _encode(self, waveforms: Tensor, samples: Tensor) -> Memory:
        with mixed_precision(waveforms.device):
            memory = self.model.memory(*self.model.encode(waveforms, samples))
        keys, values = self.arena.copy("keys", memory.keys), self.arena.copy("values", memory.values)
        return Memory(keys, values, memory.mask)

    def __call__(self, waveforms: Tensor, samples: Tensor) -> Beam:
        """The beam of each utterance."""
        model = self.model
        if not model.searches_on_gpu:
            with mixed_precision(waveforms.device):
                return model.propose(waveforms, samples, self.beam_size)
        memory = self.encode(waveforms, samples)
        shape = tuple(memory.keys.shape)
        if shape not in self.searches:
            from priormatch.models.gpu_search import GpuSearch

            eos, longest = model.tokenizer.eos, model.settings.longest_output
            self.searches[shape] = GpuSearch(model.decoder, memory, self.beam_size, eos, longest, self.arena)
        return self.searches[shape](memory)


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
