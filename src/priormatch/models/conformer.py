"""Conformer encoder (Gulati et al., 2020) with rotary position embeddings (Su et al., 2021)."""

from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import sdpa_kernel

from priormatch.data.features import time_mask
from priormatch.models.decoder import SOUND_ATTENTION

EXPANSION = 4  # of the feed-forward layers
ROTARY_BASE = 10_000.0
HALVINGS = {4: 2, 8: 3}  # subsampling -> strided convolutions

Rotation = tuple[Tensor, Tensor]
"""Cosines and sines of the rotary angles, each (T, D / 2)."""


class ConvSubSampling(nn.Module):
    """Strided 3x3 convolutions over time and mel bands, each relu(conv(x)), then a linear layer and a layer norm.

    Without the norm, the frames are several times smaller than what the first blocks add to them, and training on ten
    hours stays on its first plateau for longer.
    """

    def __init__(self, n_mels: int, width: int, halvings: int, dropout: float) -> None:
        super().__init__()
        channels = width // 2  # with 80 mels the front end is then about 4 % of the default encoder
        self.convs = nn.ModuleList(
            nn.Conv2d(before, channels, 3, stride=2, padding=1)
            for before in [1, *[channels] * (halvings - 1)]
        )
        bands = -(-n_mels // 2**halvings)
        self.linear = nn.Linear(bands * channels, width)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """features (B, T, n_mels), zero after the end, lengths (B,) -> (B, T', width), lengths (B,).

        Every convolution rounds both the lengths and the padded length up: T' = ceil(T / 2).
        """
        x = features[:, None]
        for conv in self.convs:
            x, lengths = conv(x).relu(), (lengths + 1) // 2
            x = x.masked_fill(~time_mask(lengths, x.shape[2])[:, None, :, None], 0.0)
        return self.dropout(self.norm(self.linear(x.permute(0, 2, 3, 1).flatten(2)))), lengths


class SelfAttention(nn.Module):
    """Multi-head self-attention whose queries and keys are rotated by their positions.

    softmax((R_t q_t)·(R_s k_s) / sqrt(D)) v_s: the scores depend on the distance t - s alone.
    """

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.inputs = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, seen: Tensor, rotation: Rotation) -> Tensor:
        """x (B, T, width), seen (B, 1, 1, T) is True on the frames that may be attended to -> (B, T, width)."""
        inputs = self.inputs(self.norm(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        queries, keys = rotate(inputs[:2], rotation).unbind()
        with sdpa_kernel(SOUND_ATTENTION) if x.is_cuda else nullcontext():
            context = functional.scaled_dot_product_attention(queries, keys, inputs[2], attn_mask=seen)
        return self.dropout(self.output(context.transpose(1, 2).flatten(2)))


class ConvModule(nn.Module):
    """pointwise(silu(norm(depthwise(glu(pointwise(norm(x)))))))."""

    def __init__(self, width: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.gated = nn.Linear(width, 2 * width)
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        # The paper has a batch norm here. Its statistics would depend on the other utterances and on the padding, and
        # differ between training and decoding. A layer norm looks at one frame only.
        self.conv_norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        """x (B, T, width), padding (B, T, 1) is True after the end -> (B, T, width)."""
        gated = functional.glu(self.gated(self.norm(x)), dim=-1)
        gated = gated.masked_fill(padding, 0.0)  # as the convolution itself pads the longest utterance
        mixed = self.depthwise(gated.transpose(1, 2)).transpose(1, 2)
        return self.dropout(self.output(functional.silu(self.conv_norm(mixed))))


class ConformerBlock(nn.Module):
    """Half a feed-forward layer, attention, convolution, another half, all with residuals, and a layer norm.

    a = x + FFN(x) / 2;  b = a + MHSA(a);  c = b + Conv(b);  y = LayerNorm(c + FFN(c) / 2)
    """

    def __init__(self, width: int, heads: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.before = feed_forward(width, dropout)
        self.attention = SelfAttention(width, heads, dropout)
        self.conv = ConvModule(width, kernel, dropout)
        self.after = feed_forward(width, dropout)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, padding: Tensor, seen: Tensor, rotation: Rotation) -> Tensor:
        """x (B, T, width), padding (B, T, 1), seen (B, 1, 1, T) -> (B, T, width); padding is not kept at zero."""
        x = x + 0.5 * self.before(x)
        x = x + self.attention(x, seen, rotation)
        x = x + self.conv(x, padding)
        return self.norm(x + 0.5 * self.after(x))


class ConformerEncoder(nn.Module):
    """Maps log-mel features to frames at a fourth or an eighth of the frame rate.

    `output` is the size of a frame, `width` if not given.
    """

    def __init__(
        self,
        n_mels: int = 80,
        width: int = 256,
        layers: int = 12,
        heads: int = 4,
        kernel: int = 31,
        subsampling: int = 4,
        *,
        dropout: float = 0.1,
        output: int | None = None,
    ) -> None:
        super().__init__()
        require_sizes(width, heads, kernel, subsampling)
        self.head_size = width // heads
        self.subsampling = ConvSubSampling(n_mels, width, HALVINGS[subsampling], dropout)
        self.blocks = nn.ModuleList(ConformerBlock(width, heads, kernel, dropout) for _ in range(layers))
        self.head = nn.Identity() if output in (None, width) else nn.Linear(width, output)

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """features (B, T, n_mels), lengths (B,) -> frames (B, T', output), zero after the end, lengths (B,)."""
        x, lengths = self.subsampling(features, lengths)
        padding = ~time_mask(lengths, x.shape[1])[:, :, None]
        # An utterance without frames attends to its first padding frame: a softmax over nothing is NaN in some kernels.
        seen = time_mask(lengths.clamp(min=1), x.shape[1])[:, None, None, :]
        rotation = rotary(x.shape[1], self.head_size, x.device)
        for block in self.blocks:
            x = block(x, padding, seen, rotation)
        return self.head(x).masked_fill(padding, 0.0), lengths


def feed_forward(width: int, dropout: float) -> nn.Sequential:
    """Linear(silu(Linear(norm(x)))), with dropout: (..., width) -> (..., width)."""
    return nn.Sequential(
        nn.LayerNorm(width),
        nn.Linear(width, EXPANSION * width),
        nn.SiLU(),
        nn.Dropout(dropout),
        nn.Linear(EXPANSION * width, width),
        nn.Dropout(dropout),
    )


def rotary(frames: int, size: int, device: torch.device) -> Rotation:
    """Cosines and sines of the angles t · base^(-2i / D), in float32: each (T, D / 2).

    Computed in every forward pass, which takes no time compared with a block: any length works, and a recorded or
    exported model has no table to outgrow.
    """
    exponents = torch.arange(0, size, 2, device=device, dtype=torch.float32) / size
    angles = torch.arange(frames, device=device, dtype=torch.float32)[:, None] * ROTARY_BASE**-exponents
    return angles.cos(), angles.sin()


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Rotate each pair (x_i, x_{i + D/2}) by its angle at its position: (..., T, D) -> (..., T, D)."""
    cos, sin = (each.to(x.dtype) for each in rotation)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def require_sizes(width: int, heads: int, kernel: int, subsampling: int) -> None:
    """Raise a ValueError for sizes that no encoder can have."""
    if width % (2 * heads):
        raise ValueError(
            f"width {width} with {heads} heads: rotary embeddings need an even size per head; "
            f"choose a width divisible by {2 * heads}"
        )
    if kernel % 2 == 0:
        raise ValueError(f"kernel {kernel}: must be odd, to be centered on its frame")
    if subsampling not in HALVINGS:
        raise ValueError(f"subsampling {subsampling}: must be 4 or 8")
