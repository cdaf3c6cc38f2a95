"""The TDS encoder's layers as fused GPU kernels, in bfloat16; `models/tds.py` is the reference implementation.

Convolutions are products with banded matrices (`band.py`). Bias, ReLU, dropout, residual, mask and the sums of the
norm are computed while the product is still in registers. Dropout masks are not stored but drawn again.
"""

from typing import Any, NamedTuple, cast

import torch
import triton
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from priormatch.kernels.band import Band, backward_band, forward_band
from priormatch.kernels.tds_kernels import (
    add_kernel,
    band_gradient_kernel,
    band_matrix_kernel,
    banded_product_kernel,
    normalize_backward_kernel,
    normalize_kernel,
    normalize_sums_kernel,
    rectify_backward_kernel,
    rectify_kernel,
    taps_gradient_kernel,
)
from priormatch.models.tds import SubSampling, TDSBlock, TDSEncoder

ROWS, DEPTH = 64, 32  # a tile of the product
GRADIENT_ROWS, GRADIENT_DEPTH = 64, 128  # a tile of the matrix's gradient
CHUNKS = 64  # parts of a batch with separate sums of weight gradients, always added in the same order
BLOCK = 4096  # values per program of a pointwise kernel


class Dropout(NamedTuple):
    """Dropout probability, and the seeds (2,) on the device; a layer reads one or two of them."""

    share: float
    seeds: Tensor

    @property
    def on(self) -> bool:
        """Whether dropout is active."""
        return self.share > 0

    @property
    def dropped(self) -> int:
        """The probability times 2³²."""
        return int(self.share * 2**32)

    @property
    def scale(self) -> float:
        """The factor that preserves the expected value."""
        return 1 / (1 - self.share)


class Step(NamedTuple):
    """What a layer takes besides x and its weights: lengths (B,) of the result, dropout, the eps of the norm."""

    lengths: Tensor
    dropout: Dropout
    eps: float
    learning: bool  # cannot be determined inside a Function
    stride: int = 1
    residual: bool = True


def band_matrix(weight: Tensor, band: Band, transposed: bool, dtype: torch.dtype) -> Tensor:
    """A kernel (C_out, C_in, taps, 1) as a banded matrix (inputs·C_in, outputs·C_out), padded to whole tiles.

    If transposed, for the gradient, it maps the C_out channels to the C_in channels.
    """
    channels = (weight.shape[0], weight.shape[1]) if transposed else (weight.shape[1], weight.shape[0])
    strides = (weight.stride(0), weight.stride(1)) if transposed else (weight.stride(1), weight.stride(0))
    rows = triton.cdiv(band.inputs * channels[0], DEPTH) * DEPTH
    columns = columns_of(band, channels[1])
    matrix = torch.empty(rows, columns, dtype=dtype, device=weight.device)
    band_matrix_kernel[(rows,)](
        weight, matrix, band.by_input, band.by_output, band.shift, band.outputs, weight.shape[2],
        *channels, *strides, columns,
    )  # fmt: skip
    return matrix


def columns_of(band: Band, channels: int) -> int:
    """Columns of a banded matrix: a power of two, and at least the minimum of a tensor core."""
    return max(triton.next_power_of_2(band.outputs * channels), 16)


class ConvNorm(Function):
    """norm((x + dropout(relu(conv(x)))) · mask), or without the residual x, only for steps before `lengths`."""

    @staticmethod
    def forward(
        ctx: Any, step: Step, x: Tensor, weight: Tensor, bias: Tensor, gain: Tensor, shift: Tensor
    ) -> Tensor:
        """x (B, T, W·C_in) -> (B, ceil(T / stride), W·C_out)."""
        lengths, dropout, _, learning, stride, residual = step
        channels_out, channels_in, taps = weight.shape[:3]
        width = x.shape[2] // channels_in
        batch, steps_in = x.shape[:2]
        steps_out = triton.cdiv(steps_in, stride)
        band = forward_band(taps, stride, channels_out)
        matrix = band_matrix(weight, band, False, x.dtype)
        blocks = triton.cdiv(steps_out, band.outputs)
        tiles = triton.cdiv(blocks * width, ROWS)
        total = x.new_empty(batch, steps_out, width * channels_out)
        active = torch.empty_like(total, dtype=torch.uint8) if learning else total
        sums = torch.empty(batch, tiles, 2, device=x.device)
        banded_product_kernel[(tiles, batch)](
            x, matrix, total, x, bias, active, sums, lengths, dropout.seeds,
            steps_in, steps_out, blocks, dropout.dropped, dropout.scale,
            width, channels_in, channels_out, band.outputs, band.inputs, band.stride, band.offset,
            True, residual, learning, dropout.on, ROWS, columns_of(band, channels_out), DEPTH,
            num_warps=4, num_stages=3,
        )  # fmt: skip
        if learning:
            ctx.save_for_backward(x, weight, gain, total, active, sums)
            ctx.step = step
        return normalize(total, sums, gain, shift, step)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        """Gradients of x, weight, bias, gain and shift."""
        x, weight, gain, total, active, sums = ctx.saved_tensors
        step: Step = ctx.step
        stride = step.stride
        channels_out, channels_in, taps = weight.shape[:3]
        width = x.shape[2] // channels_in
        batch, steps_in = x.shape[:2]
        steps_out = total.shape[1]
        through, branch, gains = normalize_backward(gradient, total, sums, gain, step, active)
        weight_gradient, bias_gradient = band_gradient(x, branch, weight, stride, width)
        into = None
        if ctx.needs_input_grad[1]:
            band = backward_band(taps, stride, channels_in)
            matrix = band_matrix(weight, band, True, x.dtype)
            blocks = triton.cdiv(steps_in, band.outputs)
            into = torch.empty_like(x)
            banded_product_kernel[(triton.cdiv(blocks * width, ROWS), batch)](
                branch, matrix, into, through, weight, active, sums, step.lengths, step.dropout.seeds,
                steps_out, steps_in, blocks, 0, 1.0,
                width, channels_out, channels_in, band.outputs, band.inputs, band.stride, band.offset,
                False, step.residual, False, False, ROWS, columns_of(band, channels_in), DEPTH,
            num_warps=4, num_stages=3,
            )  # fmt: skip
        return None, into, weight_gradient, bias_gradient, gains[0], gains[1]


