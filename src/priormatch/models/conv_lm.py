"""Gated convolutional language model (Dauphin et al., 2017); the paper uses GCNN-14B."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize

from priormatch.config import ConvLMSettings
from priormatch.models.decoder import class_logits

Windows = Callable[[Tensor, int], Tensor]
"""(inputs of a convolution (..., C), its kernel K) -> its window at each position (..., K·C), newest input last."""


def in_sequences(x: Tensor, kernel: int) -> Tensor:
    """Windows over sequences, zero-padded before the first position: (B, U, C) -> (B, U, K·C)."""
    padded = functional.pad(x, (0, 0, kernel - 1, 0))
    return padded.unfold(1, kernel, 1).transpose(2, 3).flatten(-2)


def in_tree(before: Tensor) -> Windows:
    """Windows for N tree positions; `before` (N, K) lists the positions in each window, itself last, -1 for none."""

    def windows(x: Tensor, kernel: int) -> Tensor:
        return functional.pad(x, (0, 0, 0, 1))[before[:, -kernel:]].flatten(-2)  # the padding row is zero

    return windows


class OneMore:
    """Windows for the next position; the earlier inputs come from a cache (..., S).

    The cache holds the last K - 1 inputs of every convolution, one convolution after the other. `kept` collects the
    inputs that the following position needs.
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
    """Causal convolution over the current and the kernel - 1 previous positions, computed as a product with windows."""

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
    """Gated convolutions with one residual connection around all of them: sqrt(1/2) (skip(x) + layers(x)).

    A bottleneck has three, of which the middle one spans time; the model's first block has just one.
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
    """log p(y_u | y_<u); the end-of-sentence class also marks the beginning."""

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
        """Receptive field: the number of inputs that a prediction depends on; 57 for GCNN-14B."""
        return 1 + sum(each.kernel - 1 for each in self.modules() if isinstance(each, CausalConv))

    def forward(self, labels: Tensor) -> Tensor:
        """Logits of each label given the labels before it: labels (B, U) -> (B, U, classes)."""
        begin = torch.full_like(labels[:, :1], self.eos)
        return self.next_logits(torch.cat([begin, labels[:, :-1]], dim=1))

    def next_logits(self, inputs: Tensor, before: Tensor | None = None) -> Tensor:
        """Logits of the class after each input: (B, U) -> (B, U, classes).

        With `before` (N, kernel), the window of each of N tree positions (see `in_tree`): (N,) -> (N, classes).
        """
        return self._logits(inputs, in_sequences if before is None else in_tree(before))

    def _logits(self, inputs: Tensor, windows: Windows) -> Tensor:
        x = self.narrow(self.dropout(self.embedding(inputs)))
        for block in self.blocks:
            x = block(x, windows)
        return class_logits(self.output, self.dropout(self.head(x)))

    def first_cache(self, batch: int, beam: int) -> Tensor:
        """The cache for the first `step` of a sentence: (B, k, S)."""
        convolutions = [each for each in self.modules() if isinstance(each, CausalConv)]
        size = sum((each.kernel - 1) * each.conv.in_channels for each in convolutions)
        return self.embedding.weight.new_zeros(batch, beam, size)

    @torch.no_grad()
    def step(self, cache: Tensor, classes: Tensor | None) -> tuple[Tensor, Tensor]:
        """Compute one position of every open hypothesis, for beam search.

        cache (B, k, S), last chosen classes (B, k) or None at the start -> log p (B, k, classes), cache.
        """
        if classes is None:
            classes = torch.full(cache.shape[:-1], self.eos, device=cache.device)
        windows = OneMore(cache)
        # float16 for the same reason as in `score_tree`
        with torch.autocast(cache.device.type, torch.float16, enabled=cache.is_cuda):
            logits = self._logits(classes, windows)
        return logits.log_softmax(dim=-1, dtype=torch.float32), torch.cat(windows.kept, dim=-1)

    def fuse(self) -> None:
        """Replace weight normalization by fixed weights, for inference only."""
        for module in list(self.modules()):
            if isinstance(module, nn.Linear | nn.Conv1d) and parametrize.is_parametrized(module, "weight"):
                parametrize.remove_parametrizations(module, "weight")
            if isinstance(module, nn.Conv1d):  # memory layout that `CausalConv` reads
                module.weight.data = module.weight.data.transpose(1, 2).contiguous().transpose(1, 2)
        self.eval().requires_grad_(False)


def normed_linear(channels_in: int, channels_out: int, dropout: float) -> nn.Linear:
    """A linear layer with weight normalization."""
    linear = nn.Linear(channels_in, channels_out)
    nn.init.normal_(linear.weight, std=math.sqrt((1 - dropout) / channels_in))
    nn.init.zeros_(linear.bias)
    return parametrizations.weight_norm(linear)
