"""Log-mel features as the paper's recogniser saw them, computed in batches on the device."""

import torch
from torch import Tensor, nn

from priormatch.data import SAMPLE_RATE

FRAME = 400  # 25 ms
STRIDE = 160  # 10 ms
FFT = 512
PRE_EMPHASIS = 0.97
MEL_FLOOR = 1.0


def mel_filters(n_mels: int) -> Tensor:
    """Triangular filters with peak 1 on fractional FFT bins, 0 to 8,000 Hz: (257, n_mels)."""
    top = 2595 * torch.log10(torch.tensor(1 + SAMPLE_RATE / 2 / 700, dtype=torch.float64))
    mels = torch.linspace(0, 1, n_mels + 2, dtype=torch.float64) * top
    bins = 700 * (10 ** (mels / 2595) - 1) / (SAMPLE_RATE / 2) * (FFT // 2)
    left, peak, right = bins[:-2], bins[1:-1], bins[2:]
    each = torch.arange(FFT // 2 + 1, dtype=torch.float64)[:, None]
    return torch.minimum((each - left) / (peak - left), (right - each) / (right - peak)).clamp(min=0).float()


def frame_counts(samples: Tensor) -> Tensor:
    """Frames of a waveform: 1 + floor((n - 400) / 160), and none below 400 samples."""
    return torch.where(samples >= FRAME, 1 + (samples - FRAME) // STRIDE, 0)


def time_mask(lengths: Tensor, longest: int) -> Tensor:
    """True on the frames that exist: (B,) -> (B, longest)."""
    return torch.arange(longest, device=lengths.device) < lengths[:, None]


class LogMel(nn.Module):
    """Waveforms to normalised log-mel features.

    Each utterance is normalised by the one mean and the one standard deviation of all its values; padding takes
    no part and comes out as zero.
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
        frames = (waveforms.float() * 32768).unfold(1, FRAME, STRIDE)
        emphasised = torch.cat(
            [frames[..., :1] * (1 - PRE_EMPHASIS), frames[..., 1:] - PRE_EMPHASIS * frames[..., :-1]], dim=-1
        )
        spectrum = torch.view_as_real(torch.fft.rfft(emphasised * self.window, n=FFT)).square().sum(-1).sqrt()
        with torch.autocast(spectrum.device.type, enabled=False):  # bfloat16 would leave two or three digits
            features = (spectrum @ self.filters).clamp(min=MEL_FLOOR).log()
        lengths = frame_counts(samples)
        return normalise(features, lengths), lengths


def normalise(features: Tensor, lengths: Tensor) -> Tensor:
    """Subtract each utterance's mean and divide by its standard deviation, over the frames that exist."""
    mask = time_mask(lengths, features.shape[1])[:, :, None]
    count = (lengths * features.shape[2]).clamp(min=1)[:, None, None]
    mean = (features * mask).sum(dim=(1, 2), keepdim=True) / count
    centred = (features - mean) * mask
    deviation = (centred.square().sum(dim=(1, 2), keepdim=True) / count).sqrt()
    return centred / torch.where(deviation > 0, deviation, 1.0)
