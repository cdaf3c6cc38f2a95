"""The inputs of Hugging Face recognizers: each model's own features, on the device where that is possible."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from priormatch.data import SAMPLE_RATE
from priormatch.data.features import time_mask

SHORTEST = SAMPLE_RATE // 10
"""Samples; shorter audio is taken to be silent up to there, because convolutions need a few frames."""
TINY = 1e-7  # added to variances, as in transformers


class Inputs(NamedTuple):
    """The input of a network: values (B, N) or (B, N, D), and how many of N each utterance has (B,).

    Whisper has values (B, D, N) and no lengths: its audio is padded with silence that it takes for audio.
    """

    values: Tensor
    lengths: Tensor | None

    @property
    def mask(self) -> Tensor | None:
        """The valid inputs (B, N), 1 or 0; None if all are."""
        if self.lengths is None or bool((self.lengths == self.values.shape[1]).all()):
            return None
        return time_mask(self.lengths, self.values.shape[1]).long()


def at_least(waveforms: Tensor, samples: Tensor, shortest: int = SHORTEST) -> tuple[Tensor, Tensor]:
    """Waveforms (B, N) without needless padding, and their lengths (B,), both of at least `shortest` samples."""
    samples = samples.clamp(min=shortest)
    longest = int(samples.max())
    return functional.pad(waveforms, (0, max(longest - waveforms.shape[1], 0)))[:, :longest], samples


class WaveformInputs(nn.Module):
    """Waveforms, scaled to mean 0 and variance 1 if the model expects that (`Wav2Vec2FeatureExtractor`)."""

    def __init__(self, own: Any) -> None:
        super().__init__()
        self.own = own

    @torch.no_grad()
    def forward(self, waveforms: Tensor, samples: Tensor) -> Inputs:
        """(B, N) in [-1, 1], (B,) -> values (B, N)."""
        waveforms, samples = at_least(waveforms.float(), samples)
        mask = time_mask(samples, waveforms.shape[1])
        if self.own.do_normalize:
            count = samples[:, None]
            mean = (waveforms * mask).sum(dim=1, keepdim=True) / count
            centered = waveforms - mean
            variance = (centered.square() * mask).sum(dim=1, keepdim=True) / count
            waveforms = centered / (variance + TINY).sqrt()
        return Inputs(waveforms.masked_fill(~mask, self.own.padding_value), samples)


class WhisperInputs(nn.Module):
    """Log-mel features of a window of fixed length; longer audio is cut off (`WhisperFeatureExtractor`)."""

    window: Tensor
    filters: Tensor

    def __init__(self, own: Any) -> None:
        super().__init__()
        self.own = own
        self.register_buffer("window", torch.hann_window(own.n_fft), persistent=False)
        filters = torch.from_numpy(own.mel_filters).float()
        self.register_buffer("filters", filters.T.contiguous(), persistent=False)

    @torch.no_grad()
    def forward(self, waveforms: Tensor, samples: Tensor) -> Inputs:
        """(B, N) in [-1, 1], (B,) -> values (B, n_mels, T)."""
        waveforms = waveforms.float() * time_mask(samples, waveforms.shape[1])
        whole = functional.pad(waveforms, (0, max(self.own.n_samples - waveforms.shape[1], 0)))
        with torch.autocast(waveforms.device.type, enabled=False):
            spectrum = torch.stft(
                whole[:, : self.own.n_samples],
                self.own.n_fft,
                self.own.hop_length,
                window=self.window,
                return_complex=True,
            )
            mels = self.filters @ spectrum[..., :-1].abs().square()
        levels = mels.clamp(min=1e-10).log10()
        levels = torch.maximum(levels, levels.amax(dim=(1, 2), keepdim=True) - 8.0)
        return Inputs((levels + 4.0) / 4.0, None)


class OtherInputs(nn.Module):
    """The features of any other extractor, computed by it on the CPU."""

    def __init__(self, own: Any) -> None:
        super().__init__()
        self.own = own

    @torch.no_grad()
    def forward(self, waveforms: Tensor, samples: Tensor) -> Inputs:
        """(B, N) in [-1, 1], (B,) -> values (B, T, D)."""
        waveforms, samples = at_least(waveforms, samples)
        rows = [
            row[:count].float().cpu().numpy() for row, count in zip(waveforms, samples.tolist(), strict=True)
        ]
        found = self.own(
            rows,
            sampling_rate=SAMPLE_RATE,
            padding=True,
            return_attention_mask=True,
            return_tensors="pt",
        )
        values = found[self.own.model_input_names[0]].to(waveforms.device)
        return Inputs(values, found["attention_mask"].sum(dim=1).to(waveforms.device))


def inputs_of(own: Any) -> nn.Module:
    """The inputs that a feature extractor of transformers computes."""
    name = type(own).__name__
    if name == "Wav2Vec2FeatureExtractor":
        return WaveformInputs(own)
    if name == "WhisperFeatureExtractor" and own.dither == 0:
        return WhisperInputs(own)
    return OtherInputs(own)


def longest_of(own: Any) -> float:
    """The seconds of audio that a model can take; infinite if there is no limit."""
    return float(own.chunk_length) if type(own).__name__ == "WhisperFeatureExtractor" else math.inf


class MaskedGroupNorm(nn.GroupNorm):
    """Group norm over the valid frames of each utterance, so that padding changes nothing.

    `samples` (B,) are the lengths of the waveforms before the convolution in front of it; None if none is padded.
    """

    def __init__(self, norm: nn.GroupNorm, conv: nn.Conv1d) -> None:
        super().__init__(norm.num_groups, norm.num_channels, norm.eps, norm.affine)
        self.weight, self.bias = norm.weight, norm.bias
        self.kernel, self.stride = conv.kernel_size[0], conv.stride[0]
        self.samples: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, T) -> (B, C, T)"""
        if self.samples is None:
            return super().forward(x)
        frames = (self.samples - self.kernel) // self.stride + 1
        mask = time_mask(frames, x.shape[2])[:, None, None]
        grouped = x.float().unflatten(1, (self.num_groups, -1))
        count = (frames * grouped.shape[2])[:, None, None, None]
        mean = (grouped * mask).sum(dim=(2, 3), keepdim=True) / count
        centered = (grouped - mean) * mask
        variance = centered.square().sum(dim=(2, 3), keepdim=True) / count
        normal = (centered * (variance + self.eps).rsqrt()).flatten(1, 2)
        return (normal * self.weight[:, None] + self.bias[:, None]).to(x.dtype)


def mask_group_norms(network: nn.Module) -> list[MaskedGroupNorm]:
    """Replace the group norm after the first convolution of a waveform encoder; return the new modules."""
    found = []
    for module in [*network.modules()]:
        for norm, conv in (("layer_norm", "conv"), ("groupnorm", "conv1")):
            one, other = getattr(module, norm, None), getattr(module, conv, None)
            if isinstance(one, nn.GroupNorm) and isinstance(other, nn.Conv1d):
                found.append(MaskedGroupNorm(one, other))
                setattr(module, norm, found[-1])
    return found
