"""GPU kernels of the TDS encoder; `kernels/tds_triton.py` explains and launches them.

In kernels that process one utterance at a time, the second grid axis is the utterance. Each program writes its part of
a sum over the utterance, and readers add the parts in a fixed order, so that results do not depend on the execution
order.
"""

import triton
import triton.language as tl


@triton.jit
def kept(positions, seed, dropped):
    """Whether dropout keeps a value: compares a hash of its position and the seed with p·2³²."""
    bits = positions.to(tl.uint32) * 0x9E3779B9 + seed.to(tl.uint32)
    bits = (bits ^ (bits >> 16)) * 0x7FEB352D
    bits = (bits ^ (bits >> 15)) * 0x846CA68B
    return (bits ^ (bits >> 16)) >= dropped.to(tl.uint32)


@triton.jit
def band_matrix_kernel(
    weight, matrix, BY_INPUT: tl.constexpr, BY_OUTPUT: tl.constexpr, SHIFT: tl.constexpr,
    OUTPUTS: tl.constexpr, KERNEL: tl.constexpr, CHANNELS_IN: tl.constexpr, CHANNELS_OUT: tl.constexpr,
    STRIDE_IN: tl.constexpr, STRIDE_OUT: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write a kernel along the diagonals of its band; the strides locate the weight between two channels."""
    row = tl.program_id(0)
    column = tl.arange(0, COLUMNS)
    q, c_in = row // CHANNELS_IN, row % CHANNELS_IN
    p, c_out = column // CHANNELS_OUT, column % CHANNELS_OUT
    tap = BY_INPUT * q + BY_OUTPUT * p + SHIFT
    real = (tap >= 0) & (tap < KERNEL) & (p < OUTPUTS)
    value = tl.load(weight + c_in * STRIDE_IN + c_out * STRIDE_OUT + tap, mask=real, other=0.0)
    tl.store(matrix + row * COLUMNS + column, value.to(matrix.dtype.element_ty))


@triton.jit
def banded_product_kernel(
    x, matrix, out, residual, bias, active, sums, lengths, seed,
    steps_in, steps_out, blocks, dropped, scale,
    WIDTH: tl.constexpr, CHANNELS_IN: tl.constexpr, CHANNELS_OUT: tl.constexpr,
    OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, STRIDE: tl.constexpr, OFFSET: tl.constexpr,
    ACTIVATE: tl.constexpr, RESIDUAL: tl.constexpr, TRAINING: tl.constexpr, DROPOUT: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """One tile of rows (block, band) of one utterance, for all output steps and channels of a block."""
    utterance, tile = tl.program_id(1), tl.program_id(0)
    row = tile * ROWS + tl.arange(0, ROWS)
    band, block = row % WIDTH, row // WIDTH
    real = block < blocks
    first = block * STRIDE + OFFSET
    x += utterance.to(tl.int64) * steps_in * (WIDTH * CHANNELS_IN)
    base = (first * WIDTH + band) * CHANNELS_IN
    column = tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for begin in range(0, INPUTS * CHANNELS_IN, DEPTH):
        k = begin + tl.arange(0, DEPTH)
        q, c = k // CHANNELS_IN, k % CHANNELS_IN
        t = first[:, None] + q[None, :]
        inside = real[:, None] & (t >= 0) & (t < steps_in) & (q < INPUTS)[None, :]
        seen = tl.load(x + base[:, None] + (q * (WIDTH * CHANNELS_IN) + c)[None, :], mask=inside, other=0.0)
        total = tl.dot(seen, tl.load(matrix + k[:, None] * COLUMNS + column[None, :]), total)
    p, c = column // CHANNELS_OUT, column % CHANNELS_OUT
    t = block[:, None] * OUTPUTS + p[None, :]
    inside = real[:, None] & (p < OUTPUTS)[None, :] & (t < steps_out)
    at = (t * WIDTH + band[:, None]) * CHANNELS_OUT + c[None, :]
    start = utterance.to(tl.int64) * steps_out * (WIDTH * CHANNELS_OUT)
    if ACTIVATE:
        exists = inside & (t < tl.load(lengths + utterance))
        total += tl.load(bias + c)[None, :]
        live = exists & (total > 0)
        if DROPOUT:
            live &= kept(at + start.to(tl.int32), tl.load(seed), dropped)
        if TRAINING:
            tl.store(active + start + at, live.to(tl.uint8), mask=inside)
        total = tl.where(live, total * scale, 0.0)
        if RESIDUAL:
            total += tl.load(residual + start + at, mask=exists, other=0.0).to(tl.float32)
        rounded = total.to(out.dtype.element_ty)
        value = rounded.to(tl.float32)
        tl.store(out + start + at, rounded, mask=inside)
        sums += (utterance * tl.num_programs(0) + tile) * 2
        tl.store(sums, tl.sum(value))
        tl.store(sums + 1, tl.sum(value * value))
    else:
        if RESIDUAL:
            total += tl.load(residual + start + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(out + start + at, total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def band_gradient_kernel(
    x, gradient, out, bias_out, steps_in, steps_out, blocks, rows, chunk_rows,
    WIDTH: tl.constexpr, CHANNELS_IN: tl.constexpr, CHANNELS_OUT: tl.constexpr,
    OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, STRIDE: tl.constexpr, OFFSET: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """The gradient of the banded matrix from one chunk of all rows: seenᵀ · gradient, for DEPTH matrix rows."""
    chunk, begin = tl.program_id(1), tl.program_id(0) * DEPTH
    k = begin + tl.arange(0, DEPTH)
    q, c_in = k // CHANNELS_IN, k % CHANNELS_IN
    column = tl.arange(0, COLUMNS)
    p, c_out = column // CHANNELS_OUT, column % CHANNELS_OUT
    total = tl.zeros((DEPTH, COLUMNS), tl.float32)
    bias_total = tl.zeros((COLUMNS,), tl.float32)
    for start in range(0, chunk_rows, ROWS):
        row = chunk * chunk_rows + start + tl.arange(0, ROWS)
        real = (row < rows) & (start + tl.arange(0, ROWS) < chunk_rows)
        band, block = row % WIDTH, (row // WIDTH) % blocks
        utterance = row // (WIDTH * blocks)
        first = block * STRIDE + OFFSET
        t = first[:, None] + q[None, :]
        inside = real[:, None] & (t >= 0) & (t < steps_in) & (q < INPUTS)[None, :]
        base = (utterance.to(tl.int64) * steps_in + first) * WIDTH + band
        seen = tl.load(
            x + base[:, None] * CHANNELS_IN + (q * (WIDTH * CHANNELS_IN) + c_in)[None, :],
            mask=inside,
            other=0.0,
        )
        t = block[:, None] * OUTPUTS + p[None, :]
        inside = real[:, None] & (p < OUTPUTS)[None, :] & (t < steps_out)
        base = (utterance.to(tl.int64) * steps_out + block * OUTPUTS) * WIDTH + band
        at = base[:, None] * CHANNELS_OUT + (p * (WIDTH * CHANNELS_OUT) + c_out)[None, :]
        slope = tl.load(gradient + at, mask=inside, other=0.0)
        total = tl.dot(tl.trans(seen), slope, total)
        if begin == 0:
            bias_total += tl.sum(slope.to(tl.float32), axis=0)
    depth = tl.num_programs(0) * DEPTH
    tl.store(out + (chunk * depth + k[:, None]) * COLUMNS + column[None, :], total)
    if begin == 0:
        tl.store(bias_out + chunk * COLUMNS + column, bias_total)


@triton.jit
def taps_gradient_kernel(
    matrix, weight, OUTPUTS: tl.constexpr, STRIDE: tl.constexpr, KERNEL: tl.constexpr,
    CHANNELS_IN: tl.constexpr, CHANNELS_OUT: tl.constexpr, COLUMNS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Sum the gradient of the banded matrix along the diagonal of each tap."""
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tap, c_in, c_out = at % KERNEL, (at // KERNEL) % CHANNELS_IN, at // (KERNEL * CHANNELS_IN)
    real = c_out < CHANNELS_OUT
    total = tl.zeros((SIZE,), tl.float32)
    for p in range(OUTPUTS):
        row = (tap + STRIDE * p) * CHANNELS_IN + c_in
        total += tl.load(matrix + row * COLUMNS + p * CHANNELS_OUT + c_out, mask=real, other=0.0)
    tl.store(weight + at, total, mask=real)


@triton.jit
def moments(sums, utterance, parts, count, eps, PARTS: tl.constexpr):
    """Mean and 1 / deviation of an utterance from the partial sums of its tiles."""
    part = tl.arange(0, PARTS)
    at = sums + (utterance * parts + part) * 2
    mean = tl.sum(tl.load(at, mask=part < parts, other=0.0)) / count
    squares = tl.sum(tl.load(at + 1, mask=part < parts, other=0.0)) / count
    return mean, 1.0 / tl.sqrt(tl.maximum(squares - mean * mean, 0.0) + eps)


@triton.jit
def normalize_kernel(
    x, sums, gain, bias, lengths, out, size, features, parts, eps, PARTS: tl.constexpr, BLOCK: tl.constexpr
):
    """gain · (x - mean) / deviation + bias inside the utterance, zero in the padding."""
    utterance = tl.program_id(1)
    end = tl.load(lengths + utterance) * features
    mean, rate = moments(sums, utterance, parts, tl.maximum(end, 1).to(tl.float32), eps, PARTS)
    rate *= tl.load(gain)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    start = utterance.to(tl.int64) * size
    value = tl.load(x + start + at, mask=at < end, other=0.0).to(tl.float32)
    value = tl.where(at < end, (value - mean) * rate + tl.load(bias), 0.0)
    tl.store(out + start + at, value.to(out.dtype.element_ty), mask=at < size)


@triton.jit
def normalize_sums_kernel(gradient, x, lengths, out, size, features, BLOCK: tl.constexpr):
    """Sums of the gradient and of gradient · x over a part of an utterance."""
    utterance, part = tl.program_id(1), tl.program_id(0)
    end = tl.load(lengths + utterance) * features
    at = part * BLOCK + tl.arange(0, BLOCK)
    start = utterance.to(tl.int64) * size
    slope = tl.load(gradient + start + at, mask=at < end, other=0.0).to(tl.float32)
    value = tl.load(x + start + at, mask=at < end, other=0.0).to(tl.float32)
    out += (utterance * tl.num_programs(0) + part) * 2
    tl.store(out, tl.sum(slope))
    tl.store(out + 1, tl.sum(slope * value))


@triton.jit
def normalize_backward_kernel(
    gradient, x, sums, slopes, gain, lengths, active, seed, out, branch, gains,
    size, features, parts, slope_parts, dropped, scale, eps,
    CONVOLUTION: tl.constexpr, DROPOUT: tl.constexpr,
    PARTS: tl.constexpr, SLOPE_PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients of the norm's input and, through dropout and ReLU, of the branch that was added before it."""
    utterance, part = tl.program_id(1), tl.program_id(0)
    end = tl.load(lengths + utterance) * features
    count = tl.maximum(end, 1).to(tl.float32)
    mean, rate = moments(sums, utterance, parts, count, eps, PARTS)
    each = tl.arange(0, SLOPE_PARTS)
    at = slopes + (utterance * slope_parts + each) * 2
    slope_sum = tl.sum(tl.load(at, mask=each < slope_parts, other=0.0))
    product = tl.sum(tl.load(at + 1, mask=each < slope_parts, other=0.0))
    product = (product - mean * slope_sum) * rate  # sum of gradient · normalized x
    if part == 0:
        tl.store(gains + utterance, product)
        tl.store(gains + tl.num_programs(1) + utterance, slope_sum)
    at = part * BLOCK + tl.arange(0, BLOCK)
    start = utterance.to(tl.int64) * size
    slope = tl.load(gradient + start + at, mask=at < end, other=0.0).to(tl.float32)
    normal = (tl.load(x + start + at, mask=at < end, other=0.0).to(tl.float32) - mean) * rate
    slope = tl.load(gain) * rate * (slope - slope_sum / count - normal * (product / count))
    slope = tl.where(at < end, slope, 0.0)
    tl.store(out + start + at, slope.to(out.dtype.element_ty), mask=at < size)
    if CONVOLUTION:
        live = tl.load(active + start + at, mask=at < size, other=0) != 0
        slope = tl.where(live, slope * scale, 0.0)
    elif DROPOUT:
        live = kept(at + start.to(tl.int32), tl.load(seed), dropped)
        slope = tl.where(live, slope * scale, 0.0)
    tl.store(branch + start + at, slope.to(branch.dtype.element_ty), mask=at < size)


@triton.jit
def rectify_kernel(x, seed, size, dropped, scale, DROPOUT: tl.constexpr, BLOCK: tl.constexpr):
    """dropout(relu(x)), in place."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < size, other=0.0).to(tl.float32)
    live = value > 0
    if DROPOUT:
        live &= kept(at, tl.load(seed), dropped)
    tl.store(x + at, tl.where(live, value * scale, 0.0).to(x.dtype.element_ty), mask=at < size)


@triton.jit
def rectify_backward_kernel(gradient, result, size, scale, BLOCK: tl.constexpr):
    """The gradient through dropout(relu(·)), in place: zero where the output was zero."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    slope = tl.load(gradient + at, mask=at < size, other=0.0).to(tl.float32)
    live = tl.load(result + at, mask=at < size, other=0.0) > 0
    tl.store(gradient + at, tl.where(live, slope * scale, 0.0).to(gradient.dtype.element_ty), mask=at < size)


@triton.jit
def add_kernel(
    x, branch, lengths, seed, out, sums, size, features, dropped, scale,
    DROPOUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """x + dropout(branch) inside the utterance, zero in the padding, and the partial sums for the norm."""
    utterance, part = tl.program_id(1), tl.program_id(0)
    end = tl.load(lengths + utterance) * features
    at = part * BLOCK + tl.arange(0, BLOCK)
    start = utterance.to(tl.int64) * size
    value = tl.load(branch + start + at, mask=at < end, other=0.0).to(tl.float32)
    if DROPOUT:
        value = tl.where(kept(at + start.to(tl.int32), tl.load(seed), dropped), value * scale, 0.0)
    value += tl.load(x + start + at, mask=at < end, other=0.0).to(tl.float32)
    rounded = tl.where(at < end, value, 0.0).to(out.dtype.element_ty)
    tl.store(out + start + at, rounded, mask=at < size)
    value = rounded.to(tl.float32)
    sums += (utterance * tl.num_programs(0) + part) * 2
    tl.store(sums, tl.sum(value))
    tl.store(sums + 1, tl.sum(value * value))
