"""Geometry of a convolution over time, computed as a product with a banded matrix.

P neighboring outputs of a convolution are linear in the Q inputs they depend on. Rows of Q·C_in values times a matrix
of (Q·C_in, P·C_out), with the kernel along its diagonals, give rows of P·C_out. This shape suits tensor cores; a
convolution with ten channels does not. The input gradient is such a product too, with another band.
"""

from typing import NamedTuple

WIDEST = 128  # columns of a banded matrix


class Band(NamedTuple):
    """A block of `outputs` steps computed from `inputs` steps: block i starts at input i·stride + offset.

    Output p weights input q with kernel tap by_input·q + by_output·p + shift, if that tap exists.
    """

    outputs: int
    inputs: int
    stride: int
    offset: int
    by_input: int
    by_output: int
    shift: int


def forward_band(kernel: int, stride: int, channels_out: int) -> Band:
    """The band of a convolution with zero padding on both sides."""
    outputs = max(WIDEST // channels_out, 1)
    inputs = stride * (outputs - 1) + kernel
    return Band(outputs, inputs, stride * outputs, -(kernel // 2), 1, -stride, 0)


def backward_band(kernel: int, stride: int, channels_in: int) -> Band:
    """The band that maps the gradient of a convolution's output to that of its input."""
    steps = max(WIDEST // (stride * channels_in), 1)
    before = kernel // 2
    offset = -((kernel - 1 - before) // stride)
    inputs = (stride * steps - 1 + before) // stride - offset + 1
    return Band(stride * steps, inputs, steps, offset, -stride, 1, before - stride * offset)
