"""What targets ask of models, with the kernels and recordings of a GPU where there is one."""

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from priormatch.config import FusionSettings
from priormatch.device import has_kernels, mixed_precision
from priormatch.graphs import Arena, Graphed
from priormatch.matching.prior import PrefixTree, Prior, prefix_tree
from priormatch.models.decoder import DecoderSteps, Memory
from priormatch.models.recognizer import Recognizer
from priormatch.search.beam import Beam, beam_search
from priormatch.search.fusion import first_joint, fused_step


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


class RecordedProposal:
    """A recogniser's `propose`."""

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


class RecordedProposalWithPrior:
    """The k best hypotheses of a recogniser's search with a prior, by as wide a beam as `fusion` has, or k."""

    def __init__(self, model: Recognizer, prior: Prior, beam_size: int, fusion: FusionSettings) -> None:
        self.model, self.beam_size = model, beam_size
        self.fusion = replace(fusion, beam_size=max(fusion.beam_size, beam_size))
        self.lm = (prior.in_half_precision() if has_kernels(prior.device) else prior).lm
        self.encode, self.step = Graphed(self._encode), Graphed(self._step)

    def _encode(self, waveforms: Tensor, samples: Tensor) -> Memory:
        with mixed_precision(waveforms.device):
            return self.model.memory(*self.model.encode(waveforms, samples))

    def _step(
        self, joint: Tensor, keys: Tensor, values: Tensor, mask: Tensor, classes: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        decoder, eos = self.model.decoder, self.model.tokenizer.eos
        with mixed_precision(joint.device):
            acoustic = DecoderSteps(decoder, Memory(keys, values, mask)).with_peaks
            return fused_step(acoustic, self.lm.step, joint, decoder.size, classes, eos, self.fusion)

    def __call__(self, waveforms: Tensor, samples: Tensor) -> Beam:
        """The beam of each utterance."""
        memory = self.encode(waveforms, samples)
        if not has_kernels(waveforms.device):
            with mixed_precision(waveforms.device):
                return self.model.search_with(self.lm, memory, self.fusion).best(self.beam_size)
        heard = (
            memory.keys.clone(),
            memory.values.clone(),
            memory.mask.clone(),
        )  # recordings share their memory

        def step(joint: Tensor, classes: Tensor | None) -> tuple[Tensor, Tensor]:
            return self._step(joint, *heard) if classes is None else self.step(joint, *heard, classes)

        shape = len(waveforms), self.fusion.beam_size
        joint = first_joint(self.model.decoder.first_state(*shape), self.lm.first_cache(*shape))
        eos, longest = self.model.tokenizer.eos, self.model.settings.longest_output
        return beam_search(step, joint, eos, longest, self.fusion.beam_threshold).best(self.beam_size)
