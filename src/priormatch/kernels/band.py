"""A convolution over time as a product with a banded matrix: the geometry alone.

P neighboring outputs of a convolution are linear in the Q inputs they see. Rows of Q·C_in values times a matrix of
(Q·C_in, P·C_out), with the kernel along its diagonals, give rows of P·C_out: a shape that matrix units like, which
a convolution with ten channels is not. The gradient of the input is such a product too, with another band.
"""

from typing import NamedTuple

WIDEST = 128  # columns of a banded matrix


class Band(NamedTuple):
    """How a block of `outputs` steps sees `inputs` steps: block i begins at input i·stride + offset.

    Output p takes input q with the kernel's tap by_input·q + by_output·p + shift, where there is such a tap.
    """

    outputs: int
    inputs: int
    stride: int
    offset: int
    by_input: int
    by_output: int
    shift: int


def forward_band(kernel: int, stride: int, channels_out: int) -> Band:
    """The band of a convolution with zeros before and behind."""
    outputs = max(WIDEST // channels_out, 1)
    inputs = stride * (outputs - 1) + kernel
    return Band(outputs, inputs, stride * outputs, -(kernel // 2), 1, -stride, 0)


def backward_band(kernel: int, stride: int, channels_in: int) -> Band:
    """The band that carries the gradient from a convolution's output to its input."""
    steps = max(WIDEST // (stride * channels_in), 1)
    before = kernel // 2
    offset = -((kernel - 1 - before) // stride)
    inputs = (stride * steps - 1 + before) // stride - offset + 1
    return Band(stride * steps, inputs, steps, offset, -stride, 1, before - stride * offset)
