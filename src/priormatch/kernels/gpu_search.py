"""Beam search with the GRU decoder in a few GPU kernels per step; it computes the same as `decoding/beam.py`.

Hypotheses are stored as (parent, class) at every position and traced back only at the end. The input half of the GRU
is a table over the classes. Steps are recorded as a CUDA graph and replayed several at a time; in between, the host
checks whether all hypotheses are finished.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import triton
from torch import Tensor
from torch.nn import functional

from priormatch.config import FusionSettings
from priormatch.decoding.beam import LOOK_EVERY, Beam
from priormatch.kernels.gpu_lm import GpuLM, LMWeights
from priormatch.kernels.gpu_lm_kernels import rank_both_kernel
from priormatch.kernels.gpu_search_kernels import (
    attend_kernel,
    extend_kernel,
    gru_gates_kernel,
    rank_classes_kernel,
    read_out_kernel,
)
from priormatch.kernels.graphs import WARM_UPS, Arena, Recording
from priormatch.models.conv_lm import ConvLM
from priormatch.models.decoder import AttentionDecoder, Memory

FRAMES = 32  # per attention tile


class Ranking(NamedTuple):
    """The hypotheses of a search: final slot, last position, length and score of each (B, k).

    Also whether any hypothesis of an utterance ended (B,), and the greatest length.
    """

    slots: Tensor
    last: Tensor
    lengths: Tensor
    scores: Tensor
    ended: Tensor
    longest: Tensor


class LanguageModel(NamedTuple):
    """A language model for shallow fusion, with its settings."""

    weights: LMWeights
    fusion: FusionSettings

    @staticmethod
    def of(lm: ConvLM, fusion: FusionSettings) -> "LanguageModel":
        """Convert a language model to the layout of the kernels."""
        return LanguageModel(LMWeights(lm), fusion)


class GpuSearch:
    """The search for one batch shape: its buffers, and its steps as CUDA graphs unless `recorded` is off.

    The memory given here is searched in place; later ones are copied into it. The decoder's weights, in the layout of
    the kernels, are in the arena, which searches of other shapes may share. With a language model it computes the same
    as `decoding/fusion.py`, with a beam of `beam_size`.
    """

    def __init__(
        self,
        decoder: AttentionDecoder,
        memory: Memory,
        beam_size: int,
        eos: int,
        longest: int,
        arena: Arena,
        *,
        recorded: bool = True,
        lm: LanguageModel | None = None,
    ) -> None:
        self.decoder, self.k, self.eos, self.longest = decoder, beam_size, eos, longest
        self.keys, self.values = memory.keys.contiguous(), memory.values.contiguous()
        self.frames = memory.mask.sum(dim=1)
        self.batch, device = len(self.keys), self.keys.device
        self.rows = self.batch * beam_size
        self.states = torch.empty(2, self.rows, decoder.size, dtype=self.keys.dtype, device=device)
        self.summed = torch.zeros_like(self.states[0])
        rounds = max(triton.cdiv(longest + 1, LOOK_EVERY), WARM_UPS) * LOOK_EVERY
        self.parents = torch.zeros(rounds + 1, self.rows, dtype=torch.int32, device=device)
        self.classes = torch.zeros_like(self.parents)
        self.own_slots = torch.arange(beam_size, dtype=torch.int32, device=device).repeat(self.batch)
        self.open_scores = torch.empty(self.batch, beam_size, device=device)
        self.open_lengths = torch.empty(self.batch, dtype=torch.int32, device=device)
        self.done_scores = torch.empty_like(self.open_scores)
        self.done_at = torch.empty(self.batch, beam_size, dtype=torch.int32, device=device)
        self.done_from = torch.empty_like(self.done_at)
        self.finished = torch.empty(self.batch, dtype=torch.int32, device=device)
        self.position = torch.empty((), dtype=torch.int32, device=device)
        # in pinned host memory, which is faster to wait for
        self.over = torch.empty((), dtype=torch.bool, pin_memory=self.keys.is_cuda)
        self.candidate_scores = torch.empty(self.rows, 2 * beam_size, device=device)
        self.candidate_classes = torch.empty(self.rows, 2 * beam_size, dtype=torch.int32, device=device)
        self.arena, self.tables = arena, list[Tensor]()
        self.fusion = FusionSettings() if lm is None else lm.fusion
        self.lm = None if lm is None else GpuLM(lm.weights, self.rows, beam_size)
        self.threshold = math.inf if lm is None else lm.fusion.beam_threshold
        self.jumps = lm is not None and math.isfinite(lm.fusion.attention_jump)
        self.peaks = torch.zeros(2, self.rows, dtype=torch.int32, device=device)
        self.begin: Callable[[], None] = self._begin
        self.advance: Callable[[], None] = self._advance
        self.rank: Callable[[], Ranking] = self._rank
        if recorded:
            self.begin, self.advance = Recording(self._begin), Recording(self._advance)
            self.rank = Recording(self._rank)

    def __call__(self, memory: Memory) -> Beam:
        """Search one batch of this shape."""
        for mine, given in ((self.keys, memory.keys), (self.values, memory.values)):
            if given is not mine:
                mine.copy_(given)
        self.frames.copy_(memory.mask.sum(dim=1))
        self.begin()
        for _ in range(0, self.longest + 1, LOOK_EVERY):
            self.advance()
            if self.keys.is_cuda:
                torch.cuda.current_stream().synchronize()
            if self.over:
                break
        return self._read_out(self.rank())

    def _begin(self) -> None:
        """Start with one empty hypothesis per utterance and the decoder's current weights."""
        fresh = tables(self.decoder, self.keys.dtype)
        self.tables = [self.arena.copy(f"table {number}", each) for number, each in enumerate(fresh)]
        self.states.zero_()
        self.parents[0] = self.own_slots
        self.classes[0] = len(self.tables[0]) - 1
        self.open_scores.fill_(-math.inf)
        self.open_scores[:, 0] = 0.0
        self.done_scores.fill_(-math.inf)
        for each in (self.open_lengths, self.done_at, self.done_from, self.finished, self.position):
            each.zero_()

    def _advance(self) -> None:
        """Compute the next steps of all hypotheses; finished utterances and too long hypotheses do not change."""
        table, recurrent, recurrent_bias, output, output_bias = self.tables
        k, size = self.k, self.decoder.size
        padded, beam = max(triton.next_power_of_2(size), 16), triton.next_power_of_2(k)
        precision, stages = ("ieee", 1) if self.keys.dtype == torch.float32 else ("tf32", 2)
        before, after = self.states
        for _ in range(LOOK_EVERY):  # even, so that the states end up in the first buffer again
            hidden = torch.addmm(recurrent_bias, before, recurrent.t())
            gru_gates_kernel[(self.rows,)](
                table, hidden, before, self.parents, self.classes, self.position, after, k, size, padded,
                num_warps=4,
            )  # fmt: skip
            attend_kernel[(self.batch,)](
                after, self.keys, self.values, self.frames, self.finished, self.position, self.summed, self.peaks,
                self.keys.shape[1], k, size, size, 1 / math.sqrt(size),
                size, padded, max(beam, 16), FRAMES, precision, self.jumps, num_warps=8, num_stages=stages,
            )  # fmt: skip
            self._rank_classes(torch.addmm(output_bias, self.summed, output.t()))
            extend_kernel[(self.batch,)](
                self.candidate_scores, self.candidate_classes, self.open_scores, self.open_lengths,
                self.done_scores, self.done_at, self.done_from, self.finished, self.parents, self.classes,
                self.position, self.eos, self.longest, self.threshold, self.rows,
                k, beam, triton.next_power_of_2(2 * k * k), num_warps=1,
            )  # fmt: skip
            self.position += 1
            before, after = after, before
        self.over.copy_(self.finished.all(), non_blocking=True)

    def _rank_classes(self, logits: Tensor) -> None:
        """Rank the extensions of every hypothesis by the logits (rows, C') and the language model, if any."""
        k, classes = self.k, self.decoder.output.out_features
        padded = triton.next_power_of_2(classes)
        warps = 1 if padded <= 512 else 8  # a single warp needs no synchronization
        if self.lm is None:
            rank_classes_kernel[(self.rows,)](
                logits, self.open_scores, self.finished, self.candidate_scores, self.candidate_classes,
                logits.shape[1], k, classes, padded, 2 * k, num_warps=warps,
            )  # fmt: skip
            return
        of_lm, fusion = self.lm.step(self.parents, self.classes, self.position), self.fusion
        rank_both_kernel[(self.rows,)](
            logits, of_lm, self.open_scores, self.finished, self.parents, self.position, self.peaks,
            self.candidate_scores, self.candidate_classes, logits.shape[1], of_lm.shape[1], k, self.eos,
            fusion.lm_weight, fusion.token_bonus, fusion.eos_threshold, fusion.token_margin,
            fusion.attention_jump, classes, padded, 2 * k,
            fusion.centered, math.isfinite(fusion.eos_threshold), self.jumps, num_warps=warps,
        )  # fmt: skip

    def _rank(self) -> Ranking:
        """The complete hypotheses, best first, or the open ones if none is complete."""
        done_scores, order = self.done_scores.sort(dim=1, descending=True)
        none = (done_scores[:, :1] == -math.inf).expand_as(done_scores)
        slots = torch.where(none, self.own_slots.view_as(self.done_from), self.done_from.gather(1, order))
        last = torch.where(none, self.open_lengths[:, None], self.done_at.gather(1, order))
        scores = torch.where(none, self.open_scores, done_scores)
        lengths = torch.where(scores == -math.inf, 0, last + 1).long()
        last = torch.where(lengths == 0, 0, last)
        return Ranking(slots, last, lengths, scores, ~none[:, 0], lengths.max())

    def _read_out(self, ranking: Ranking) -> Beam:
        """Trace hypotheses back to their first class."""
        slots, last, lengths, scores, ended, longest = ranking
        width = max(int(longest), 1)
        found = torch.full((self.batch, self.k, width), self.eos, device=self.keys.device)
        read_out_kernel[(self.rows,)](
            self.parents[1:], self.classes[1:], last, slots, found, self.rows, width, self.k
        )
        return Beam(found, lengths.clone(), scores.clone(), ended.clone())


