"""Layers of the Conformer encoder as fused GPU kernels; `kernels/conformer_triton.py` puts them together.

Frames of all utterances are the rows of matrices (B·T, C). Linear layers are products without bias. The layer that
follows adds the bias, and sums its gradient over the rows. Dropout masks are not stored but drawn again.
"""

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from priormatch.kernels.attention_kernels import attention_kernel, key_gradient_kernel, query_gradient_kernel
from priormatch.kernels.conformer_kernels import (
    depthwise_kernel,
    gate_backward_kernel,
    gate_kernel,
    norm_backward_kernel,
    norm_kernel,
    rotate_kernel,
    silu_backward_kernel,
    silu_kernel,
    sum_kernel,
    taps_gradient_kernel,
)
from priormatch.kernels.tds_triton import Dropout, product
from priormatch.models.conformer import Rotation

WIDEST = 1024  # features that a program of a norm holds
TILE = 2048  # values per program of a pointwise kernel
PROCESSORS = 128  # to fill; kernels that sum over rows have as many programs as run at the same time
PARTS = 512  # sums that are added at a time
BLOCK = 64  # queries or keys


class Adding(NamedTuple):
    """How `AddNorm` adds; whether there will be a backward pass cannot be determined inside a Function."""

    dropout: Dropout
    factor: float
    eps: float
    learning: bool


class Shape(NamedTuple):
    """lengths (B,), their padded length, and whether there will be a backward pass."""

    lengths: Tensor
    steps: int
    learning: bool


def precision_on(device: torch.device) -> torch.dtype:
    """The precision of matrix products; on the CPU, where Triton interprets the kernels, it is exact."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def columns_of(features: int, most: int = WIDEST) -> int:
    """Columns of a tile: a power of two, and at least the minimum of a tensor core."""
    return min(max(triton.next_power_of_2(features), 16), most)


def programs_for(rows: int, rows_each: int, resident: int, blocks: int = 1) -> int:
    """Programs along the rows, of which `resident` fit on a processor; each of `blocks` of columns has its own."""
    return max(1, min(triton.cdiv(rows, rows_each), PROCESSORS * resident // blocks))


def sum_of_parts(parts: Tensor) -> Tensor:
    """Sum over the first dimension of parts (N, ...) in a fixed order."""
    out = parts.new_empty(parts.shape[1:])
    size = out.numel()
    sum_kernel[(triton.cdiv(size, 16),)](parts, out, len(parts), size, PARTS, 16, num_warps=8)
    return out


class Product(Function):
    """x W' (N, C_in) -> (N, C_out), with `half`, W in the precision of x; the gradient of W is in float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, half: Tensor) -> Tensor:
        """x (N, C_in), weight and half (C_out, C_in)."""
        ctx.save_for_backward(x, half)
        return x @ half.t()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> Any:
        """Gradients of x and weight."""
        x, half = ctx.saved_tensors
        return slope @ half, product(slope.t(), x), None


