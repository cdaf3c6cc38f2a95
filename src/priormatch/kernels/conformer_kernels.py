"""GPU kernels of the Conformer encoder; `kernels/conformer_triton.py` explains and launches them.

A row is a frame, of all utterances one after another. Kernels that sum over rows, for the gradients of biases and
norms, run in a fixed number of programs. Each program writes its part of the sums, and `sum_kernel` adds the parts in
a fixed order, so that results do not depend on the execution order.
"""

import triton
import triton.language as tl

from priormatch.kernels.tds_kernels import kept


@triton.jit
def tile(start, rows, features, column, ROWS: tl.constexpr):
    """Positions of the given columns in some rows of a matrix (rows, features), and which of them exist."""
    row = start + tl.arange(0, ROWS)
    at = row.to(tl.int64)[:, None] * features + column[None, :]
    return at, (row < rows)[:, None] & (column < features)[None, :]


@triton.jit
def add_column_sums(parts, index, value, column, features):
    """Write a program's part of the sums over rows: row `index` of its rows of `parts`."""
    tl.store(parts + index * features + column, tl.sum(value, axis=0), mask=column < features)


@triton.jit
def sum_kernel(parts, out, count, size, PARTS: tl.constexpr, COLUMNS: tl.constexpr):
    """Sum over the rows of a matrix (count, size)."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((PARTS, COLUMNS), tl.float32)
    for start in range(0, count, PARTS):
        at, real = tile(start, count, size, column, PARTS)
        total += tl.load(parts + at, mask=real, other=0.0)
    tl.store(out + column, tl.sum(total, axis=0), mask=column < size)


@triton.jit
def normalized(value, real, features, eps):
    """(x - mean) / deviation of each row, and 1 / deviation; x is zero where it is not real."""
    mean = tl.sum(value, axis=1) / features
    centered = tl.where(real, value - mean[:, None], 0.0)
    rate = 1.0 / tl.sqrt(tl.sum(centered * centered, axis=1) / features + eps)
    return centered * rate[:, None], rate


@triton.jit
def norm_slope(slope, normal, rate, features):
    """The gradient of a norm's input, given the normalized input and its gradient."""
    mean = tl.sum(slope, axis=1) / features
    product = tl.sum(slope * normal, axis=1) / features
    return (slope - mean[:, None] - normal * product[:, None]) * rate[:, None]


