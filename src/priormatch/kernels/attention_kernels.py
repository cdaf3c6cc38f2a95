"""GPU kernels of self-attention; `kernels/conformer_triton.py` explains and launches them.

Queries, keys and values of all heads lie side by side in the rows of one matrix, (B·T, 3·H·D), and so do their
gradients. The second grid axis is the head of one utterance. Scores are never written: the backward pass computes them
again. Logarithms are binary, which is what the hardware computes.
"""

import math

import triton
import triton.language as tl

LOG2_E = tl.constexpr(math.log2(math.e))


@triton.jit
def head_tile(x, part, parts, block, steps, heads, size, BLOCK: tl.constexpr, SIZE: tl.constexpr):
    """Where the rows of a block lie in a matrix (B·T, parts·H·D), and which of them exist."""
    t = block + tl.arange(0, BLOCK)
    d = tl.arange(0, SIZE)
    utterance, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    row = utterance.to(tl.int64) * steps + t
    at = row[:, None] * (parts * heads * size) + ((part * heads + head) * size + d)[None, :]
    return x + at, (t < steps)[:, None] & (d < size)[None, :]


@triton.jit
def keys_of(lengths, steps, heads):
    """The number of frames that are attended to; an utterance without frames attends to its first padding frame."""
    count = tl.load(lengths + tl.program_id(1) // heads).to(tl.int32)
    return tl.minimum(tl.maximum(count, 1), steps)


@triton.jit
def attention_kernel(
    x,
    lengths,
    out,
    logs,
    steps,
    heads,
    size,
    scale,
    KEEP: tl.constexpr,
    BLOCK: tl.constexpr,
    SIZE: tl.constexpr,
):
    """softmax(q·k · scale) v for a block of queries; with KEEP also log2 of the softmax's denominator."""
    begin = tl.program_id(0) * BLOCK
    at, inside = head_tile(x, 0, 3, begin, steps, heads, size, BLOCK, SIZE)
    queries = tl.load(at, mask=inside, other=0.0)
    count = keys_of(lengths, steps, heads)
    top = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    context = tl.zeros((BLOCK, SIZE), tl.float32)
    for start in range(0, count, BLOCK):
        at, inside = head_tile(x, 1, 3, start, steps, heads, size, BLOCK, SIZE)
        keys = tl.load(at, mask=inside, other=0.0)
        at, inside = head_tile(x, 2, 3, start, steps, heads, size, BLOCK, SIZE)
        values = tl.load(at, mask=inside, other=0.0)
        scores = tl.dot(queries, tl.trans(keys)) * (scale * LOG2_E)
        scores = tl.where((start + tl.arange(0, BLOCK) < count)[None, :], scores, -float("inf"))
        higher = tl.maximum(top, tl.max(scores, axis=1))
        shares = tl.exp2(scores - higher[:, None])
        fade = tl.exp2(top - higher)
        total = total * fade + tl.sum(shares, axis=1)
        context = tl.dot(shares.to(values.dtype), values, context * fade[:, None])
        top = higher
    at, inside = head_tile(out, 0, 1, begin, steps, heads, size, BLOCK, SIZE)
    tl.store(at, (context / total[:, None]).to(out.dtype.element_ty), mask=inside)
    if KEEP:
        t = begin + tl.arange(0, BLOCK)
        tl.store(logs + tl.program_id(1).to(tl.int64) * steps + t, top + tl.log2(total), mask=t < steps)


@triton.jit
def query_gradient_kernel(
    x, lengths, out, slope, logs, products, gradient, steps, heads, size, scale,
    BLOCK: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """The gradient of a block of queries, and the products of output and gradient that the other kernel needs."""
    begin = tl.program_id(0) * BLOCK
    at, inside = head_tile(x, 0, 3, begin, steps, heads, size, BLOCK, SIZE)
    queries = tl.load(at, mask=inside, other=0.0)
    at, inside = head_tile(slope, 0, 1, begin, steps, heads, size, BLOCK, SIZE)
    slopes = tl.load(at, mask=inside, other=0.0)
    at, inside = head_tile(out, 0, 1, begin, steps, heads, size, BLOCK, SIZE)
    product = tl.sum(tl.load(at, mask=inside, other=0.0).to(tl.float32) * slopes.to(tl.float32), axis=1)
    t = begin + tl.arange(0, BLOCK)
    row = tl.program_id(1).to(tl.int64) * steps + t
    tl.store(products + row, product, mask=t < steps)
    log = tl.load(logs + row, mask=t < steps, other=0.0)
    count = keys_of(lengths, steps, heads)
    total = tl.zeros((BLOCK, SIZE), tl.float32)
    for start in range(0, count, BLOCK):
        at, inside = head_tile(x, 1, 3, start, steps, heads, size, BLOCK, SIZE)
        keys = tl.load(at, mask=inside, other=0.0)
        at, inside = head_tile(x, 2, 3, start, steps, heads, size, BLOCK, SIZE)
        values = tl.load(at, mask=inside, other=0.0)
        shares = tl.exp2(tl.dot(queries, tl.trans(keys)) * (scale * LOG2_E) - log[:, None])
        shares = tl.where((start + tl.arange(0, BLOCK) < count)[None, :], shares, 0.0)
        change = shares * (tl.dot(slopes, tl.trans(values)) - product[:, None])
        total = tl.dot(change.to(keys.dtype), keys, total)
    at, inside = head_tile(gradient, 0, 3, begin, steps, heads, size, BLOCK, SIZE)
    tl.store(at, (total * scale).to(gradient.dtype.element_ty), mask=inside)


@triton.jit
def key_gradient_kernel(
    x, lengths, slope, logs, products, gradient, steps, heads, size, scale,
    BLOCK: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """The gradients of a block of keys and values; they are zero after the end."""
    begin = tl.program_id(0) * BLOCK
    at, inside = head_tile(x, 1, 3, begin, steps, heads, size, BLOCK, SIZE)
    keys = tl.load(at, mask=inside, other=0.0)
    at, inside = head_tile(x, 2, 3, begin, steps, heads, size, BLOCK, SIZE)
    values = tl.load(at, mask=inside, other=0.0)
    count = keys_of(lengths, steps, heads)
    seen = (begin + tl.arange(0, BLOCK) < count)[:, None]
    rows = tl.program_id(1).to(tl.int64) * steps
    key_total = tl.zeros((BLOCK, SIZE), tl.float32)
    value_total = tl.zeros((BLOCK, SIZE), tl.float32)
    for start in range(0, tl.where(begin < count, steps, 0), BLOCK):
        at, inside = head_tile(x, 0, 3, start, steps, heads, size, BLOCK, SIZE)
        queries = tl.load(at, mask=inside, other=0.0)
        at, inside = head_tile(slope, 0, 1, start, steps, heads, size, BLOCK, SIZE)
        slopes = tl.load(at, mask=inside, other=0.0)
        t = start + tl.arange(0, BLOCK)
        log = tl.load(logs + rows + t, mask=t < steps, other=0.0)
        product = tl.load(products + rows + t, mask=t < steps, other=0.0)
        shares = tl.exp2(tl.dot(keys, tl.trans(queries)) * (scale * LOG2_E) - log[None, :])
        shares = tl.where(seen & (t < steps)[None, :], shares, 0.0)
        value_total = tl.dot(shares.to(slopes.dtype), slopes, value_total)
        change = shares * (tl.dot(values, tl.trans(slopes)) - product[None, :])
        key_total = tl.dot(change.to(queries.dtype), queries, key_total)
    at, inside = head_tile(gradient, 1, 3, begin, steps, heads, size, BLOCK, SIZE)
    tl.store(at, (key_total * scale).to(gradient.dtype.element_ty), mask=inside)
    at, inside = head_tile(gradient, 2, 3, begin, steps, heads, size, BLOCK, SIZE)
    tl.store(at, value_total.to(gradient.dtype.element_ty), mask=inside)
