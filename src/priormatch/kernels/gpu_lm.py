"""Convolutional language model one position at a time, for beam search on a GPU.

Nothing is copied when hypotheses change slots: the inputs of a convolution stay in a ring buffer of positions, and a
hypothesis finds its own history there by following parents.
"""

from typing import NamedTuple

import torch
import triton
from torch import Tensor, nn
from torch.nn import functional

from priormatch.kernels.gpu_lm_kernels import embed_kernel, gated_kernel
from priormatch.models.conv_lm import CausalConv, ConvLM, GatedBlock

TILE = {"ROWS": 32, "COLUMNS": 32}


class Gated(NamedTuple):
    """A gated convolution: weight (2·C_out, K·C_in), oldest position first, bias (2·C_out,), kernel K."""

    weight: Tensor
    bias: Tensor
    kernel: int

    @property
    def inputs(self) -> int:
        """C_in."""
        return self.weight.shape[1] // self.kernel

    @property
    def outputs(self) -> int:
        """C_out."""
        return len(self.weight) // 2


class Block(NamedTuple):
    """Gated convolutions with a residual connection around them; `skip` is its linear layer, or None."""

    layers: list[Gated]
    skip: nn.Linear | None


class LMWeights:
    """The weights of a language model in the layout of the kernels, shared by searches of all shapes.

    `table` (classes + 1, C) holds the first layer's input for each class, and in its last row for the beginning.
    """

    def __init__(self, lm: ConvLM) -> None:
        first = torch.arange(lm.eos + 2, device=lm.embedding.weight.device).clamp(max=lm.eos)
        self.table = product(lm.embedding(first), lm.narrow.weight, lm.narrow.bias)
        self.blocks = [block_of(each) for each in lm.blocks]  # type: ignore[arg-type]
        self.head, more = lm.head, -lm.output.out_features % 8
        self.output = functional.pad(lm.output.weight, (0, 0, 0, more))
        self.output_bias = functional.pad(lm.output.bias, (0, more))
        self.ring = triton.next_power_of_2(
            max(layer.kernel for block in self.blocks for layer in block.layers)
        )


def block_of(block: GatedBlock) -> Block:
    """Convert a block to the layout of the kernels."""
    layers = [gated_of(layer) for layer in block.layers]  # type: ignore[arg-type]
    return Block(layers, block.skip if isinstance(block.skip, nn.Linear) else None)


def gated_of(layer: CausalConv) -> Gated:
    """Convert a layer to the layout of the kernels."""
    weight, bias = layer.conv.weight, layer.conv.bias
    assert bias is not None
    return Gated(weight.transpose(1, 2).flatten(1).contiguous(), bias, layer.kernel)


class GpuLM:
    """The model's steps and buffers for `rows` hypotheses, `beam` per utterance."""

    def __init__(self, weights: LMWeights, rows: int, beam: int) -> None:
        self.weights, self.rows, self.beam = weights, rows, beam
        self.precision = "ieee" if weights.table.dtype == torch.float32 else "tf32"
        self.inputs = [
            [self._buffer(layer.inputs, layer.kernel > 1) for layer in block.layers]
            for block in weights.blocks
        ]
        self.last = self._buffer(weights.blocks[-1].layers[-1].outputs, False)

    def _buffer(self, size: int, ring: bool) -> Tensor:
        """The input buffer of a layer for every hypothesis: (rows, C), or as a ring (positions, rows, C)."""
        shape = (self.weights.ring, self.rows, size) if ring else (self.rows, size)
        return self.weights.table.new_zeros(shape)

    def step(self, parents: Tensor, classes: Tensor, position: Tensor) -> Tensor:
        """Logits of the next class: parents and classes (positions, rows), current `position` -> (rows, C')."""
        weights = self.weights
        size = weights.table.shape[1]
        embed_kernel[(self.rows,)](
            weights.table, classes, position, self.inputs[0][0],
            size, triton.next_power_of_2(size), weights.ring,
        )  # fmt: skip
        for number, block in enumerate(weights.blocks):
            mine = self.inputs[number]
            after = self.inputs[number + 1][0] if number + 1 < len(weights.blocks) else self.last
            for layer, source, out in zip(block.layers, mine, [*mine[1:], after], strict=True):
                skip = None
                if layer is block.layers[-1]:
                    skip = mine[0] if block.skip is None else self._skipped(block.skip, mine[0])
                self._layer(layer, source, out, skip, parents, position)
        hidden = product(self.last, weights.head.weight, weights.head.bias)
        return product(hidden, weights.output, weights.output_bias)

    def _skipped(self, skip: nn.Linear, x: Tensor) -> Tensor:
        assert x.dim() == 2, "the first block, whose inputs lie in a ring, is as wide as its inputs"
        return product(x, skip.weight, skip.bias)

    def _layer(
        self,
        layer: Gated,
        source: Tensor,
        out: Tensor,
        skip: Tensor | None,
        parents: Tensor,
        position: Tensor,
    ) -> None:
        grid = triton.cdiv(self.rows, TILE["ROWS"]), triton.cdiv(layer.outputs, TILE["COLUMNS"])
        depth, stages = (64, 5) if layer.kernel == 1 else (32, 3)  # about 50 KiB in flight at a time
        gated_kernel[grid](
            source, parents, position, layer.weight, layer.bias, source if skip is None else skip, out,
            self.rows, self.beam, layer.inputs, layer.outputs, layer.kernel, self.weights.ring,
            skip is not None, skip is not None and skip.dim() == 3, out.dim() == 3,
            **TILE, DEPTH=depth, PRECISION=self.precision, num_warps=4, num_stages=stages,
        )  # fmt: skip


def product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """W x + c in the precision of the inputs; bfloat16 would be too coarse (see `score_tree`)."""
    with torch.autocast(x.device.type, enabled=False):
        return torch.addmm(bias, x, weight.t())