class AddNorm(Function):
    """s = x + factor · dropout(y + bias), and norm(s) in the precision of y; or n = norm(s), and norm(n)."""

    @staticmethod
    def forward(
        ctx: Any, adding: Adding, x: Tensor | None, y: Tensor, bias: Tensor | None, *norms: Tensor
    ) -> Any:
        """x in float32 and y (N, C); gain and shift of one or two norms -> s or n in float32, and the last norm."""
        dropout, factor, eps, learning = adding
        rows, features = y.shape
        twice = len(norms) == 4
        out = torch.empty_like(y)
        total = torch.empty_like(y, dtype=torch.float32) if learning or not twice else out
        between = torch.empty_like(y, dtype=torch.float32) if twice else total
        columns = columns_of(features)
        height = max(TILE // columns, 1)
        norm_kernel[(triton.cdiv(rows, height),)](
            y if x is None else x, y, y if bias is None else bias, *norms[:2], *norms[-2:], dropout.seeds,
            total, between, out, rows, features, dropout.dropped, dropout.scale, factor, eps,
            x is not None, bias is not None, dropout.on, total is not out, twice, height, columns, num_warps=4,
        )  # fmt: skip
        ctx.set_materialize_grads(False)
        ctx.adding, ctx.plain, ctx.biased = adding, x is None, bias is not None
        ctx.save_for_backward(total, *norms)
        return between, out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope_stream: Tensor | None, slope: Tensor) -> Any:
        """Gradients of x, y, bias, gains and shifts."""
        total, *norms = ctx.saved_tensors
        dropout, factor, eps, _ = ctx.adding
        rows, features = total.shape
        twice, slope = len(norms) == 4, slope.contiguous()
        stream = slope if slope_stream is None else slope_stream.contiguous()
        branch = torch.empty_like(slope)
        into = branch if ctx.plain else torch.empty_like(total)
        columns = columns_of(features)
        height = max(TILE // 2 // columns, 1)
        programs = programs_for(rows, height, 4)
        parts = total.new_empty(programs, 5 if twice else 3, features)
        norm_backward_kernel[(programs,)](
            total, slope, stream, norms[0], norms[1], norms[-2], dropout.seeds, into, branch, parts,
            rows, features, dropout.dropped, dropout.scale, factor, eps,
            slope_stream is not None, not ctx.plain, dropout.on, twice, False, height, columns, num_warps=2,
        )  # fmt: skip
        sums = sum_of_parts(parts)
        gains = (sums[0], sums[1], *sums[3:])
        return None, None if ctx.plain else into, branch, sums[2] if ctx.biased else None, *gains


class Silu(Function):
    """dropout(silu(x + bias))."""

    @staticmethod
    def forward(ctx: Any, dropout: Dropout, x: Tensor, bias: Tensor) -> Tensor:
        """x (N, C), bias (C,) -> (N, C)."""
        rows, features = x.shape
        columns = columns_of(features, 256)
        height, out = TILE // columns, torch.empty_like(x)
        grid = triton.cdiv(rows, height), triton.cdiv(features, columns)
        silu_kernel[grid](
            x, bias, dropout.seeds, out, rows, features, dropout.dropped, dropout.scale, dropout.on, height, columns
        )  # fmt: skip
        ctx.dropout = dropout
        ctx.save_for_backward(x, bias)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> Any:
        """Gradients of x and bias."""
        x, bias = ctx.saved_tensors
        dropout: Dropout = ctx.dropout
        rows, features = x.shape
        columns = columns_of(features, 256)
        height, blocks, into = TILE // columns, triton.cdiv(features, columns), torch.empty_like(x)
        programs = programs_for(rows, height, 8, blocks)
        parts = x.new_empty(programs, features, dtype=torch.float32)
        silu_backward_kernel[(programs, blocks)](
            x, bias, dropout.seeds, slope.contiguous(), into, parts, rows, features,
            dropout.dropped, dropout.scale, dropout.on, height, columns, num_warps=2,
        )  # fmt: skip
        return None, into, sum_of_parts(parts)


class Gate(Function):
    """(a + bias) · sigmoid(b + bias) of x = (a, b), zero after each utterance's end."""

    @staticmethod
    def forward(ctx: Any, shape: Shape, x: Tensor, bias: Tensor) -> Tensor:
        """x (B·T, 2C), bias (2C,) -> (B·T, C)."""
        rows, features = len(x), x.shape[1] // 2
        columns = columns_of(features, 256)
        height, out = TILE // columns, x.new_empty(rows, features)
        gate_kernel[(triton.cdiv(rows, height), triton.cdiv(features, columns))](
            x, bias, shape.lengths, out, rows, shape.steps, features, height, columns
        )
        ctx.shape = shape
        ctx.save_for_backward(x, bias)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> Any:
        """Gradients of x and bias."""
        x, bias = ctx.saved_tensors
        rows, features = len(x), x.shape[1] // 2
        columns = columns_of(features, 256)
        height, blocks, into = TILE // columns, triton.cdiv(features, columns), torch.empty_like(x)
        programs = programs_for(rows, height, 4, blocks)
        parts = x.new_empty(programs, 2 * features, dtype=torch.float32)
        gate_backward_kernel[(programs, blocks)](
            x, bias, ctx.shape.lengths, slope.contiguous(), into, parts, rows, ctx.shape.steps, features,
            height, columns,
        )  # fmt: skip
        return None, into, sum_of_parts(parts)


class Rotate(Function):
    """Queries, keys and values with their bias, the first two rotated by their positions."""

    @staticmethod
    def forward(ctx: Any, rotation: Rotation, x: Tensor, bias: Tensor) -> Tensor:
        """x (B·T, 3·H·D), bias (3·H·D,), rotation (T, D / 2) -> (B·T, 3·H·D)."""
        ctx.rotation = rotation
        return rotated(rotation, x, bias)[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> Any:
        """Gradients of x and bias."""
        into, parts = rotated(ctx.rotation, slope.contiguous())
        return None, into, sum_of_parts(parts)


def rotated(rotation: Rotation, x: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Rotate x + bias; without a bias rotate x back, and sum over rows: parts (N, 3·H·D)."""
    rows, features = len(x), x.shape[1] // 3
    steps, half = rotation[0].shape
    columns = columns_of(features // 2)
    height, out, backward = max(TILE // 2 // columns, 1), torch.empty_like(x), bias is None
    programs = programs_for(rows, height, 6, 3) if backward else triton.cdiv(rows, height)
    parts = x.new_empty(programs if backward else 0, 3 * features, dtype=torch.float32)
    rotate_kernel[(programs, 3)](
        x, x if bias is None else bias, *rotation, out, parts, rows, steps, features, half,
        backward, height, columns, num_warps=4,
    )  # fmt: skip
    return out, parts


class Attention(Function):
    """softmax(q·k / sqrt(D)) v over the frames before each utterance's end, at least one."""

    @staticmethod
    def forward(ctx: Any, shape: Shape, heads: int, x: Tensor) -> Tensor:
        """x (B·T, 3·H·D) -> (B·T, H·D)."""
        lengths, steps, learning = shape
        size = x.shape[1] // (3 * heads)
        out = x.new_empty(len(x), heads * size)
        logs = x.new_empty(len(lengths) * heads, steps if learning else 0, dtype=torch.float32)
        attention_kernel[(triton.cdiv(steps, BLOCK), len(lengths) * heads)](
            x, lengths, out, logs, steps, heads, size, size**-0.5, learning, BLOCK, columns_of(size),
            num_warps=4,
        )  # fmt: skip
        ctx.shape, ctx.heads = shape, heads
        ctx.save_for_backward(x, out, logs)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> Any:
        """The gradient of x."""
        x, out, logs = ctx.saved_tensors
        (lengths, steps, _), heads, slope = ctx.shape, ctx.heads, slope.contiguous()
        size = x.shape[1] // (3 * heads)
        into, products = torch.empty_like(x), torch.empty_like(logs)
        grid = triton.cdiv(steps, BLOCK), len(lengths) * heads
        options = steps, heads, size, size**-0.5, BLOCK, columns_of(size)
        query_gradient_kernel[grid](x, lengths, out, slope, logs, products, into, *options, num_warps=4)
        key_gradient_kernel[grid](x, lengths, slope, logs, products, into, *options, num_warps=4)
        return None, None, into


class Depthwise(Function):
    """silu(norm(conv(x) + bias)), a convolution over time of each feature alone."""

    @staticmethod
    def forward(ctx: Any, shape: Shape, eps: float, x: Tensor, weight: Tensor, *more: Tensor) -> Tensor:
        """x (B·T, C), weight (C, 1, taps); bias, gain and shift (C,) -> (B·T, C)."""
        taps = weight[:, 0].t().contiguous()
        mixed = torch.empty_like(x) if shape.learning else x
        out = torch.empty_like(x)
        convolve(shape.steps, eps, x, taps, (*more, mixed), out)
        ctx.steps, ctx.eps = shape.steps, eps
        ctx.save_for_backward(x, taps, mixed, *more[1:])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> Any:
        """Gradients of x, weight, bias, gain and shift."""
        x, taps, mixed, gain, shift = ctx.saved_tensors
        rows, features = x.shape
        change, into = torch.empty_like(x), torch.empty_like(x)
        columns = columns_of(features)
        height = max(TILE // 2 // columns, 1)
        programs = programs_for(rows, height, 4)
        parts = x.new_empty(programs, 3, features, dtype=torch.float32)
        norm_backward_kernel[(programs,)](
            mixed, slope.contiguous(), x, gain, shift, gain, x, x, change, parts, rows, features,
            0, 1.0, 1.0, ctx.eps, False, False, False, False, True, height, columns, num_warps=2,
        )  # fmt: skip
        sums = sum_of_parts(parts)
        convolve(ctx.steps, ctx.eps, change, taps, None, into)
        padded = triton.next_power_of_2(len(taps))
        columns = min(columns_of(features), max(4096 // padded, 16))
        blocks = triton.cdiv(features, columns)
        chunk_rows = max(triton.cdiv(rows, programs_for(rows, 1, 4, blocks)), 1)
        chunks = triton.cdiv(rows, chunk_rows)
        parts = x.new_empty(chunks, *taps.shape, dtype=torch.float32)
        taps_gradient_kernel[(chunks, blocks)](
            x, change, parts, rows, chunk_rows, ctx.steps, features, len(taps), padded, columns, num_warps=4
        )
        return None, None, into, sum_of_parts(parts).t()[:, None], sums[2], sums[0], sums[1]


def convolve(
    steps: int, eps: float, x: Tensor, taps: Tensor, more: tuple[Tensor, ...] | None, out: Tensor
) -> None:
    """Launch the depthwise convolution: forward with bias, gain, shift and the norm's input, else backward."""
    rows, features = x.shape
    columns = columns_of(features)
    height = max(2 * TILE // columns, 1)
    keep = more is not None and more[3] is not x
    depthwise_kernel[(triton.cdiv(rows, height),)](
        x, taps, *(more or (taps, taps, taps, out)), out, rows, steps, features, eps,
        len(taps), more is None, keep, height, columns, num_warps=4,
    )  # fmt: skip