def tables(decoder: AttentionDecoder, dtype: torch.dtype) -> list[Tensor]:
    """The decoder's weights in the layout of the kernels.

    The input half of the GRU for every class, and in the last row for the start, (C + 1, 3D); the recurrent half
    (3D, D) and its bias; the output layer (C', D) and its bias, padded to make C' a multiple of 8.
    """
    into, recurrent, into_bias, recurrent_bias = (each.to(dtype) for each in decoder.gru.all_weights[0])
    inputs = torch.cat([decoder.embedding.weight, decoder.start[None]]).to(dtype)
    more = -decoder.output.out_features % 8
    return [
        torch.addmm(into_bias, inputs, into.t()),
        recurrent,
        recurrent_bias,
        functional.pad(decoder.output.weight, (0, 0, 0, more)).to(dtype),
        functional.pad(decoder.output.bias, (0, more)).to(dtype),
    ]


@torch.no_grad()
def search_on_gpu(
    decoder: AttentionDecoder,
    memory: Memory,
    beam_size: int,
    eos: int,
    longest: int,
    lm: LanguageModel | None = None,
) -> Beam:
    """Compute what `beam_search`, or `fused_search`, returns for this decoder, once, in the dtype of the memory."""
    return GpuSearch(decoder, memory, beam_size, eos, longest, Arena(), recorded=False, lm=lm)(memory)
