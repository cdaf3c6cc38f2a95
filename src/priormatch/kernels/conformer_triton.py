"""The Conformer encoder as fused GPU kernels, in bfloat16; `models/conformer.py` is the reference implementation.

What blocks add to, the residual stream, is kept in float32, as are all sums. Between matrix products everything is
fused (`conformer_layers.py`): bias, dropout, residual and norm; bias, SiLU and dropout; bias and rotation; bias, gate
and mask; convolution, norm and SiLU.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
import triton
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from priormatch.data.features import time_mask
from priormatch.kernels.conformer_kernels import (
    first_conv_gradient_kernel,
    first_conv_kernel,
    rectify_mask_backward_kernel,
    rectify_mask_kernel,
)
from priormatch.kernels.conformer_layers import (
    TILE,
    WIDEST,
    Adding,
    AddNorm,
    Attention,
    Depthwise,
    Gate,
    Product,
    Rotate,
    Shape,
    Silu,
    columns_of,
    precision_on,
    programs_for,
    sum_of_parts,
)
from priormatch.kernels.tds_triton import Dropout
from priormatch.models.conformer import (
    ConformerBlock,
    ConformerEncoder,
    ConvModule,
    ConvSubSampling,
    SelfAttention,
    rotary,
)

LARGEST_HEAD = 128  # features
MOST_TAPS = 255  # of the depthwise convolution
SEEDS = 6  # of dropout in a block


@contextmanager
def same_bits() -> Iterator[None]:
    """Let cuDNN use only algorithms that add in a fixed order."""
    before, torch.backends.cudnn.deterministic = torch.backends.cudnn.deterministic, True
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic = before


class FirstConv(Function):
    """relu(conv(x) + bias) of one channel, zero after each utterance's end; x has no gradient."""

    @staticmethod
    def forward(ctx: Any, lengths: Tensor, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """lengths of the result, x (B, T, F), weight (C, 1, 3, 3) -> (B, T', F', C)."""
        batch, steps, bands = x.shape
        channels = len(weight)
        size = batch, (steps + 1) // 2, (bands + 1) // 2, channels
        out = x.new_empty(size, dtype=precision_on(x.device))
        places, columns = out.numel() // channels, columns_of(channels)
        height, taps = max(4 * TILE // columns, 16), weight.flatten(1).t().contiguous()
        first_conv_kernel[(triton.cdiv(places, height),)](
            x, taps, bias, lengths, out, places, steps, bands, channels, height, columns, num_warps=4
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
        programs = programs_for(places, height, 2)
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
        programs = programs_for(rows, height, 8)
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
        dtype = precision_on(features.device)
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
