"""CTC in a few GPU kernels without host synchronization; `models/ctc.py` and `decoding/prefix_search.py` define it.

The likelihood takes three kernels. The first collects what each frame gives to the blank and to every label of a
sequence, relative to the highest of them: every path takes one of these per frame, so the difference cancels in the
gradient, and the sums stay small enough for float32. The second sums over all paths, one program per sequence and
direction, with the states of a frame in registers. The third, parallel over the frames, adds both directions up into
the gradient. Labels are sorted by class, so that the gradient of a class is the sum of a run: no atomic addition, and
the same bits every time.

Prefix search is one kernel with one program per utterance, which keeps the prefixes in registers.

Logits are taken as well, because of the bytes that cross the memory. With N = 4·B·T·C, `log_softmax` and its backward
pass move 2 N + 3 N, and the kernels on log-probabilities 2 N; on logits they move 3 N in all, half of that in bfloat16.
Emissions and states add 28·B·k·T·U bytes in both cases. With B = 128, T = 312 and 1,000 classes, N is 160 MB, and
logits save 640 MB, about 0.15 ms on an H200; with 29 classes little.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from priormatch.decoding.beam import Beam
from priormatch.decoding.prefix_search import PrefixFusion, PrefixSearch, PrefixSettings, extension_pairs
from priormatch.decoding.prefix_search import prefix_search as plain_prefix_search
from priormatch.kernels.ctc_kernels import (
    emissions_kernel,
    gradient_kernel,
    paths_kernel,
    prefix_search_kernel,
    trace_kernel,
)
from priormatch.kernels.graphs import Recording

TILE = 2048  # values per program of the kernels that are parallel over the frames
CLASSES = 1024  # the most classes among them
FRAMES = 16  # the most frames among them
SUMMED = 1024  # frames added up at a time
WIDEST = 32  # prefixes that fit into the registers of a program
NEVER = -2  # the column of a candidate that does not exist


def ctc_log_likelihood(log_q: Tensor, frames: Tensor, labels: Tensor, lengths: Tensor, blank: int) -> Tensor:
    """log q(y|x) of k label sequences per utterance, as `models.ctc.ctc_log_likelihood` computes it, in float32.

    log_q (B, T, C) log-probabilities, frames (B,), labels (B, k, U) that end with EOS, lengths (B, k) including the
    EOS -> (B, k), with a gradient.
    """
    learning = torch.is_grad_enabled() and log_q.requires_grad
    found: Tensor = _Likelihood.apply(log_q, frames, labels, lengths, blank, _Mode(False, learning))
    return found


def ctc_log_likelihood_of_logits(
    logits: Tensor, frames: Tensor, labels: Tensor, lengths: Tensor, blank: int
) -> Tensor:
    """The same for log-softmax of logits (B, T, C) in any precision, without storing the log-probabilities."""
    learning = torch.is_grad_enabled() and logits.requires_grad
    found: Tensor = _Likelihood.apply(logits, frames, labels, lengths, blank, _Mode(True, learning))
    return found


class _Mode(NamedTuple):
    """`normalized` if the kernels are given logits, `learning` if there will be a backward pass."""

    normalized: bool
    learning: bool


class _Likelihood(torch.autograd.Function):
    """The three kernels."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, frames: Tensor, labels: Tensor, lengths: Tensor, blank: int, mode: _Mode
    ) -> Tensor:
        normalized, learning = mode
        x, frames, labels, lengths = (each.contiguous() for each in (x, frames, labels, lengths))
        (batch, steps, classes), (_, beam, width) = x.shape, labels.shape
        states, block = triton.next_power_of_2(width), min(triton.next_power_of_2(classes), CLASSES)
        normalizers = x.new_empty(batch, steps, dtype=torch.float32)
        emissions = x.new_empty(batch, beam, steps, width, dtype=torch.float32)
        highest = x.new_empty(batch, beam, steps, dtype=torch.float32)
        tile = frames_of_tile(max(states, block))
        if x.numel() > 0:
            emissions_kernel[(triton.cdiv(steps, tile), batch)](
                x, normalizers, frames, labels, lengths, emissions, highest, steps, classes, width, beam, blank,
                normalized, tile, block, states, num_warps=4,
            )  # fmt: skip
        likelihoods = x.new_empty(batch, beam, dtype=torch.float32)
        relative = torch.empty_like(likelihoods)
        reached = x.new_empty(2 * learning, batch, beam, steps, width, dtype=torch.float32)
        if lengths.numel() > 0:
            paths_kernel[(batch * beam, 1 + learning)](
                emissions, highest, frames, labels, lengths, likelihoods, relative, reached, steps, width, beam,
                learning, states, SUMMED, num_warps=warps_of_states(states),
            )  # fmt: skip
        if learning:
            ctx.blank, ctx.normalized, ctx.shape, ctx.dtype = blank, normalized, x.shape, x.dtype
            logits = (x, normalizers) if normalized else (likelihoods, likelihoods)  # the latter are not read
            ctx.save_for_backward(likelihoods, relative, reached, labels, frames, lengths, *logits)
        return likelihoods

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        likelihoods, relative, reached, labels, frames, lengths, x, normalizers = ctx.saved_tensors
        (batch, steps, classes), (_, beam, width) = ctx.shape, labels.shape
        by_class, order = labels_by_class(labels, lengths, classes)
        entries, block = triton.next_power_of_2(beam * width), min(triton.next_power_of_2(classes), CLASSES)
        tile = frames_of_tile(max(entries, block))
        out = gradient.new_empty(ctx.shape, dtype=ctx.dtype)
        if out.numel() > 0:
            gradient_kernel[(triton.cdiv(steps, tile), batch)](
                gradient.contiguous(), likelihoods, relative, reached, by_class, order, frames, x, normalizers, out,
                steps, classes, width, beam, ctx.blank,
                ctx.normalized, tile, block, entries, num_warps=min(max(entries // 1024, 4), 16),
            )  # fmt: skip
        return out, *[None] * 5


def labels_by_class(labels: Tensor, lengths: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Sort the labels (B, k, U) of each utterance: their classes and their places, 2 x (B, k·U); the rest is last."""
    positions = torch.arange(labels.shape[2], device=labels.device)
    rest = positions >= lengths[:, :, None] - 1
    return labels.int().masked_fill(rest, classes).flatten(1).sort(dim=1, stable=True)


def frames_of_tile(values: int) -> int:
    """How many frames with so many values each one program computes."""
    return min(max(TILE // values, 1), FRAMES)


def warps_of_states(states: int) -> int:
    """Warps for the states of a sequence: two states in each thread, so that few wait for each other."""
    return min(max(states // 64, 1), 8)


def prefix_search(
    log_q: Tensor, frames: Tensor, blank: int, settings: PrefixSettings, fusion: PrefixFusion | None = None
) -> Beam:
    """Compute what `decoding.prefix_search.prefix_search` returns, in float32.

    log_q (B, T, C) log-probabilities, frames (B,). Searches wider than 32 use the plain version.
    """
    if fusion is not None:
        return fused_prefix_search(log_q, frames, blank, settings, fusion)
    if max(settings.width, settings.hypotheses) > WIDEST:
        return plain_prefix_search(log_q, frames, blank, settings)
    return padded_prefix_search(log_q, frames, blank, settings).best(settings.hypotheses)


@torch.no_grad()
def fused_prefix_search(
    log_q: Tensor, frames: Tensor, blank: int, settings: PrefixSettings, fusion: PrefixFusion
) -> Beam:
    """The plain search with a language model; one frame is recorded as a CUDA graph and replayed for all.

    A frame has hundreds of short launches, most of them of the language model. To record it costs a few of them.
    """
    search = PrefixSearch(log_q, frames, blank, settings, fusion)
    advance = Recording(search.advance)
    search.restart()
    for _ in range(search.steps):
        advance()
    return search.found(settings.hypotheses)


@torch.no_grad()
def padded_prefix_search(log_q: Tensor, frames: Tensor, blank: int, settings: PrefixSettings) -> Beam:
    """The same with classes (B, k, T + 1), whatever the longest hypothesis: it can be recorded in a CUDA graph."""
    log_q, frames = log_q.contiguous(), frames.contiguous()
    (batch, steps, classes), k = log_q.shape, settings.hypotheses
    width = max(settings.width, k)
    limit = min(width + 1, classes - 1)
    without_blank = log_q.clone()
    without_blank[:, :, blank] = -math.inf
    token_q, tokens = without_blank.topk(limit, dim=2)
    sources, columns = candidates(width, log_q.device)
    tree_nodes = frames.new_empty(batch, steps, width, dtype=torch.int32)
    tree_tokens = torch.empty_like(tree_nodes)
    nodes = frames.new_empty(batch, k, dtype=torch.int32)
    lengths = frames.new_empty(batch, k, dtype=torch.long)
    scores = log_q.new_empty(batch, k, dtype=torch.float32)
    found = torch.full((batch, k, steps + 1), blank, device=log_q.device)
    threshold = math.log(settings.blank_threshold) if settings.blank_threshold < 1 else math.inf
    if batch > 0:
        prefix_search_kernel[(batch,)](
            log_q, token_q, tokens, frames, sources, columns, scores, lengths, nodes, tree_nodes, tree_tokens,
            steps, classes, blank, limit, k, threshold,
            width, triton.next_power_of_2(max(width, 2)), len(sources), num_warps=max(len(sources) // 128, 1),
        )  # fmt: skip
        trace_kernel[(batch * k,)](
            tree_nodes, tree_tokens, nodes, lengths, found, steps, width, k, num_warps=1
        )
    return Beam(found, lengths, scores, torch.ones_like(lengths[:, 0], dtype=torch.bool))


@cache
def candidates(width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The prefix of each candidate of a frame, and the rank of the token that extends it, -1 where it is only kept.

    2 x (N,): first the kept prefixes, then the extensions, then padding to a power of two.
    """
    pairs = [(slot, -1) for slot in range(width)] + extension_pairs(width, width + 1, pruned=True)
    pairs += [(0, NEVER)] * (triton.next_power_of_2(len(pairs)) - len(pairs))
    sources, columns = torch.tensor(pairs, dtype=torch.int32, device=device).unbind(1)
    return sources.contiguous(), columns.contiguous()
