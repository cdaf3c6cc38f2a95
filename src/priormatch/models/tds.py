"""Time-depth separable (TDS) encoder (Hannun et al., 2019) with the paper's architecture."""

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from priormatch.data.features import time_mask


class UtteranceNorm(nn.Module):
    """Normalizes an utterance over time, width and channels together, with one gain and one bias.

    Padding must be zero, is excluded from the statistics, and stays zero.
    """

    def __init__(self, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.gain = nn.Parameter(torch.ones(()))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, mask: Tensor, count: Tensor) -> Tensor:
        """x (B, T, F), mask (B, T, 1), count (B,) of valid values -> (B, T, F)."""
        total = x.sum(dim=(1, 2), dtype=torch.float32)
        squares = (x * x).sum(dim=(1, 2), dtype=torch.float32)
        mean = total / count
        variance = (squares / count - mean * mean).clamp(min=0)
        scale = self.gain * (variance + self.eps).rsqrt()
        shift = self.bias - mean * scale
        scale, shift = scale.to(x.dtype)[:, None, None], shift.to(x.dtype)[:, None, None]
        return (x * scale + shift) * mask


class TimeConv(nn.Module):
    """Convolution along time, shared by all mel bands: (B, T, W·C_in) -> (B, ceil(T / stride), W·C_out).

    The memory layout of features is (width, channel), channels last, so that no copy is needed between the convolution
    and the linear layers.
    """

    def __init__(self, width: int, channels_in: int, channels_out: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.width, self.channels_in = width, channels_in
        self.conv = nn.Conv2d(
            channels_in, channels_out, (kernel, 1), stride=(stride, 1), padding=(kernel // 2, 0)
        )
        initialize(self.conv.weight, self.conv.bias, fan_in=channels_in * kernel)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve; padding must be zero."""
        grid = x.unflatten(2, (self.width, self.channels_in)).permute(0, 3, 1, 2)
        return self.conv(grid).permute(0, 2, 3, 1).flatten(2)


class SubSampling(nn.Module):
    """Halves the frame rate and increases the channels: norm(dropout(relu(conv(x))))."""

    def __init__(self, width: int, channels_in: int, channels_out: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.conv = TimeConv(width, channels_in, channels_out, kernel, stride=2)
        self.dropout = nn.Dropout(dropout)
        self.norm = UtteranceNorm()

    def forward(self, x: Tensor, mask: Tensor, count: Tensor) -> Tensor:
        """x (B, T, F_in), mask (B, ceil(T / 2), 1) -> (B, ceil(T / 2), F_out)."""
        return self.norm(self.dropout(self.conv(x).relu()) * mask, mask, count)


class TDSBlock(nn.Module):
    """A convolution over time, then two linear layers over depth, each with a residual and followed by a norm."""

    def __init__(self, width: int, channels: int, kernel: int, dropout: float) -> None:
        super().__init__()
        size = width * channels
        self.conv = TimeConv(width, channels, channels, kernel)
        self.inner, self.outer = nn.Linear(size, size), nn.Linear(size, size)
        for linear in (self.inner, self.outer):
            initialize(linear.weight, linear.bias, fan_in=size)
        self.dropout = nn.Dropout(dropout)
        self.conv_norm, self.linear_norm = UtteranceNorm(), UtteranceNorm()

    def forward(self, x: Tensor, mask: Tensor, count: Tensor) -> Tensor:
        """(B, T, F) -> (B, T, F)."""
        y = self.conv_norm((x + self.dropout(self.conv(x).relu())) * mask, mask, count)
        z = self.outer(self.dropout(self.inner(y).relu()))
        return self.linear_norm((y + self.dropout(z)) * mask, mask, count)


class TDSEncoder(nn.Module):
    """Maps log-mel features to frames of keys and values, at an eighth of the frame rate with three stages."""

    def __init__(
        self,
        width: int,
        channels: Sequence[int],
        blocks: Sequence[int],
        output: int,
        kernel: int = 21,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.width, self.channels = width, list(channels)
        self.stages = nn.ModuleList()
        for before, after, depth in zip([1, *channels[:-1]], channels, blocks, strict=True):
            stage = nn.ModuleList([SubSampling(width, before, after, kernel, dropout)])
            stage.extend(TDSBlock(width, after, kernel, dropout) for _ in range(depth))
            self.stages.append(stage)
        self.head = nn.Linear(width * channels[-1], output)
        initialize(self.head.weight, self.head.bias, fan_in=width * channels[-1])

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """features (B, T, W), lengths (B,) -> encoded (B, T', output), lengths (B,)."""
        x = features
        for stage, channels in zip(self.stages, self.channels, strict=True):
            lengths = (lengths + 1) // 2
            mask = time_mask(lengths, (x.shape[1] + 1) // 2)[:, :, None].to(x.dtype)
            count = (lengths * self.width * channels).clamp(min=1).float()
            for layer in cast(nn.ModuleList, stage):
                x = layer(x, mask, count)
        return self.head(x), lengths


def initialize(weight: Tensor, bias: Tensor | None, fan_in: int) -> None:
    """Initialize uniformly: weights with variance 1 / fan_in, biases with a third of that."""
    with torch.no_grad():
        weight.uniform_(-math.sqrt(3 / fan_in), math.sqrt(3 / fan_in))
        if bias is not None:
            bias.uniform_(-math.sqrt(1 / fan_in), math.sqrt(1 / fan_in))
