"""GPU kernels of a language model inside a beam search; `kernels/gpu_lm.py` launches them, one per layer."""

import triton
import triton.language as tl


@triton.jit
def embed_kernel(table, classes, position, out, SIZE: tl.constexpr, PADDED: tl.constexpr, RING: tl.constexpr):
    """The first layer's input for the last class of a hypothesis."""
    row, rows = tl.program_id(0), tl.num_programs(0)
    now = tl.load(position)
    seen = tl.load(classes + now * rows + row).to(tl.int64)
    lane = tl.arange(0, PADDED)
    value = tl.load(table + seen * SIZE + lane, mask=lane < SIZE)
    tl.store(out + ((now % RING) * rows + row).to(tl.int64) * SIZE + lane, value, mask=lane < SIZE)


@triton.jit
def gated_kernel(
    source, parents, position, weight, bias, skip, out, rows, beam,
    IN: tl.constexpr, OUT: tl.constexpr, TAPS: tl.constexpr, RING: tl.constexpr,
    SKIP: tl.constexpr, SKIP_RING: tl.constexpr, OUT_RING: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """y = a · sigmoid(b), (a, b) = W x + c, for one tile of hypotheses and columns; with SKIP, sqrt(1/2) (skip + y).

    With TAPS > 1, x are the ring buffer entries of this hypothesis and its ancestors, oldest first; ancestors are found
    by following parents. Entries before the first position are zero.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    lane = tl.arange(0, DEPTH)
    now = tl.load(position)
    first = row // beam * beam
    real, wanted = row < rows, column < OUT
    at = tl.where(real, row, 0)
    value = tl.zeros((ROWS, COLUMNS), tl.float32)
    gate = tl.zeros((ROWS, COLUMNS), tl.float32)
    into = weight + column.to(tl.int64) * (TAPS * IN)
    past = ()
    for back in tl.static_range(TAPS):
        begins = source + at.to(tl.int64) * IN
        if TAPS > 1:
            begins += ((now - back + RING) % RING).to(tl.int64) * rows * IN
        past += (begins,)
        if back + 1 < TAPS:
            slot = tl.load(parents + tl.maximum(now - back, 0) * rows + at, mask=real, other=0)
            at = tl.where(real, first + slot, 0)
    for begin in range(0, IN, DEPTH):
        c = begin + lane
        known = wanted[:, None] & (c < IN)[None, :]
        for back in tl.static_range(TAPS):  # innermost, so that all taps are loaded at once
            there = (real & (now >= back))[:, None] & (c < IN)[None, :]
            x = tl.load(past[back][:, None] + c[None, :], mask=there, other=0.0)
            tap = into[:, None] + (TAPS - 1 - back) * IN + c[None, :]
            of_value = tl.load(tap, mask=known, other=0.0)
            of_gate = tl.load(tap + OUT * TAPS * IN, mask=known, other=0.0)
            value = tl.dot(x, tl.trans(of_value), value, input_precision=PRECISION)
            gate = tl.dot(x, tl.trans(of_gate), gate, input_precision=PRECISION)
    value += tl.load(bias + column, mask=wanted, other=0.0).to(tl.float32)[None, :]
    gate += tl.load(bias + OUT + column, mask=wanted, other=0.0).to(tl.float32)[None, :]
    y = value * tl.sigmoid(gate)
    place = row[:, None].to(tl.int64) * OUT + column[None, :]
    turn = (now % RING).to(tl.int64) * rows * OUT
    mask = real[:, None] & wanted[None, :]
    if SKIP:
        skipped = tl.load(skip + place + (turn if SKIP_RING else 0), mask=mask, other=0.0)
        y = (skipped.to(tl.float32) + y) * 0.7071067811865476
    tl.store(out + place + (turn if OUT_RING else 0), y.to(out.dtype.element_ty), mask=mask)


@triton.jit
def rank_both_kernel(
    logits, lm_logits, open_scores, finished, parents, position, peaks, scores, classes,
    columns, lm_columns, beam, eos, lm_weight, bonus, eos_threshold, margin, jump,
    CLASSES: tl.constexpr, PADDED: tl.constexpr, BEST: tl.constexpr,
    CENTERED: tl.constexpr, ENDS: tl.constexpr, JUMPS: tl.constexpr,
):  # fmt: skip
    """The BEST extensions of one hypothesis by its score + log q + λ log p + bonus, with the limits of `fused_scores`.

    CENTERED: the mean is subtracted from log p; ENDS: the end of sentence has a threshold; JUMPS: the `peaks` of this
    position and of the previous one must not be too far apart.
    """
    row, rows = tl.program_id(0), tl.num_programs(0)
    if tl.load(finished + row // beam) != 0:
        return
    so_far = tl.load(open_scores + row)
    lane = tl.arange(0, PADDED)
    known = lane < CLASSES
    log_q = tl.load(logits + row.to(tl.int64) * columns + lane, mask=known, other=-float("inf")).to(
        tl.float32
    )
    log_q -= tl.max(log_q)
    log_q -= tl.log(tl.sum(tl.exp(log_q)))
    log_p = tl.load(lm_logits + row.to(tl.int64) * lm_columns + lane, mask=known, other=-float("inf"))
    log_p = log_p.to(tl.float32)
    log_p -= tl.max(log_p)
    log_p -= tl.log(tl.sum(tl.exp(log_p)))
    if CENTERED:
        log_p -= tl.sum(tl.where(known, tl.exp(log_p) * log_p, 0.0))
    highest = tl.max(log_q)
    end = lane == eos
    value = log_q + lm_weight * tl.where(known, log_p, 0.0) + tl.where(end, 0.0, bonus)
    allowed = (log_q >= highest - margin) | end
    if ENDS:
        allowed = allowed & (~end | (log_q >= eos_threshold * highest))
    if JUMPS:
        now = tl.load(position)
        parent = row // beam * beam + tl.load(parents + now * rows + row)
        here = tl.load(peaks + (now % 2) * rows + row)
        before = tl.load(peaks + ((now + 1) % 2) * rows + parent)
        near = (now == 0) | (tl.abs(here - before) <= jump)
        allowed = allowed & near
    value = tl.where(allowed & known, value, -float("inf"))
    for rank in range(BEST):
        best, where = tl.max(value, axis=0, return_indices=True)
        live = (best > -float("inf")) & (so_far > -float("inf"))
        tl.store(scores + row * BEST + rank, tl.where(live, best + so_far, -float("inf")))
        tl.store(classes + row * BEST + rank, tl.where(live, where, 0))
        value = tl.where(lane == where, -float("inf"), value)