def band_gradient(x: Tensor, slope: Tensor, weight: Tensor, stride: int, width: int) -> tuple[Tensor, Tensor]:
    """Gradients of a convolution's kernel and bias, from its input and the gradient of its output."""
    channels_out, channels_in, taps = weight.shape[:3]
    band = forward_band(taps, stride, channels_out)
    blocks = triton.cdiv(slope.shape[1], band.outputs)
    rows = len(x) * blocks * width
    columns = columns_of(band, channels_out)
    tiles = triton.cdiv(band.inputs * channels_in, GRADIENT_DEPTH)
    chunk_rows = triton.cdiv(triton.cdiv(rows, CHUNKS), GRADIENT_ROWS) * GRADIENT_ROWS
    parts = torch.empty(CHUNKS, tiles * GRADIENT_DEPTH, columns, device=x.device)
    bias_parts = torch.empty(CHUNKS, columns, device=x.device)
    band_gradient_kernel[(tiles, CHUNKS)](
        x, slope, parts, bias_parts, x.shape[1], slope.shape[1], blocks, rows, chunk_rows,
        width, channels_in, channels_out, band.outputs, band.inputs, band.stride, band.offset,
        GRADIENT_ROWS, columns, GRADIENT_DEPTH, num_warps=4, num_stages=1,
    )  # fmt: skip
    gradient = torch.empty_like(weight)
    taps_gradient_kernel[(triton.cdiv(weight.numel(), 256),)](
        parts.sum(dim=0), gradient, band.outputs, stride, taps, channels_in, channels_out, columns, 256
    )
    bias = bias_parts.sum(dim=0)[: band.outputs * channels_out].view(band.outputs, channels_out).sum(dim=0)
    return gradient, bias


class LinearNorm(Function):
    """norm((x + dropout(outer(dropout(relu(inner(x)))))) · mask)."""

    @staticmethod
    def forward(ctx: Any, step: Step, x: Tensor, *weights: Tensor) -> Tensor:
        """x (B, T, F); weight and bias of the inner and the outer layer, gain and shift -> (B, T, F)."""
        lengths, dropout = step.lengths, step.dropout
        inner, inner_bias, outer, outer_bias, gain, shift = weights
        inner, outer = inner.to(x.dtype), outer.to(x.dtype)
        hidden = torch.addmm(inner_bias.to(x.dtype), x.flatten(0, 1), inner.t())
        size = hidden.numel()
        grid = (triton.cdiv(size, BLOCK),)
        rectify_kernel[grid](hidden, dropout.seeds, size, dropout.dropped, dropout.scale, dropout.on, BLOCK)
        branch = torch.addmm(outer_bias.to(x.dtype), hidden, outer.t())
        batch, steps, features = x.shape
        total = torch.empty_like(x)
        parts = triton.cdiv(steps * features, BLOCK)
        sums = torch.empty(batch, parts, 2, device=x.device)
        add_kernel[(parts, batch)](
            x, branch, lengths, dropout.seeds[1:], total, sums, steps * features, features,
            dropout.dropped, dropout.scale, dropout.on, BLOCK,
        )  # fmt: skip
        if step.learning:
            ctx.save_for_backward(x, inner, outer, gain, hidden, total, sums)
            ctx.step = step
        return normalize(total, sums, gain, shift, step)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        """Gradients of x, both linear layers, gain and shift."""
        x, inner, outer, gain, hidden, total, sums = ctx.saved_tensors
        step: Step = ctx.step
        through, branch, gains = normalize_backward(gradient, total, sums, gain, step)
        branch = branch.flatten(0, 1)
        slope = branch @ outer
        grid = (triton.cdiv(slope.numel(), BLOCK),)
        rectify_backward_kernel[grid](slope, hidden, slope.numel(), step.dropout.scale, BLOCK)
        into = through.flatten(0, 1).addmm_(slope, inner).view_as(x)
        return (
            None,
            into,
            weight_gradient(slope, x.flatten(0, 1)),
            sum_of_rows(slope),
            weight_gradient(branch, hidden),
            sum_of_rows(branch),
            gains[0],
            gains[1],
        )


