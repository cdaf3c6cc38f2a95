"""What targets ask of models, with the kernels and recordings of a GPU where there is one."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from priormatch.config import FusionSettings
from priormatch.device import has_kernels, mixed_precision
from priormatch.graphs import Arena, Graphed, Recording
from priormatch.matching.prior import PrefixTree, Prior, prefix_tree
from priormatch.models.conv_lm import ConvLM
from priormatch.models.decoder import DecoderSteps, Memory
from priormatch.models.recognizer import Recognizer
from priormatch.search.beam import LOOK_EVERY, Beam, OpenBeam, of_parents
from priormatch.search.fusion import first_states, fused_step, wide_enough


class RecordedPrior:
    """A prior's `score`."""

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


class RecordedEncoder:
    """What a recogniser hears, for its decoder to attend to; on a GPU the same place for all batches of a shape."""

    def __init__(self, model: Recognizer) -> None:
        self.model, self.encode, self.arena = model, Graphed(self._encode), Arena()

    def __call__(self, waveforms: Tensor, samples: Tensor) -> Memory:
        """Waveforms (B, N) and their lengths (B,) -> keys, values and mask."""
        return self.encode(waveforms, samples)

    def _encode(self, waveforms: Tensor, samples: Tensor) -> Memory:
        with mixed_precision(waveforms.device):
            memory = self.model.memory(*self.model.encode(waveforms, samples))
        places = {"keys": memory.keys, "values": memory.values, "mask": memory.mask}
        return Memory(*(self.arena.copy(name, each) for name, each in places.items()))


class RecordedProposal:
    """A recogniser's `propose`."""

    def __init__(self, model: Recognizer, beam_size: int) -> None:
        self.model, self.beam_size = model, beam_size
        self.encode, self.arena = RecordedEncoder(model), Arena()
        self.searches: dict[tuple[int, ...], Callable[[Memory], Beam]] = {}

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


class RecordedProposalWithPrior:
    """The k best hypotheses of a recogniser's search with a prior, by as wide a beam as `fusion` has, or k."""

    def __init__(self, model: Recognizer, prior: Prior, beam_size: int, fusion: FusionSettings) -> None:
        self.model, self.beam_size = model, beam_size
        self.fusion = wide_enough(fusion, beam_size)
        self.lm = (prior.in_half_precision() if has_kernels(prior.device) else prior).lm
        self.encode = RecordedEncoder(model)
        self.searches: dict[tuple[int, ...], RecordedSearch] = {}

    def __call__(self, waveforms: Tensor, samples: Tensor) -> Beam:
        """The beam of each utterance."""
        memory = self.encode(waveforms, samples)
        if not has_kernels(waveforms.device):
            with mixed_precision(waveforms.device):
                return self.model.search_with(self.lm, memory, self.fusion).best(self.beam_size)
        shape = tuple(memory.keys.shape)
        if shape not in self.searches:
            self.searches[shape] = RecordedSearch(self.model, self.lm, memory, self.fusion)
        return self.searches[shape]().best(self.beam_size)


class RecordedSearch:
    """A search with the prior for one shape of batch, its steps recorded several at a time unless `recorded` is off.

    It searches the memory that it is made with, whatever has been put there since.
    """

    def __init__(
        self,
        model: Recognizer,
        lm: ConvLM,
        memory: Memory,
        fusion: FusionSettings,
        recorded: bool = True,
    ) -> None:
        self.model, self.lm, self.memory, self.fusion = model, lm, memory, fusion
        shape, device = (len(memory.keys), fusion.beam_size), memory.keys.device
        eos, longest = model.tokenizer.eos, model.settings.longest_output
        self.open_beam = OpenBeam(*shape, eos, longest, fusion.beam_threshold, device)
        self.states = first_states(model.decoder.first_state(*shape), lm.first_cache(*shape))
        self.chosen = torch.zeros(shape, dtype=torch.long, device=device)
        self.over = torch.empty((), dtype=torch.bool, pin_memory=recorded)
        self.begin: Callable[[], None] = self._begin
        self.advance: Callable[[], None] = self._advance
        if recorded:
            self.begin, self.advance = Recording(self._begin), Recording(self._advance)

    def __call__(self) -> Beam:
        """The beam of what lies in the memory."""
        self.begin()
        for _ in range(0, self.open_beam.longest, LOOK_EVERY):
            self.advance()
            if self.over.is_pinned():
                torch.cuda.current_stream().synchronize()
            if self.over:
                break
        return self.open_beam.close()

    def _begin(self) -> None:
        self.open_beam.begin()
        for each in self.states:
            each.zero_()
        self._steps([None])

    def _advance(self) -> None:
        self._steps([self.chosen] * LOOK_EVERY)
        self.over.copy_(self.open_beam.finished.all(), non_blocking=True)

    def _steps(self, chosen: Sequence[Tensor | None]) -> None:
        with mixed_precision(self.chosen.device):
            acoustic = DecoderSteps(self.model.decoder, self.memory).with_peaks
            for classes in chosen:
                scores, states = fused_step(
                    acoustic, self.lm.step, self.states, classes, self.open_beam.eos, self.fusion
                )
                parents, classes = self.open_beam.extend(scores)
                for mine, new in zip(self.states, of_parents(states, parents), strict=True):
                    mine.copy_(new)
                self.chosen.copy_(classes)
