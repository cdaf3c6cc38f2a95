"""The banded matrix of a convolution, against the convolution."""

import pytest
import torch
from torch.nn import functional

from priormatch.kernels.band import Band, backward_band, forward_band


def banded_product(
    x: torch.Tensor, weight: torch.Tensor, band: Band, steps_out: int, transposed: bool
) -> torch.Tensor:
    """The product written out: x (T, C_in), weight (C_out, C_in, taps) -> (steps_out, C_out)."""
    if transposed:
        weight = weight.transpose(0, 1)
    out = x.new_zeros(steps_out, weight.shape[0])
    for t in range(steps_out):
        block, p = divmod(t, band.outputs)
        for q in range(band.inputs):
            source = block * band.stride + band.offset + q
            tap = band.by_input * q + band.by_output * p + band.shift
            if 0 <= source < len(x) and 0 <= tap < weight.shape[2]:
                out[t] += weight[:, :, tap] @ x[source]
    return out


@pytest.mark.parametrize("steps", [1, 2, 7, 30])
@pytest.mark.parametrize(("kernel", "stride"), [(21, 1), (21, 2), (9, 1), (9, 2), (1, 1), (3, 2), (5, 3)])
@pytest.mark.parametrize(("channels_in", "channels_out"), [(1, 10), (40, 30), (3, 150)])
def test_it_gives_the_convolution_and_its_gradient(
    steps: int, kernel: int, stride: int, channels_in: int, channels_out: int
) -> None:
    torch.manual_seed(steps + kernel)
    x = torch.randn(steps, channels_in, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(channels_out, channels_in, kernel, dtype=torch.float64)
    expected = functional.conv1d(x.t()[None], weight, stride=stride, padding=kernel // 2)[0].t()
    band = forward_band(kernel, stride, channels_out)
    torch.testing.assert_close(
        banded_product(x.detach(), weight, band, len(expected), False), expected.detach()
    )
    slope = torch.randn_like(expected)
    (gradient,) = torch.autograd.grad(expected, x, slope)
    band = backward_band(kernel, stride, channels_in)
    torch.testing.assert_close(banded_product(slope, weight, band, steps, True), gradient)


@pytest.mark.parametrize("channels", [1, 6, 10, 14, 16, 128, 200])
def test_its_columns_suit_a_tile(channels: int) -> None:
    assert forward_band(21, 1, channels).outputs * channels <= max(128, channels)
    assert backward_band(21, 2, channels).outputs * channels <= max(128, 2 * channels)
