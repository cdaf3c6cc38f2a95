"""Log-mel features as in the paper, computed in batches on the device."""

import torch
from torch import Tensor, nn

from priormatch.data import SAMPLE_RATE

FRAME = 400  # 25 ms
STRIDE = 160  # 10 ms
FFT = 512
PRE_EMPHASIS = 0.97
MEL_FLOOR = 1.0


def mel_filters(n_mels: int) -> Tensor:
    """Return triangular filters with peak 1 on fractional FFT bins, 0 to 8,000 Hz: (257, n_mels)."""
    top = 2595 * torch.log10(torch.tensor(1 + SAMPLE_RATE / 2 / 700, dtype=torch.float64))
    mels = torch.linspace(0, 1, n_mels + 2, dtype=torch.float64) * top
    bins = 700 * (10 ** (mels / 2595) - 1) / (SAMPLE_RATE / 2) * (FFT // 2)
    left, peak, right = bins[:-2], bins[1:-1], bins[2:]
    each = torch.arange(FFT // 2 + 1, dtype=torch.float64)[:, None]
    return torch.minimum((each - left) / (peak - left), (right - each) / (right - peak)).clamp(min=0).float()


def frame_counts(samples: Tensor) -> Tensor:
    """Count the frames of waveforms: 1 + floor((n - 400) / 160), or 0 below 400 samples; (B,) -> (B,)."""
    return torch.where(samples >= FRAME, 1 + (samples - FRAME) // STRIDE, 0)


def time_mask(lengths: Tensor, longest: int) -> Tensor:
    """Mask that is True on frames before each length: (B,) -> (B, longest)."""
    return torch.arange(longest, device=lengths.device) < lengths[:, None]


class LogMel(nn.Module):
    """Map waveforms to normalized log-mel features.

    Each utterance is normalized by a single mean and standard deviation over all its values. Padding is excluded and
    set to zero.
    """

    window: Tensor
    filters: Tensor

    def __init__(self, n_mels: int) -> None:
        super().__init__()
        self.register_buffer("window", torch.hamming_window(FRAME, periodic=False), persistent=False)
        self.register_buffer("filters", mel_filters(n_mels), persistent=False)

    @torch.no_grad()
    def forward(self, waveforms: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
        """(B, N) in [-1, 1], (B,) -> features (B, T, n_mels), frames (B,)."""
        if waveforms.shape[1] < FRAME:
            waveforms = nn.functional.pad(waveforms, (0, FRAME - waveforms.shape[1]))
        spectrum = magnitude(torch.fft.rfft(self._windowed(waveforms.float() * 32768)))
        with torch.autocast(
            spectrum.device.type, enabled=False
        ):  # bfloat16 would keep only two or three digits
            features = (spectrum @ self.filters).clamp(min=MEL_FLOOR).log()
        lengths = frame_counts(samples)
        return normalize(features, lengths), lengths

    def _windowed(self, waveforms: Tensor) -> Tensor:
        """Frames with pre-emphasis and window, zero-padded to the FFT size: (B, N) -> (B, T, 512)."""
        frames = waveforms.unfold(1, FRAME, STRIDE)
        padded = frames.new_zeros(*frames.shape[:2], FFT)
        windowed = torch.mul(frames, self.window, out=padded[..., :FRAME])
        windowed[..., 1:].addcmul_(frames[..., :-1], self.window[1:], value=-PRE_EMPHASIS)
        windowed[..., 0] *= 1 - PRE_EMPHASIS  # the first sample is used as its own predecessor
        return padded


def magnitude(spectrum: Tensor) -> Tensor:
    """|z| of complex numbers (...); on a CPU, `abs` takes longer than the transform, to avoid overflows."""
    if spectrum.is_cuda:
        return spectrum.abs()
    return spectrum.real.square().addcmul_(spectrum.imag, spectrum.imag).sqrt_()


def normalize(features: Tensor, lengths: Tensor) -> Tensor:
    """Subtract each utterance's mean and divide by its standard deviation, padding excluded: (B, T, n_mels)."""
    mask = time_mask(lengths, features.shape[1])[:, :, None]
    count = (lengths * features.shape[2]).clamp(min=1)[:, None, None]
    mean = _total(features * mask) / count
    centered = (features - mean) * mask
    deviation = (_total(centered.square()) / count).sqrt()
    return centered / torch.where(deviation > 0, deviation, 1.0)


def _total(values: Tensor) -> Tensor:
    """Sum over time and mels: (B, T, n_mels) -> (B, 1, 1); two steps are faster on a GPU than one."""
    return values.sum(dim=2, keepdim=True).sum(dim=1, keepdim=True)