def weight_gradient(slope: Tensor, x: Tensor) -> Tensor:
    """slope' x, in float32: (N, C_out), (N, C_in) -> (C_out, C_in).

    Split in two if the result is small: cuBLAS uses too few of the GPU's processors for a long sum with a small result.
    """
    parts = 2 if slope.shape[1] < 1024 and len(slope) % 2 == 0 else 1
    slope, x = (each.view(parts, -1, each.shape[1]) for each in (slope, x))
    return product(slope.transpose(1, 2), x).sum(dim=0) if parts > 1 else product(slope[0].t(), x[0])


def sum_of_rows(slope: Tensor) -> Tensor:
    """Sum over rows in float32, (N, C) -> (C,), as a product, which takes half the time of a sum."""
    return product(slope.new_ones(8, len(slope)), slope)[0]


def product(a: Tensor, b: Tensor) -> Tensor:
    """a b in float32, for matrices or batches of matrices."""
    if not a.is_cuda:  # when Triton interprets the kernels
        return a.float() @ b.float()
    return (torch.bmm if a.dim() == 3 else torch.mm)(a, b, out_dtype=torch.float32)


def normalize(total: Tensor, sums: Tensor, gain: Tensor, shift: Tensor, step: Step) -> Tensor:
    """Apply the norm, given the partial sums of the tiles."""
    batch, steps, features = total.shape
    size, parts = steps * features, sums.shape[1]
    out = torch.empty_like(total)
    normalize_kernel[(triton.cdiv(size, BLOCK), batch)](
        total, sums, gain, shift, step.lengths, out, size, features, parts, step.eps,
        triton.next_power_of_2(parts), BLOCK,
    )  # fmt: skip
    return out


def normalize_backward(
    gradient: Tensor, total: Tensor, sums: Tensor, gain: Tensor, step: Step, active: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the norm's input, of the branch added to it, and of gain and shift (2,).

    With `active`, the values that passed ReLU and dropout, the branch is a convolution; otherwise it is a linear
    layer, and its dropout mask is drawn again.
    """
    lengths, dropout = step.lengths, step.dropout
    batch, steps, features = total.shape
    size, parts = steps * features, triton.cdiv(steps * features, BLOCK)
    gradient = gradient.contiguous()
    slopes = torch.empty(batch, parts, 2, device=total.device)
    normalize_sums_kernel[(parts, batch)](gradient, total, lengths, slopes, size, features, BLOCK)
    through, branch = torch.empty_like(total), torch.empty_like(total)
    gains = torch.empty(2, batch, device=total.device)
    normalize_backward_kernel[(parts, batch)](
        gradient, total, sums, slopes, gain, lengths, total if active is None else active,
        dropout.seeds[1:], through, branch, gains, size, features, sums.shape[1], parts,
        dropout.dropped, dropout.scale, step.eps, active is not None, dropout.on,
        triton.next_power_of_2(sums.shape[1]), triton.next_power_of_2(parts), BLOCK,
    )  # fmt: skip
    return through, branch, gains.sum(dim=1)


def encode(encoder: TDSEncoder, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `TDSEncoder.forward`: features (B, T, W), lengths (B,) -> (B, T', output), (B,)."""
    x = features.to(torch.bfloat16).contiguous()
    depth = sum(len(cast(nn.ModuleList, stage)) for stage in encoder.stages)
    seeds = iter(torch.randint(2**31, (depth, 4), device=x.device))
    for stage in encoder.stages:
        lengths = (lengths + 1) // 2
        for layer in cast(nn.ModuleList, stage):
            x = layer_output(layer, x, lengths, next(seeds))
    return encoder.head(x), lengths


def layer_output(layer: nn.Module, x: Tensor, lengths: Tensor, seeds: Tensor) -> Tensor:
    """Compute a SubSampling or a TDSBlock; lengths are those of the result, seeds (4,)."""
    assert isinstance(layer, SubSampling | TDSBlock)
    share = layer.dropout.p if layer.training else 0.0
    learning = torch.is_grad_enabled()
    conv = layer.conv.conv
    norm = layer.norm if isinstance(layer, SubSampling) else layer.conv_norm
    assert conv.bias is not None
    dropout = Dropout(share, seeds[:2])
    step = Step(lengths, dropout, norm.eps, learning, conv.stride[0], isinstance(layer, TDSBlock))
    x = ConvNorm.apply(step, x, conv.weight, conv.bias, norm.gain, norm.bias)
    if isinstance(layer, TDSBlock):
        inner, outer, norm = layer.inner, layer.outer, layer.linear_norm
        step = Step(lengths, Dropout(share, seeds[2:]), norm.eps, learning)
        weights = inner.weight, inner.bias, outer.weight, outer.bias, norm.gain, norm.bias
        x = LinearNorm.apply(step, x, *weights)
    return x
