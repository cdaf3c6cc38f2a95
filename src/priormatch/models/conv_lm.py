"""The gated convolutional language model (Dauphin et al., 2017); GCNN-14B is the paper's."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize

from priormatch.config import ConvLMSettings
from priormatch.models.decoder import class_logits

Windows = Callable[[Tensor, int], Tensor]
"""(inputs of a convolution (..., C), its kernel K) -> what it sees at each position (..., K·C), the present last."""


def in_sequences(x: Tensor, kernel: int) -> Tensor:
    """Windows into sequences, with zeros before the first position: (B, U, C) -> (B, U, K·C)."""
    padded = functional.pad(x, (0, 0, kernel - 1, 0))
    return padded.unfold(1, kernel, 1).transpose(2, 3).flatten(-2)


def in_tree(before: Tensor) -> Windows:
    """Windows for N positions of which `before` (N, K) names the ones each sees, itself the last, -1 for none."""

    def windows(x: Tensor, kernel: int) -> Tensor:
        return functional.pad(x, (0, 0, 0, 1))[before[:, -kernel:]].flatten(-2)  # the last is zero

    return windows


class OneMore:
    """Windows for one more position, of which the part before it comes from a cache (..., S).

    The cache holds the last K - 1 inputs of every convolution, one convolution after the other; `kept` is what the
    next position needs of them.
    """

    def __init__(self, cache: Tensor) -> None:
        self.cache, self.used, self.kept = cache, 0, list[Tensor]()

    def __call__(self, x: Tensor, kernel: int) -> Tensor:
        """(..., C) -> (..., K·C)"""
        begin, self.used = self.used, self.used + (kernel - 1) * x.shape[-1]
        window = torch.cat([self.cache[..., begin : self.used], x], dim=-1)
        self.kept.append(window[..., x.shape[-1] :])
        return window


class CausalConv(nn.Module):
    """A convolution over the present and the kernel - 1 positions before it, as a product with their windows."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.kernel = kernel
        self.conv = nn.Conv1d(channels_in, channels_out, kernel)
        nn.init.normal_(self.conv.weight, std=math.sqrt(4 * (1 - dropout) / (kernel * channels_in)))
        nn.init.zeros_(self.conv.bias)  # type: ignore[arg-type]
        parametrizations.weight_norm(self.conv)

    def forward(self, x: Tensor, windows: Windows = in_sequences) -> Tensor:
        """(..., C_in) -> (..., C_out)"""
        weight = self.conv.weight
        if self.kernel == 1:
            return functional.linear(x, weight[:, :, 0], self.conv.bias)
        weight = weight.transpose(1, 2).flatten(1)
        return functional.linear(windows(x, self.kernel), weight, self.conv.bias)


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

    def forward(self, x: Tensor, windows: Windows = in_sequences) -> Tensor:
        """(..., C_in) -> (..., C_out)"""
        y = x
        for layer in self.layers:
            y = functional.glu(layer(self.dropout(y), windows), dim=-1)
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

    @property
    def reach(self) -> int:
        """How many inputs a prediction depends on: the last one and those before it; 57 for GCNN-14B."""
        return 1 + sum(each.kernel - 1 for each in self.modules() if isinstance(each, CausalConv))

    def forward(self, labels: Tensor) -> Tensor:
        """Logits of each label given those before it: labels (B, U) -> (B, U, classes)."""
        begin = torch.full_like(labels[:, :1], self.eos)
        return self.next_logits(torch.cat([begin, labels[:, :-1]], dim=1))

    def next_logits(self, inputs: Tensor, before: Tensor | None = None) -> Tensor:
        """Logits of what follows each input: (B, U) -> (B, U, classes).

        Or, where `before` (N, kernel) names the inputs that each of N sees (see `in_tree`): (N,) -> (N, classes).
        """
        return self._logits(inputs, in_sequences if before is None else in_tree(before))

    def _logits(self, inputs: Tensor, windows: Windows) -> Tensor:
        x = self.narrow(self.dropout(self.embedding(inputs)))
        for block in self.blocks:
            x = block(x, windows)
        return class_logits(self.output, self.dropout(self.head(x)))

    def first_cache(self, batch: int, beam: int) -> Tensor:
        """What `step` is given at the beginning of sentences: (B, k, S)."""
        convolutions = [each for each in self.modules() if isinstance(each, CausalConv)]
        size = sum((each.kernel - 1) * each.conv.in_channels for each in convolutions)
        return self.embedding.weight.new_zeros(batch, beam, size)

    @torch.no_grad()
    def step(self, cache: Tensor, classes: Tensor | None) -> tuple[Tensor, Tensor]:
        """One position of every open hypothesis, as a search calls it.

        cache (B, k, S), classes (B, k) the ones chosen last, None at the start -> log p (B, k, classes), cache.
        """
        if classes is None:
            classes = torch.full(cache.shape[:-1], self.eos, device=cache.device)
        windows = OneMore(cache)
        # As in `Prior.score_tree`.
        with torch.autocast(cache.device.type, torch.float16, enabled=cache.is_cuda):
            logits = self._logits(classes, windows)
        return logits.log_softmax(dim=-1, dtype=torch.float32), torch.cat(windows.kept, dim=-1)

    def fuse(self) -> None:
        """Compute the normed weights once and for all; the model can then be used but not trained."""
        for module in list(self.modules()):
            if isinstance(module, nn.Linear | nn.Conv1d) and parametrize.is_parametrized(module, "weight"):
                parametrize.remove_parametrizations(module, "weight")
            if isinstance(module, nn.Conv1d):  # laid out as `CausalConv` reads it
                module.weight.data = module.weight.data.transpose(1, 2).contiguous().transpose(1, 2)
        self.eval().requires_grad_(False)


def normed_linear(channels_in: int, channels_out: int, dropout: float) -> nn.Linear:
    """A linear layer with weight normalization."""
    linear = nn.Linear(channels_in, channels_out)
    nn.init.normal_(linear.weight, std=math.sqrt((1 - dropout) / channels_in))
    nn.init.zeros_(linear.bias)
    return parametrizations.weight_norm(linear)
