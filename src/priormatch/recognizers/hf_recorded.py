"""Searches of a Hugging Face decoder for a training loop on a GPU, as CUDA graphs."""

import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from priormatch.decoding.beam import Beam, Rules
from priormatch.kernels.graphs import Arena
from priormatch.kernels.recorded import RecordedBeam
from priormatch.kernels.shapes import repeat_first
from priormatch.progress import say
from priormatch.recognizers.heads import Frames
from priormatch.recognizers.hf_head import AllowedSteps, DecoderHead
from priormatch.recognizers.hf_steps import SharedSteps


class RecordedSearches:
    """Searches as CUDA graphs, for frames of a shape that often comes back, such as Whisper's.

    A search that cannot be recorded is made without, and so are those after it.
    """

    def __init__(self) -> None:
        self.arena, self.works = Arena(), True
        self.cast: CastLinears | None = None
        self.known: dict[tuple[Any, ...], tuple[list[Tensor], RecordedBeam]] = {}

    def search(self, head: DecoderHead, frames: Frames, k: int) -> Beam:
        """Beam search of `head` with k hypotheses, for a few utterances at a time."""
        return head.in_parts(frames, k, partial(self._search, head))

    def _search(self, head: DecoderHead, frames: Frames, k: int) -> Beam:
        if not self.works:
            return head.search_at_once(frames, k)
        batch = len(frames.values)
        more = (1 << (batch - 1).bit_length()) - batch  # powers of two: each number of rows takes memory
        given = [repeat_first(each, more) for each in (frames.values, head.most(frames))]
        shape = (k, given[0].shape, given[0].dtype)
        try:
            if shape not in self.known:
                self.known[shape] = self._new(head, given, k)
            if self.cast is not None:
                self.cast.refresh()
            own, search = self.known[shape]
            for mine, each in zip(own, given, strict=True):
                mine.copy_(each)
            found = search()
            return Beam(
                found.classes[:batch], found.lengths[:batch], found.scores[:batch], found.ended[:batch]
            )
        except RuntimeError as error:
            self.works = False
            self.known.clear()
            self.cast = None
            say(
                f"the search of {type(head.network).__name__} is not recorded: {str(error).splitlines()[0][:200]}"
            )
            return head.search_at_once(frames, k)

    def _new(self, head: DecoderHead, given: list[Tensor], k: int) -> tuple[list[Tensor], RecordedBeam]:
        own = [self.arena.copy(number, each) for number, each in enumerate(given)]
        if self.cast is None and torch.is_autocast_enabled(own[0].device.type):
            self.cast = CastLinears(head.network, torch.get_autocast_dtype(own[0].device.type))
        network = head.network if self.cast is None else self.cast.network
        steps = SharedSteps(network, head.prompt, Frames(own[0], own[1]), k, head.longest)
        step = AllowedSteps(head, steps, own[1])
        return own, RecordedBeam(step, steps.first, Rules(head.eos, head.longest), steps)


class CastLinears:
    """A copy of a network in which the linear layers after the encoder have weights in the precision of autocast.

    Autocast would cast them in every step of a search, with the same result. All other weights are shared.
    """

    def __init__(self, network: Any, dtype: torch.dtype) -> None:
        encoder = network.get_encoder()
        shared: dict[int, Any] = {id(each): each for each in (encoder, *network.parameters())}
        self.network = copy.deepcopy(network, shared)
        self.own: list[Tensor] = []
        self.original: list[Tensor] = []
        outside = set(map(id, encoder.modules()))
        for module in self.network.modules():
            if isinstance(module, nn.Linear) and id(module) not in outside:
                for name, each in [*module.named_parameters(recurse=False)]:
                    self.original.append(each)
                    self.own.append(each.detach().to(dtype))
                    setattr(module, name, nn.Parameter(self.own[-1], requires_grad=False))

    @torch.no_grad()
    def refresh(self) -> None:
        """Cast the weights again, which may have changed."""
        torch._foreach_copy_(self.own, self.original)
