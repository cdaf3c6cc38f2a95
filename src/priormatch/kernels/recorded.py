"""Proposals and prior scores as CUDA graphs, for the training loop on a GPU."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from priormatch.config import FusionSettings
from priormatch.decoding.beam import LOOK_EVERY, Beam, Choice, Rules, Search, Step
from priormatch.kernels.graphs import Arena, Graphed, Recording
from priormatch.models.conv_lm import ConvLM
from priormatch.models.decoder import AttentionDecoder, Memory
from priormatch.models.prefix_tree import PrefixTree, prefix_tree, score_tree

if TYPE_CHECKING:
    from priormatch.kernels.gpu_search import LanguageModel


class RecordedScores:
    """log p_y of beams under a language model: labels (B, k, U), lengths (B, k), context (B, V) or None -> (B, k)."""

    def __init__(self, lm: ConvLM, kernel: int) -> None:
        self.lm, self.kernel = lm, kernel
        self.grow_tree, self.score_tree = Graphed(self._tree), Graphed(partial(score_tree, lm))

    def __call__(self, labels: Tensor, lengths: Tensor, context: Tensor | None = None) -> Tensor:
        """Score the beams; the size of their tree is rounded up so that few shapes are recorded."""
        tree = self.grow_tree(labels, lengths, *([] if context is None else [context]))
        size = tree.on_grid()
        return self.score_tree(tree.inputs[:size], tree.before[:size], tree.nodes, labels, lengths)

    def _tree(self, labels: Tensor, lengths: Tensor, context: Tensor | None = None) -> PrefixTree:
        return prefix_tree(labels, lengths, self.lm.eos, self.kernel, context)


class RecordedSearch:
    """Encodes waveforms and searches with an attention decoder, optionally fused with a language model.

    `encode` maps waveforms (B, N) and samples (B,) to the decoder's memory. Hypotheses have at most `longest` classes.
    """

    def __init__(
        self,
        encode: Callable[[Tensor, Tensor], Memory],
        decoder: AttentionDecoder,
        *,
        eos: int,
        longest: int,
        lm: ConvLM | None = None,
        fusion: FusionSettings | None = None,
    ) -> None:
        self.plain_encode, self.decoder, self.eos, self.longest = encode, decoder, eos, longest
        self.lm, self.fusion = lm, fusion or FusionSettings()
        self.encode, self.arena = Graphed(self._encode), Arena()
        self.searches: dict[tuple[int, ...], Callable[[Memory], Beam]] = {}

    def _encode(self, waveforms: Tensor, samples: Tensor) -> Memory:
        memory = self.plain_encode(waveforms, samples)
        keys, values = self.arena.copy("keys", memory.keys), self.arena.copy("values", memory.values)
        return Memory(keys, values, memory.mask)

    def __call__(self, waveforms: Tensor, samples: Tensor, width: int) -> Beam:
        """Find the beam of each utterance, with `width` hypotheses."""
        from priormatch.kernels.gpu_search import GpuSearch

        memory = self.encode(waveforms, samples)
        shape = (width, *memory.keys.shape)
        if shape not in self.searches:
            self.searches[shape] = GpuSearch(
                self.decoder, memory, width, self.eos, self.longest, self.arena, lm=self.language_model
            )
        return self.searches[shape](memory)

    @cached_property
    def language_model(self) -> "LanguageModel | None":
        """The language model in the layout of the GPU kernels, shared by all searches."""
        from priormatch.kernels.gpu_search import LanguageModel

        return None if self.lm is None else LanguageModel.of(self.lm, self.fusion)


class Keeps(Protocol):
    """Something with a memory between steps that can be taken and put back."""

    memory: Any


class RecordedBeam:
    """`beam_search` with a step that reads its inputs at fixed addresses, in recordings of `LOOK_EVERY` steps each.

    A recording is made when a search first gets that far. What the step keeps between two calls, besides its state, is
    the memory of `keeps`.
    """

    def __init__(self, step: Step, state: Tensor, rules: Rules, keeps: Keeps) -> None:
        self.step, self.rules, self.keeps = step, rules, keeps
        self.first, self.memory = rules.begin(state), keeps.memory
        self.parts: list[Recording[tuple[Search, list[Choice], Any]]] = []

    def __call__(self) -> Beam:
        """Find the beam of each utterance."""
        search, memory, history = self.first, self.memory, list[Choice]()
        for number, begin in enumerate(range(0, self.rules.longest + 1, LOOK_EVERY)):
            if number == len(self.parts):
                positions = range(begin, min(begin + LOOK_EVERY, self.rules.longest + 1))
                self.parts.append(Recording(partial(self._extend, search, memory, positions)))
            search, chosen, memory = self.parts[number]()
            history += chosen
            if bool(search.finished.all()):
                break
        return self.rules.result(search, history).clone()

    def _extend(
        self, search: Search, memory: Any, positions: Sequence[int]
    ) -> tuple[Search, list[Choice], Any]:
        self.keeps.memory = memory
        device, history = search.finished.device.type, list[Choice]()
        enabled, dtype = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
        with torch.autocast(device, dtype, enabled, cache_enabled=False):  # which would outlive the recording
            for position in positions:
                search, chosen = self.rules.extend(self.step, search, position)
                history += chosen
        return search, history, self.keeps.memory
