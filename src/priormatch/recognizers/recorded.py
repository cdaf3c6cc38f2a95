"""The prior scores and proposals that targets need, with kernels and CUDA graphs on a GPU."""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from torch import Tensor

from priormatch.config import FusionSettings
from priormatch.decoding.beam import Beam
from priormatch.decoding.fusion import wide_enough
from priormatch.device import has_kernels, mixed_precision
from priormatch.kernels.graphs import Arena, Graphed
from priormatch.models.conv_lm import ConvLM
from priormatch.models.decoder import Memory
from priormatch.recognizers.prior import PrefixTree, Prior, prefix_tree
from priormatch.recognizers.recognizer import Recognizer

if TYPE_CHECKING:
    from priormatch.kernels.gpu_search import LanguageModel


def fast_prior(prior: Prior) -> "Prior | RecordedPrior":
    """The recorded version of a prior on a GPU with kernels; the prior itself elsewhere or if it overrides `score`."""
    plain = type(prior).score is Prior.score
    return RecordedPrior(prior.in_half_precision()) if plain and has_kernels(prior.device) else prior


class RecordedPrior:
    """A prior whose `score` runs as CUDA graphs on a GPU."""

    def __init__(self, prior: Prior) -> None:
        self.prior, self.lm, self.contexts = prior, prior.lm, prior.contexts
        self.grow_tree, self.score_tree = Graphed(self._tree), Graphed(prior.score_tree)

    def score(self, labels: Tensor, lengths: Tensor, context: Tensor | None = None) -> Tensor:
        """log p_y of each hypothesis, optionally given a context (B, V): (B, k, U), (B, k) -> (B, k)."""
        tree = self.grow_tree(labels, lengths, *([] if context is None else [context]))
        size = tree.on_grid()
        return self.score_tree(tree.inputs[:size], tree.before[:size], tree.nodes, labels, lengths)

    def _tree(self, labels: Tensor, lengths: Tensor, context: Tensor | None = None) -> PrefixTree:
        return prefix_tree(labels, lengths, self.prior.lm.eos, self.prior.settings.kernel, context)


class RecordedProposal:
    """A recognizer's `propose`; with a language model, the k best of shallow fusion with a beam size of at least k."""

    def __init__(
        self,
        model: Recognizer,
        beam_size: int,
        lm: ConvLM | None = None,
        fusion: FusionSettings | None = None,
    ) -> None:
        self.model, self.beam_size, self.lm = model, beam_size, lm
        self.fusion = wide_enough(fusion or FusionSettings(), beam_size)
        self.width = beam_size if lm is None else self.fusion.beam_size
        self.encode, self.arena = Graphed(self._encode), Arena()
        self.searches: dict[tuple[int, ...], Callable[[Memory], Beam]] = {}

    def _encode(self, waveforms: Tensor, samples: Tensor) -> Memory:
        with mixed_precision(waveforms.device):
            memory = self.model.memory(*self.model.encode(waveforms, samples))
        keys, values = self.arena.copy("keys", memory.keys), self.arena.copy("values", memory.values)
        return Memory(keys, values, memory.mask)

    def __call__(self, waveforms: Tensor, samples: Tensor) -> Beam:
        """Find the beam of each utterance."""
        model = self.model
        if not model.searches_on_gpu(self.width):
            with mixed_precision(waveforms.device):
                if self.lm is None:
                    return model.propose(waveforms, samples, self.beam_size)
                memory = model.memory(*model.encode(waveforms, samples))
                return model.search_with(self.lm, memory, self.fusion).best(self.beam_size)
        memory = self.encode(waveforms, samples)
        shape = tuple(memory.keys.shape)
        if shape not in self.searches:
            self.searches[shape] = self._search(memory)
        beam = self.searches[shape](memory)
        return beam if self.lm is None else beam.best(self.beam_size)

    def _search(self, memory: Memory) -> Callable[[Memory], Beam]:
        from priormatch.kernels.gpu_search import GpuSearch

        model, lm = self.model, self.language_model
        eos, longest = model.tokenizer.eos, model.settings.longest_output
        return GpuSearch(model.decoder, memory, self.width, eos, longest, self.arena, lm=lm)

    @cached_property
    def language_model(self) -> "LanguageModel | None":
        """The language model in the layout of the GPU kernels, shared by all searches."""
        from priormatch.kernels.gpu_search import LanguageModel

        return None if self.lm is None else LanguageModel.of(self.lm, self.fusion)
