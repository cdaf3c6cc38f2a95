"""The gated convolutional language model (Dauphin et al., 2017); GCNN-14B is the paper's."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize

from priormatch.config import ConvLMSettings
from priormatch.models.decoder import class_logits


class CausalConv(nn.Module):
    """A convolution over the present and the kernel - 1 positions before it, as a product with their windows."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.kernel = kernel
        self.conv = nn.Conv1d(channels_in, channels_out, kernel)
        nn.init.normal_(self.conv.weight, std=math.sqrt(4 * (1 - dropout) / (kernel * channels_in)))
        nn.init.zeros_(self.conv.bias)  # type: ignore[arg-type]
        parametrizations.weight_norm(self.conv)

    def forward(self, x: Tensor, before: Tensor | None = None) -> Tensor:
        """Convolve with zeros before the first position: (B, U, C_in) -> (B, U, C_out).

        Or, where `before` (N, kernel) names for each of N positions the ones it sees, itself the last, and -1
        stands for none: (N, C_in) -> (N, C_out).
        """
        weight = self.conv.weight
        if self.kernel == 1:
            return functional.linear(x, weight[:, :, 0], self.conv.bias)
        if before is None:
            padded = functional.pad(x, (0, 0, self.kernel - 1, 0))
            windows = padded.unfold(1, self.kernel, 1).transpose(2, 3)
        else:
            windows = functional.pad(x, (0, 0, 0, 1))[before[:, -self.kernel :]]  # the last is zero
        return functional.linear(windows.flatten(-2), weight.transpose(1, 2).flatten(1), self.conv.bias)


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

    def forward(self, x: Tensor, before: Tensor | None = None) -> Tensor:
        """(B, U, C_in) -> (B, U, C_out), or (N, C_in) -> (N, C_out) as in `CausalConv`."""
        y = x
        for layer in self.layers:
            y = functional.glu(layer(self.dropout(y), before), dim=-1)
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
        self.blocks = nn.ModuleList([GatedBlock([width, width], [kernel], dropout)])
        for inner, outer, count in settings.bottlenecks:
            for _ in range(count):
                self.blocks.append(GatedBlock([width, inner, inner, outer], [1, kernel, 1], dropout))
                width = outer
        self.head = normed_linear(width, settings.head, dropout)
        self.output = normed_linear(settings.head, classes, dropout)

    def forward(self, labels: Tensor) -> Tensor:
        """Logits of each label given those before it: labels (B, U) -> (B, U, classes)."""
        begin = torch.full_like(labels[:, :1], self.eos)
        return self.next_logits(torch.cat([begin, labels[:, :-1]], dim=1))

    def next_logits(self, inputs: Tensor, before: Tensor | None = None) -> Tensor:
        """Logits of what follows each input: (B, U) -> (B, U, classes), or packed, (N,) -> (N, classes)."""
        x = self.narrow(self.dropout(self.embedding(inputs)))
        for block in self.blocks:
            x = block(x, before)
        return class_logits(self.output, self.dropout(self.head(x)))

    def fuse(self) -> None:
        """Compute the normed weights once and for all; the model can then be used but not trained."""
        for module in list(self.modules()):
            if isinstance(module, nn.Linear | nn.Conv1d) and parametrize.is_parametrized(module, "weight"):
                parametrize.remove_parametrizations(module, "weight")
            if isinstance(module, nn.Conv1d):  # laid out as `CausalConv` reads it
                module.weight.data = module.weight.data.transpose(1, 2).contiguous().transpose(1, 2)
        self.eval().requires_grad_(False)


def normed_linear(channels_in: int, channels_out: int, dropout: float) -> nn.Linear:
    """A linear layer with weight normalisation."""
    linear = nn.Linear(channels_in, channels_out)
    nn.init.normal_(linear.weight, std=math.sqrt((1 - dropout) / channels_in))
    nn.init.zeros_(linear.bias)
    return parametrizations.weight_norm(linear)
