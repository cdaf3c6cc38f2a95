"""The Conformer encoder as fused GPU kernels, in bfloat16; `models/conformer.py` is the reference implementation.

What blocks add to, the residual stream, is kept in float32, as are all sums. Between matrix products everything is
fused: bias, dropout, residual and norm; bias, SiLU and dropout; bias and rotation; bias, gate and mask; convolution,
norm and SiLU. Linear layers are products without bias, whose gradient is summed where it is computed. Dropout masks are
not stored but drawn again. Frames of all utterances are the rows of matrices (B·T, C).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import torch
import triton
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from priormatch.data.features import time_mask
from priormatch.kernels.attention_kernels import attention_kernel, key_gradient_kernel, query_gradient_kernel
from priormatch.kernels.conformer_kernels import (
    depthwise_kernel,
    first_conv_gradient_kernel,
    first_conv_kernel,
    gate_backward_kernel,
    gate_kernel,
    norm_backward_kernel,
    norm_kernel,
    rectify_mask_backward_kernel,
    rectify_mask_kernel,
    rotate_kernel,
    silu_backward_kernel,
    silu_kernel,
    sum_kernel,
    taps_gradient_kernel,
)
from priormatch.kernels.tds_triton import Dropout, product
from priormatch.models.conformer import (
    ConformerBlock,
    ConformerEncoder,
    ConvModule,
    ConvSubSampling,
    Rotation,
    SelfAttention,
    rotary,
)

WIDEST = 1024  # features that a program of a norm holds
LARGEST_HEAD = 128  # features
MOST_TAPS = 511  # of the depthwise convolution
TILE = 2048  # values per program of a pointwise kernel
PROGRAMS = 1056  # programs of a kernel that sums over rows, eight on each processor of an H200
BLOCK = 64  # queries or keys
SEEDS = 6  # of dropout in a block


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


def columns_of(features: int, most: int = WIDEST) -> int:
    """Columns of a tile: a power of two, and at least the minimum of a tensor core."""
    return min(max(triton.next_power_of_2(features), 16), most)


def programs_for(rows: int, rows_each: int, blocks: int = 2) -> int:
    """Programs along the rows of a kernel that sums over them; `blocks` of columns have their own."""
    return max(1, min(triton.cdiv(rows, rows_each), PROGRAMS // blocks))


def sum_of_parts(parts: Tensor) -> Tensor:
    """Sum over the first dimension of parts (N, ...) in a fixed order."""
    out = parts.new_empty(parts.shape[1:])
    size = out.numel()
    sum_kernel[(triton.cdiv(size, 32),)](parts, out, len(parts), size, 256, 32, num_warps=8)
    return out


@contextmanager
def same_bits() -> Iterator[None]:
    """Let cuDNN use only algorithms that add in a fixed order."""
    before, torch.backends.cudnn.deterministic = torch.backends.cudnn.deterministic, True
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic = before


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
        height = max(TILE // columns, 1)
        programs = programs_for(rows, height)
        parts = total.new_empty(programs, 5 if twice else 3, features)
        norm_backward_kernel[(programs,)](
            total, slope, stream, norms[0], norms[1], norms[-2], dropout.seeds, into, branch, parts,
            rows, features, dropout.dropped, dropout.scale, factor, eps,
            slope_stream is not None, not ctx.plain, dropout.on, twice, False, height, columns, num_warps=8,
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
        silu_kernel[(triton.cdiv(rows, height), triton.cdiv(features, columns))](
            x,
            bias,
            dropout.seeds,
            out,
            rows,
            features,
            dropout.dropped,
            dropout.scale,
            dropout.on,
            height,
            columns,
        )
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
        programs = programs_for(rows, height, blocks)
        parts = x.new_empty(programs, features, dtype=torch.float32)
        silu_backward_kernel[(programs, blocks)](
            x, bias, dropout.seeds, slope.contiguous(), into, parts, rows, features,
            dropout.dropped, dropout.scale, dropout.on, height, columns,
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
        programs = programs_for(rows, height, max(blocks, 2))
        parts = x.new_empty(programs, 2 * features, dtype=torch.float32)
        gate_backward_kernel[(programs, blocks)](
            x,
            bias,
            ctx.shape.lengths,
            slope.contiguous(),
            into,
            parts,
            rows,
            ctx.shape.steps,
            features,
            height,
            columns,
        )
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
    programs = programs_for(rows, height, 3) if backward else triton.cdiv(rows, height)
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
            x,
            lengths,
            out,
            logs,
            steps,
            heads,
            size,
            size**-0.5,
            learning,
            BLOCK,
            columns_of(size),
            num_warps=4,
        )
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
        height = max(TILE // columns, 1)
        programs = programs_for(rows, height)
        parts = x.new_empty(programs, 3, features, dtype=torch.float32)
        norm_backward_kernel[(programs,)](
            mixed, slope.contiguous(), x, gain, shift, gain, x, x, change, parts, rows, features,
            0, 1.0, 1.0, ctx.eps, False, False, False, False, True, height, columns, num_warps=8,
        )  # fmt: skip
        sums = sum_of_parts(parts)
        convolve(ctx.steps, ctx.eps, change, taps, None, into)
        padded = triton.next_power_of_2(len(taps))
        columns = min(columns_of(features), max(4096 // padded, 16))
        chunk_rows = max(triton.cdiv(rows, PROGRAMS // 4), 1)
        chunks = max(triton.cdiv(rows, chunk_rows), 1)
        parts = x.new_empty(chunks, *taps.shape, dtype=torch.float32)
        taps_gradient_kernel[(chunks, triton.cdiv(features, columns))](
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


class FirstConv(Function):
    """relu(conv(x) + bias) of one channel, zero after each utterance's end; x has no gradient."""

    @staticmethod
    def forward(ctx: Any, lengths: Tensor, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """lengths of the result, x (B, T, F), weight (C, 1, 3, 3) -> (B, T', F', C)."""
        batch, steps, bands = x.shape
        channels = len(weight)
        dtype = torch.bfloat16 if x.is_cuda else torch.float32
        out = x.new_empty(batch, (steps + 1) // 2, (bands + 1) // 2, channels, dtype=dtype)
        places, columns = out.numel() // channels, columns_of(channels)
        height = max(4 * TILE // columns, 16)
        first_conv_kernel[(triton.cdiv(places, height),)](
            x, weight, bias, lengths, out, places, steps, bands, channels, height, columns, num_warps=4
        )
        ctx.save_for_backward(x, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> Any:
        """Gradients of weight and bias."""
        x, out = ctx.saved_tensors
        _, steps, bands = x.shape
        channels = out.shape[3]
        places, columns = out.numel() // channels, columns_of(channels)
        height = max(4 * TILE // columns, 16)
        programs = programs_for(places, height)
        parts = x.new_empty(programs, 16, channels, dtype=torch.float32)
        first_conv_gradient_kernel[(programs,)](
            x, out, slope.contiguous(), parts, places, steps, bands, channels, height, columns, num_warps=4
        )
        sums = sum_of_parts(parts)
        return None, None, sums[:9].t().reshape(channels, 1, 3, 3), sums[9]


class Conv(Function):
    """relu(conv(x) + bias), zero after each utterance's end."""

    @staticmethod
    def forward(ctx: Any, lengths: Tensor, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """lengths of the result, x (B, T, F, C), weight (C, C, 3, 3) -> (B, T', F', C)."""
        half = weight.to(x.dtype, memory_format=torch.channels_last)
        with same_bits():
            out = torch.conv2d(x.permute(0, 3, 1, 2), half, stride=2, padding=1)
        out = out.permute(0, 2, 3, 1).contiguous()
        _, steps, bands, channels = out.shape
        rows, columns = out.numel() // channels, columns_of(channels)
        height = max(TILE // columns, 1)
        rectify_mask_kernel[(triton.cdiv(rows, height),)](
            out, bias, lengths, rows, bands, steps, channels, height, columns
        )
        ctx.save_for_backward(x, half, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> Any:
        """Gradients of x, weight and bias."""
        x, half, out = ctx.saved_tensors
        channels = out.shape[3]
        rows, columns = out.numel() // channels, columns_of(channels)
        height, change = max(TILE // columns, 1), torch.empty_like(out)
        programs = programs_for(rows, height, 1)
        parts = x.new_empty(programs, channels, dtype=torch.float32)
        rectify_mask_backward_kernel[(programs,)](
            slope.contiguous(), out, change, parts, rows, channels, height, columns
        )
        with same_bits():
            into, gradient, _ = torch.ops.aten.convolution_backward(
                change.permute(0, 3, 1, 2), x.permute(0, 3, 1, 2), half, None, [2, 2], [1, 1], [1, 1],
                False, [0, 0], 1, [True, True, False],
            )  # fmt: skip
        return None, into.permute(0, 2, 3, 1), gradient.float(), sum_of_parts(parts)


class Pass:
    """One pass through an encoder: what its layers share."""

    def __init__(self, encoder: ConformerEncoder, features: Tensor, lengths: Tensor) -> None:
        steps = features.shape[1]
        for _ in encoder.subsampling.convs:
            lengths, steps = (lengths + 1) // 2, (steps + 1) // 2
        self.shape = Shape(lengths, steps, torch.is_grad_enabled())
        self.rotation = rotary(steps, encoder.head_size, features.device)
        self.share = encoder.subsampling.dropout.p if encoder.training else 0.0
        # Two each, because kernels are compiled once for pointers to multiples of 16 bytes and again for others.
        draws = torch.randint(2**31, (SEEDS * len(encoder.blocks) + 1, 2), device=features.device)
        self.seeds: Iterator[Tensor] = iter(draws)
        layers = [
            each for each in encoder.modules() if isinstance(each, nn.Linear) and each is not encoder.head
        ]
        dtype = torch.bfloat16 if features.is_cuda else torch.float32
        weights = [each.weight.detach() for each in layers]
        halves = [torch.empty_like(each, dtype=dtype) for each in weights]
        torch._foreach_copy_(halves, weights)  # one launch instead of one per layer
        self.halves = dict(zip(layers, halves, strict=True))

    def dropout(self) -> Dropout:
        """Dropout with a seed of its own."""
        return Dropout(self.share, next(self.seeds))

    def product(self, layer: nn.Module, x: Tensor) -> Tensor:
        """A linear layer without its bias."""
        assert isinstance(layer, nn.Linear)
        return Product.apply(x, layer.weight, self.halves[layer])

    def add_norm(
        self,
        x: Tensor | None,
        y: Tensor,
        bias: Tensor | None,
        norms: list[Any],
        dropout: Dropout,
        factor: float = 1.0,
    ) -> tuple[Tensor, Tensor]:
        """s = x + factor · dropout(y + bias) and norm(s), or with two norms, norm(s) and the norm of that."""
        adding = Adding(dropout, factor, norms[0].eps, self.shape.learning)
        parameters = [each for norm in norms for each in (norm.weight, norm.bias)]
        return AddNorm.apply(adding, x, y, bias, *parameters)

    def start(
        self, layer: ConvSubSampling, features: Tensor, lengths: Tensor, norm: Any
    ) -> tuple[Tensor, Tensor]:
        """Subsampled frames (B·T', C), and the first norm of them."""
        x = features.contiguous()
        for number, conv in enumerate(layer.convs):
            lengths = (lengths + 1) // 2
            x = (Conv if number else FirstConv).apply(lengths, x, conv.weight, conv.bias)
        y = self.product(layer.linear, x.flatten(2).flatten(0, 1))
        none = Dropout(0.0, lengths)
        y = self.add_norm(None, y, layer.linear.bias, [layer.norm], none)[1]
        return self.add_norm(None, y, None, [norm], self.dropout())

    def feed_forward(self, layer: Any, x: Tensor) -> Tensor:
        """A feed-forward layer after its norm, without the last bias and dropout."""
        hidden = Silu.apply(self.dropout(), self.product(layer[1], x), layer[1].bias)
        return self.product(layer[4], hidden)

    def attention(self, layer: SelfAttention, x: Tensor) -> Tensor:
        """Self-attention after its norm, without the last bias and dropout."""
        inputs = Rotate.apply(self.rotation, self.product(layer.inputs, x), layer.inputs.bias)
        return self.product(layer.output, Attention.apply(self.shape, layer.heads, inputs))

    def convolution(self, layer: ConvModule, x: Tensor) -> Tensor:
        """A convolution module after its norm, without the last bias and dropout."""
        gated = Gate.apply(self.shape, self.product(layer.gated, x), layer.gated.bias)
        conv, norm = layer.depthwise, layer.conv_norm
        mixed = Depthwise.apply(self.shape, norm.eps, gated, conv.weight, conv.bias, norm.weight, norm.bias)
        return self.product(layer.output, mixed)

    def block(
        self, layer: ConformerBlock, x: Tensor, normal: Tensor, following: list[Any]
    ) -> tuple[Tensor, Tensor]:
        """A block from its input and the first norm of it to the norms that follow."""
        before, after = cast(Any, layer.before), cast(Any, layer.after)
        y = self.feed_forward(before, normal)
        x, normal = self.add_norm(x, y, before[4].bias, [layer.attention.norm], self.dropout(), 0.5)
        y = self.attention(layer.attention, normal)
        x, normal = self.add_norm(x, y, layer.attention.output.bias, [layer.conv.norm], self.dropout())
        y = self.convolution(layer.conv, normal)
        x, normal = self.add_norm(x, y, layer.conv.output.bias, [after[0]], self.dropout())
        y = self.feed_forward(after, normal)
        return self.add_norm(x, y, after[4].bias, [layer.norm, *following], self.dropout(), 0.5)


def encodes(encoder: nn.Module, features: Tensor) -> bool:
    """Whether `encode` supports an encoder and its input."""
    if type(encoder) is not ConformerEncoder or features.requires_grad:
        return False
    width, _, taps = blocks_of(encoder)[0].conv.depthwise.weight.shape
    return width <= WIDEST and taps <= MOST_TAPS and encoder.head_size <= LARGEST_HEAD


def blocks_of(encoder: ConformerEncoder) -> list[ConformerBlock]:
    """The blocks, with their type."""
    return cast(list[ConformerBlock], list(encoder.blocks))


def encode(encoder: ConformerEncoder, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `ConformerEncoder.forward`: features (B, T, n_mels), lengths (B,) -> (B, T', output), (B,)."""
    run = Pass(encoder, features, lengths)
    blocks = blocks_of(encoder)
    firsts = [cast(nn.LayerNorm, each.before[0]) for each in blocks]
    x, normal = run.start(encoder.subsampling, features, lengths, firsts[0])
    for number, block in enumerate(blocks):
        x, normal = run.block(block, x, normal, firsts[number + 1 : number + 2])
    lengths, steps, _ = run.shape
    frames = encoder.head(normal.unflatten(0, (len(lengths), steps)))
    return frames.masked_fill(~time_mask(lengths, steps)[:, :, None], 0.0), lengths