@triton.jit
def norm_kernel(
    x, y, bias, gain, shift, next_gain, next_shift, seed, total, between, out,
    rows, features, dropped, scale, factor, eps,
    RESIDUAL: tl.constexpr, BIAS: tl.constexpr, DROPOUT: tl.constexpr, KEEP: tl.constexpr, TWICE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """norm(x + factor · dropout(y + bias)) of some rows; with TWICE the norm of that, and both are written."""
    column = tl.arange(0, COLUMNS)
    at, real = tile(tl.program_id(0) * ROWS, rows, features, column, ROWS)
    inside = column < features
    value = tl.load(y + at, mask=real, other=0.0).to(tl.float32)
    if BIAS:
        value = tl.where(real, value + tl.load(bias + column, mask=inside, other=0.0)[None, :], 0.0)
    if DROPOUT:
        value = tl.where(kept(at, tl.load(seed), dropped), value * scale, 0.0)
    if RESIDUAL:
        value = tl.load(x + at, mask=real, other=0.0) + factor * value
    if KEEP:
        tl.store(total + at, value, mask=real)
    normal = normalized(value, real, features, eps)[0]
    normal = normal * tl.load(gain + column, mask=inside, other=0.0)[None, :]
    normal += tl.load(shift + column, mask=inside, other=0.0)[None, :]
    if TWICE:
        tl.store(between + at, normal, mask=real)
        normal = normalized(normal, real, features, eps)[0]
        normal = normal * tl.load(next_gain + column, mask=inside, other=0.0)[None, :]
        normal += tl.load(next_shift + column, mask=inside, other=0.0)[None, :]
    tl.store(out + at, normal.to(out.dtype.element_ty), mask=real)


@triton.jit
def norm_backward_kernel(
    total, slope_out, slope_stream, gain, shift, next_gain, seed, into, branch, parts,
    rows, features, dropped, scale, factor, eps,
    STREAM: tl.constexpr, RESIDUAL: tl.constexpr, DROPOUT: tl.constexpr, TWICE: tl.constexpr,
    SILU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Gradients of x and y in `norm_kernel`, and sums for those of gain, shift and bias.

    With STREAM, the sum or, with TWICE, the first norm has a gradient too. With SILU, the norm is followed by silu.
    """
    column = tl.arange(0, COLUMNS)
    inside = column < features
    gains = tl.load(gain + column, mask=inside, other=0.0)[None, :]
    gain_sum = tl.zeros((ROWS, COLUMNS), tl.float32)
    shift_sum = tl.zeros((ROWS, COLUMNS), tl.float32)
    bias_sum = tl.zeros((ROWS, COLUMNS), tl.float32)
    if TWICE or SILU:
        shifts = tl.load(shift + column, mask=inside, other=0.0)[None, :]
    if TWICE:
        next_gains = tl.load(next_gain + column, mask=inside, other=0.0)[None, :]
        next_gain_sum = tl.zeros((ROWS, COLUMNS), tl.float32)
        next_shift_sum = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        at, real = tile(start, rows, features, column, ROWS)
        value = tl.load(total + at, mask=real, other=0.0).to(tl.float32)
        slope = tl.load(slope_out + at, mask=real, other=0.0).to(tl.float32)
        normal, rate = normalized(value, real, features, eps)
        if TWICE:
            next_normal, next_rate = normalized(normal * gains + shifts, real, features, eps)
            next_gain_sum += slope * next_normal
            next_shift_sum += slope
            slope = norm_slope(slope * next_gains, next_normal, next_rate, features)
            if STREAM:
                slope += tl.load(slope_stream + at, mask=real, other=0.0)
        if SILU:
            result = normal * gains + shifts
            share = tl.sigmoid(result)
            slope *= share * (1.0 + result * (1.0 - share))
        gain_sum += slope * normal
        shift_sum += slope
        slope = norm_slope(slope * gains, normal, rate, features)
        if STREAM and not TWICE:
            slope += tl.load(slope_stream + at, mask=real, other=0.0)
        if RESIDUAL:
            tl.store(into + at, slope, mask=real)
        slope *= factor
        if DROPOUT:
            slope = tl.where(kept(at, tl.load(seed), dropped), slope * scale, 0.0)
        tl.store(branch + at, slope.to(branch.dtype.element_ty), mask=real)
        bias_sum += slope
    parts += tl.program_id(0) * (5 if TWICE else 3) * features
    add_column_sums(parts, 0, gain_sum, column, features)
    add_column_sums(parts, 1, shift_sum, column, features)
    add_column_sums(parts, 2, bias_sum, column, features)
    if TWICE:
        add_column_sums(parts, 3, next_gain_sum, column, features)
        add_column_sums(parts, 4, next_shift_sum, column, features)


@triton.jit
def silu_kernel(
    x, bias, seed, out, rows, features, dropped, scale,
    DROPOUT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """dropout(silu(x + bias))."""
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    at, real = tile(tl.program_id(0) * ROWS, rows, features, column, ROWS)
    value = tl.load(x + at, mask=real, other=0.0).to(tl.float32)
    value += tl.load(bias + column, mask=column < features, other=0.0)[None, :]
    value *= tl.sigmoid(value)
    if DROPOUT:
        value = tl.where(kept(at, tl.load(seed), dropped), value * scale, 0.0)
    tl.store(out + at, value.to(out.dtype.element_ty), mask=real)


@triton.jit
def silu_backward_kernel(
    x, bias, seed, slope, into, parts, rows, features, dropped, scale,
    DROPOUT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The gradient through dropout and silu, and its sums over rows."""
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    biases = tl.load(bias + column, mask=column < features, other=0.0)[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        at, real = tile(start, rows, features, column, ROWS)
        value = tl.load(x + at, mask=real, other=0.0).to(tl.float32) + biases
        change = tl.load(slope + at, mask=real, other=0.0).to(tl.float32)
        share = tl.sigmoid(value)
        change *= share * (1.0 + value * (1.0 - share))
        if DROPOUT:
            change = tl.where(kept(at, tl.load(seed), dropped), change * scale, 0.0)
        tl.store(into + at, change.to(into.dtype.element_ty), mask=real)
        total += change
    add_column_sums(parts, tl.program_id(0), total, column, features)


@triton.jit
def gate_kernel(x, bias, lengths, out, rows, steps, features, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """(a + bias) · sigmoid(b + bias) of rows (a, b), zero after each utterance's end."""
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    at, real = tile(tl.program_id(0) * ROWS, rows, features, column, ROWS)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = column < features
    exists = real & (row % steps < tl.load(lengths + row // steps, mask=row < rows, other=0))[:, None]
    first = at + (at - column[None, :])
    value = tl.load(x + first, mask=exists, other=0.0).to(tl.float32)
    value += tl.load(bias + column, mask=inside, other=0.0)[None, :]
    gate = tl.load(x + first + features, mask=exists, other=0.0).to(tl.float32)
    gate += tl.load(bias + features + column, mask=inside, other=0.0)[None, :]
    value = tl.where(exists, value * tl.sigmoid(gate), 0.0)
    tl.store(out + at, value.to(out.dtype.element_ty), mask=real)


@triton.jit
def gate_backward_kernel(
    x, bias, lengths, slope, into, parts, rows, steps, features, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Gradients of both halves of the rows, and their sums over rows."""
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < features
    biases = tl.load(bias + column, mask=inside, other=0.0)[None, :]
    gate_biases = tl.load(bias + features + column, mask=inside, other=0.0)[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    gate_total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        at, real = tile(start, rows, features, column, ROWS)
        row = start + tl.arange(0, ROWS)
        exists = real & (row % steps < tl.load(lengths + row // steps, mask=row < rows, other=0))[:, None]
        first = at + (at - column[None, :])
        value = tl.load(x + first, mask=exists, other=0.0).to(tl.float32) + biases
        gate = tl.load(x + first + features, mask=exists, other=0.0).to(tl.float32) + gate_biases
        share = tl.sigmoid(gate)
        change = tl.load(slope + at, mask=exists, other=0.0).to(tl.float32) * share
        gate_change = change * value * (1.0 - share)
        tl.store(into + first, change.to(into.dtype.element_ty), mask=real)
        tl.store(into + first + features, gate_change.to(into.dtype.element_ty), mask=real)
        total += change
        gate_total += gate_change
    parts += tl.program_id(0) * 2 * features
    add_column_sums(parts, 0, total, column, features)
    add_column_sums(parts, 1, gate_total, column, features)


@triton.jit
def rotate_kernel(
    x, bias, cos, sin, out, parts, rows, steps, features, half,
    BACKWARD: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Add the bias to rows (q, k, v) and rotate q and k; backward, undo the rotation and sum over rows.

    The second grid axis selects q, k or v; columns are pairs of features.
    """
    part = tl.program_id(1)
    pair = tl.arange(0, COLUMNS)
    real_pair = pair < features // 2
    angle = pair % half
    column = part * features + pair // half * (2 * half) + angle
    turned = real_pair & (pair * 0 + part < 2)  # a scalar is no mask in Triton's interpreter
    first_total = tl.zeros((ROWS, COLUMNS), tl.float32)
    second_total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        row = start + tl.arange(0, ROWS)
        real = (row < rows)[:, None] & real_pair[None, :]
        at = row.to(tl.int64)[:, None] * (3 * features) + column[None, :]
        first = tl.load(x + at, mask=real, other=0.0).to(tl.float32)
        second = tl.load(x + at + half, mask=real, other=0.0).to(tl.float32)
        if not BACKWARD:
            first += tl.load(bias + column, mask=real_pair, other=0.0)[None, :]
            second += tl.load(bias + column + half, mask=real_pair, other=0.0)[None, :]
        place = (row % steps)[:, None] * half + angle[None, :]
        rotated = (row < rows)[:, None] & turned[None, :]
        cosine = tl.load(cos + place, mask=rotated, other=1.0)
        sine = tl.load(sin + place, mask=rotated, other=0.0)
        if BACKWARD:
            sine = -sine
        new_first = first * cosine - second * sine
        new_second = second * cosine + first * sine
        tl.store(out + at, new_first.to(out.dtype.element_ty), mask=real)
        tl.store(out + at + half, new_second.to(out.dtype.element_ty), mask=real)
        if BACKWARD:
            first_total += new_first
            second_total += new_second
    if BACKWARD:
        parts += tl.program_id(0) * 3 * features + column
        tl.store(parts, tl.sum(first_total, axis=0), mask=real_pair)
        tl.store(parts + half, tl.sum(second_total, axis=0), mask=real_pair)


@triton.jit
def depthwise_kernel(
    x, weight, bias, gain, shift, mixed, out, rows, steps, features, eps,
    TAPS: tl.constexpr, BACKWARD: tl.constexpr, KEEP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """silu(norm(conv(x) + bias)), and with KEEP also the norm's input; backward, the gradient of x from that of conv.

    x (B·T, C), weight (TAPS, C).
    """
    column = tl.arange(0, COLUMNS)
    inside = column < features
    start = tl.program_id(0) * ROWS
    row = start + tl.arange(0, ROWS)
    at, real = tile(start, rows, features, column, ROWS)
    t = row % steps
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for tap in range(0, TAPS):
        move = TAPS // 2 - tap if BACKWARD else tap - TAPS // 2
        seen = real & ((t + move >= 0) & (t + move < steps))[:, None]
        taps = tl.load(weight + tap * features + column, mask=inside, other=0.0)
        total += tl.load(x + at + move * features, mask=seen, other=0.0).to(tl.float32) * taps[None, :]
    if BACKWARD:
        tl.store(out + at, total.to(out.dtype.element_ty), mask=real)
    else:
        total += tl.load(bias + column, mask=inside, other=0.0)[None, :]
        rounded = tl.where(real, total, 0.0).to(out.dtype.element_ty)
        if KEEP:
            tl.store(mixed + at, rounded, mask=real)
        normal = normalized(rounded.to(tl.float32), real, features, eps)[0]
        normal = normal * tl.load(gain + column, mask=inside, other=0.0)[None, :]
        normal += tl.load(shift + column, mask=inside, other=0.0)[None, :]
        tl.store(out + at, (normal * tl.sigmoid(normal)).to(out.dtype.element_ty), mask=real)


@triton.jit
def taps_gradient_kernel(
    x,
    slope,
    parts,
    rows,
    chunk_rows,
    steps,
    features,
    TAPS: tl.constexpr,
    PADDED: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """A chunk's part of the gradient of a depthwise convolution's weight, (TAPS, C)."""
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    tap = tl.arange(0, PADDED)
    move = tap - TAPS // 2
    inside = (tap < TAPS)[:, None] & (column < features)[None, :]
    offset = move[:, None] * features + column[None, :]
    total = tl.zeros((PADDED, COLUMNS), tl.float32)
    first = tl.program_id(0) * chunk_rows
    x += first.to(tl.int64) * features
    slope += first.to(tl.int64) * features
    for row in tl.range(0, tl.minimum(chunk_rows, rows - first), loop_unroll_factor=4):  # loads ahead of sums
        t = (first + row) % steps + move
        exists = inside & ((t >= 0) & (t < steps))[:, None]
        seen = tl.load(x + row * features + offset, mask=exists, other=0.0)
        change = tl.load(slope + row * features + column, mask=column < features, other=0.0)
        total += seen.to(tl.float32) * change.to(tl.float32)[None, :]
    parts += (tl.program_id(0) * TAPS).to(tl.int64) * features
    tl.store(parts + tap[:, None] * features + column[None, :], total, mask=inside)


@triton.jit
def patches(x, place, places, steps, bands, ROWS: tl.constexpr):
    """The 3 x 3 inputs of a convolution of stride 2 at some places (utterance, step, band), and a one: (ROWS, 16)."""
    k = tl.arange(0, 16)
    steps_out, bands_out = (steps + 1) // 2, (bands + 1) // 2
    t = (place // bands_out % steps_out * 2 - 1)[:, None] + (k // 3)[None, :]
    band = (place % bands_out * 2 - 1)[:, None] + (k % 3)[None, :]
    inside = (place < places)[:, None] & (k < 9)[None, :]
    inside &= (t >= 0) & (t < steps) & (band >= 0) & (band < bands)
    utterance = place // (bands_out * steps_out)
    value = tl.load(x + (utterance.to(tl.int64)[:, None] * steps + t) * bands + band, mask=inside, other=0.0)
    return tl.where((k == 9)[None, :], 1.0, value)


@triton.jit
def first_conv_kernel(
    x, weight, bias, lengths, out, places, steps, bands, channels, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """relu(conv(x) + bias), x (B, T, F), weight (9, C) -> (B, T', F', C), zero after each utterance's end."""
    column, k = tl.arange(0, COLUMNS), tl.arange(0, 16)
    start = tl.program_id(0) * ROWS
    place = start + tl.arange(0, ROWS)
    at, real = tile(start, places, channels, column, ROWS)
    per_step, steps_out = (bands + 1) // 2, (steps + 1) // 2
    seen = patches(x, place, places, steps, bands, ROWS).to(out.dtype.element_ty)
    inside = (k < 9)[:, None] & (column < channels)[None, :]
    taps = tl.load(weight + k[:, None] * channels + column[None, :], mask=inside, other=0.0)
    value = (
        tl.dot(seen, taps.to(seen.dtype)) + tl.load(bias + column, mask=column < channels, other=0.0)[None, :]
    )
    end = tl.load(lengths + place // (per_step * steps_out), mask=place < places, other=0)
    value = tl.where((place // per_step % steps_out < end)[:, None], tl.maximum(value, 0.0), 0.0)
    tl.store(out + at, value.to(out.dtype.element_ty), mask=real)


@triton.jit
def first_conv_gradient_kernel(
    x, out, slope, parts, places, steps, bands, channels, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """A program's part of the gradients of weight and bias: rows 0 to 8 are taps, row 9 is the bias, of (16, C)."""
    column, k = tl.arange(0, COLUMNS), tl.arange(0, 16)
    total = tl.zeros((16, COLUMNS), tl.float32)
    for start in range(tl.program_id(0) * ROWS, places, tl.num_programs(0) * ROWS):
        at, real = tile(start, places, channels, column, ROWS)
        seen = patches(x, start + tl.arange(0, ROWS), places, steps, bands, ROWS)
        change = tl.load(slope + at, mask=real, other=0.0)
        change = tl.where(tl.load(out + at, mask=real, other=0.0) > 0, change, 0.0).to(slope.dtype.element_ty)
        total = tl.dot(tl.trans(seen.to(slope.dtype.element_ty)), change, total)
    parts += tl.program_id(0) * 16 * channels
    tl.store(parts + k[:, None] * channels + column[None, :], total, mask=(column < channels)[None, :])


@triton.jit
def rectify_mask_kernel(
    x, bias, lengths, rows, per_step, steps, features, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """relu(x + bias) in place, zero after each utterance's end; rows are (utterance, step, band)."""
    column = tl.arange(0, COLUMNS)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at, real = tile(tl.program_id(0) * ROWS, rows, features, column, ROWS)
    end = tl.load(lengths + row // (per_step * steps), mask=row < rows, other=0)
    value = tl.load(x + at, mask=real, other=0.0).to(tl.float32)
    value += tl.load(bias + column, mask=column < features, other=0.0)[None, :]
    value = tl.where((row // per_step % steps < end)[:, None], tl.maximum(value, 0.0), 0.0)
    tl.store(x + at, value.to(x.dtype.element_ty), mask=real)


@triton.jit
def rectify_mask_backward_kernel(
    slope, out, into, parts, rows, features, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """The gradient where the output is positive, zero elsewhere, and its sums over rows."""
    column = tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        at, real = tile(start, rows, features, column, ROWS)
        change = tl.load(slope + at, mask=real, other=0.0).to(tl.float32)
        change = tl.where(tl.load(out + at, mask=real, other=0.0) > 0, change, 0.0)
        tl.store(into + at, change.to(into.dtype.element_ty), mask=real)
        total += change
    add_column_sums(parts, tl.program_id(0), total, column, features)
