"""The gated convolutional language model (Dauphin et al., 2017); GCNN-14B is the paper's."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize

from priormatch.config import ConvLMSettings


class CausalConv(nn.Module):
    """A convolution over the present and the kernel - 1 positions before it: (B, U, C_in) -> (B, U, C_out)."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.kernel = kernel
        self.conv = nn.Conv1d(channels_in, channels_out, kernel)
        nn.init.normal_(self.conv.weight, std=math.sqrt(4 * (1 - dropout) / (kernel * channels_in)))
        nn.init.zeros_(self.conv.bias)  # type: ignore[arg-type]
        parametrizations.weight_norm(self.conv)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve with zeros before the first position."""
        if self.kernel == 1:
            return functional.linear(x, self.conv.weight[:, :, 0], self.conv.bias)
        padded = functional.pad(x.transpose(1, 2), (self.kernel - 1, 0))
        return self.conv(padded).transpose(1, 2)


class GatedBlock(nn.Module):
    """Gated convolutions with a residual around them all: sqrt(1/2) (skip(x) + layers(x)).

    A bottleneck is three of them, the middle one wide in time; the first block of the model is just one.
    """

    def __init__(self, widths: list[int], kernels: list[int], dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            CausalConv(before, 2 * after, kernel, dropout)
            for before, after, kernel in zip(widths[:-1], widths[1:], kernels, strict=True)
        )
        self.skip = (
            normed_linear(widths[0], widths[-1], dropout) if widths[0] != widths[-1] else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, U, C_in) -> (B, U, C_out)."""
        y = x
        for layer in self.layers:
            y = functional.glu(layer(self.dropout(y)), dim=-1)
        return (self.skip(x) + y) * math.sqrt(0.5)


class ConvLM(nn.Module):
    """log p(y_u | y_<u); the end of sentence stands for the beginning too."""

    def __init__(self, settings: ConvLMSettings, classes: int) -> None:
        super().__init__()
        dropout, kernel = settings.dropout, settings.kernel
        self.eos = classes - 1
        self.embedding = nn.Embedding(classes, settings.embedding)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.dropout = nn.Dropout(dropout)
        self.narrow = normed_linear(settings.embedding, settings.width, dropout)
        width = settings.width
        self.blocks = nn.Sequential(GatedBlock([width, width], [kernel], dropout))
        for inner, outer, count in settings.bottlenecks:
            for _ in range(count):
                self.blocks.append(GatedBlock([width, inner, inner, outer], [1, kernel, 1], dropout))
                width = outer
        self.head = normed_linear(width, settings.head, dropout)
        self.output = normed_linear(settings.head, classes, dropout)

    def forward(self, labels: Tensor) -> Tensor:
        """Logits of each label given those before it: labels (B, U) -> (B, U, classes)."""
        begin = torch.full_like(labels[:, :1], self.eos)
        x = self.narrow(self.dropout(self.embedding(torch.cat([begin, labels[:, :-1]], dim=1))))
        return self.output(self.dropout(self.head(self.blocks(x))))

    def fuse(self) -> None:
        """Compute the normed weights once and for all; the model can then be used but not trained."""
        for module in list(self.modules()):
            if isinstance(module, nn.Linear | nn.Conv1d) and parametrize.is_parametrized(module, "weight"):
                parametrize.remove_parametrizations(module, "weight")
        self.eval().requires_grad_(False)


def normed_linear(channels_in: int, channels_out: int, dropout: float) -> nn.Module:
    """A linear layer with weight normalisation."""
    linear = nn.Linear(channels_in, channels_out)
    nn.init.normal_(linear.weight, std=math.sqrt((1 - dropout) / channels_in))
    nn.init.zeros_(linear.bias)
    return parametrizations.weight_norm(linear)
