"""GPU kernels of the beam search; `kernels/gpu_search.py` launches them, a few per step."""

import triton
import triton.language as tl


@triton.jit
def gru_gates_kernel(
    table, hidden, state, parents, classes, position, out, beam, SIZE: tl.constexpr, PADDED: tl.constexpr
):
    """h = (1 - z) n + z h' for one hypothesis; the parent's values are read from the parent's slot."""
    row = tl.program_id(0)
    at = tl.load(position) * tl.num_programs(0)
    parents += at
    classes += at
    lane = tl.arange(0, PADDED)
    real = lane < SIZE
    parent = (row // beam) * beam + tl.load(parents + row)
    seen = table + tl.load(classes + row).to(tl.int64) * (3 * SIZE) + lane
    hidden += parent.to(tl.int64) * (3 * SIZE) + lane
    reset = tl.sigmoid(
        tl.load(seen, mask=real, other=0.0).to(tl.float32) + tl.load(hidden, mask=real, other=0.0)
    )
    update = tl.sigmoid(
        tl.load(seen + SIZE, mask=real, other=0.0).to(tl.float32)
        + tl.load(hidden + SIZE, mask=real, other=0.0)
    )
    new = tl.load(hidden + 2 * SIZE, mask=real, other=0.0).to(tl.float32) * reset
    new += tl.load(seen + 2 * SIZE, mask=real, other=0.0)
    new = 2 * tl.sigmoid(2 * new) - 1  # tanh
    before = tl.load(state + parent.to(tl.int64) * SIZE + lane, mask=real, other=0.0).to(tl.float32)
    after = new + update * (before - new)
    tl.store(out + row.to(tl.int64) * SIZE + lane, after.to(out.dtype.element_ty), mask=real)


@triton.jit
def attend_kernel(
    queries, keys, values, lengths, finished, position, out, peaks, frames, beam, key_stride, value_stride, scale,
    SIZE: tl.constexpr, PADDED: tl.constexpr, BEAM: tl.constexpr, FRAMES: tl.constexpr,
    PRECISION: tl.constexpr, PEAKS: tl.constexpr,
):  # fmt: skip
    """q + softmax(q·k / sqrt(D)) v for the hypotheses of one utterance, over tiles of its frames.

    With PEAKS also the frame with the highest weight of each, stored separately for even and odd positions.
    """
    utterance = tl.program_id(0)
    if tl.load(finished + utterance) != 0:
        return
    row, lane, frame = tl.arange(0, BEAM), tl.arange(0, PADDED), tl.arange(0, FRAMES)
    at = (utterance * beam + row)[:, None].to(tl.int64) * SIZE + lane[None, :]
    real = (row < beam)[:, None] & (lane < SIZE)[None, :]
    query = tl.load(queries + at, mask=real, other=0.0)
    count = tl.load(lengths + utterance).to(tl.int32)
    highest = tl.full((BEAM,), -1e30, tl.float32)
    weight = tl.zeros((BEAM,), tl.float32)
    total = tl.zeros((BEAM, PADDED), tl.float32)
    peak = tl.zeros((BEAM,), tl.int32)
    keys += utterance.to(tl.int64) * frames * key_stride
    values += utterance.to(tl.int64) * frames * value_stride
    for begin in range(0, count, FRAMES):
        t = begin + frame
        there = (t < count)[:, None] & (lane < SIZE)[None, :]
        key = tl.load(keys + t[:, None] * key_stride + lane[None, :], mask=there, other=0.0)
        score = tl.dot(query, tl.trans(key), input_precision=PRECISION) * scale
        score = tl.where((t < count)[None, :], score, -1e30)
        if PEAKS:
            tallest, where = tl.max(score, axis=1, return_indices=True)
            peak = tl.where(tallest > highest, begin + where, peak)
        top = tl.maximum(highest, tl.max(score, axis=1))
        share = tl.exp(score - top[:, None])
        fade = tl.exp(highest - top)
        weight = weight * fade + tl.sum(share, axis=1)
        value = tl.load(values + t[:, None] * value_stride + lane[None, :], mask=there, other=0.0)
        total = total * fade[:, None]
        total = tl.dot(share.to(value.dtype), value, total, input_precision=PRECISION)
        highest = top
    context = total / tl.maximum(weight, 1e-30)[:, None]
    tl.store(out + at, (query.to(tl.float32) + context).to(out.dtype.element_ty), mask=real)
    if PEAKS:
        peaks += (tl.load(position) % 2) * tl.num_programs(0) * beam + utterance * beam
        tl.store(peaks + row, peak, mask=row < beam)


@triton.jit
def rank_classes_kernel(
    logits, open_scores, finished, scores, classes, columns, beam,
    CLASSES: tl.constexpr, PADDED: tl.constexpr, BEST: tl.constexpr,
):  # fmt: skip
    """The BEST extensions of one hypothesis: its score + log-softmax, and the classes."""
    row = tl.program_id(0)
    if tl.load(finished + row // beam) != 0:
        return
    so_far = tl.load(open_scores + row)
    lane = tl.arange(0, PADDED)
    value = tl.load(logits + row.to(tl.int64) * columns + lane, mask=lane < CLASSES, other=-float("inf"))
    value = value.to(tl.float32)
    highest = tl.max(value)
    base = so_far - highest - tl.log(tl.sum(tl.exp(value - highest)))
    for rank in range(BEST):
        best, where = tl.max(value, axis=0, return_indices=True)
        live = (best > -float("inf")) & (so_far > -float("inf"))
        tl.store(scores + row * BEST + rank, tl.where(live, best + base, -float("inf")))
        tl.store(classes + row * BEST + rank, tl.where(live, where, 0))
        value = tl.where(lane == where, -float("inf"), value)


@triton.jit
def extend_kernel(
    scores, classes, open_scores, open_lengths, done_scores, done_at, done_from, finished, parents_out, classes_out,
    position, eos, longest, threshold, rows,
    K: tl.constexpr, BEAM: tl.constexpr, CANDIDATES: tl.constexpr,
):  # fmt: skip
    """Complete and extend the hypotheses of one utterance with its 2k best candidates."""
    utterance = tl.program_id(0)
    lane = tl.arange(0, BEAM)
    slot = utterance * K + lane
    position = tl.load(position)
    if position > longest:
        return
    parents_out += (position + 1) * rows
    classes_out += (position + 1) * rows
    if tl.load(finished + utterance) != 0:
        tl.store(parents_out + slot, lane, mask=lane < K)
        tl.store(classes_out + slot, lane * 0, mask=lane < K)
        return
    number = tl.arange(0, CANDIDATES)
    at = utterance * (2 * K * K) + number
    score = tl.load(scores + at, mask=number < 2 * K * K, other=-float("inf"))
    label = tl.load(classes + at, mask=number < 2 * K * K, other=0)
    done = tl.load(done_scores + slot, mask=lane < K, other=float("inf"))
    ended_at = tl.load(done_at + slot, mask=lane < K, other=0)
    ended_from = tl.load(done_from + slot, mask=lane < K, other=0)
    fresh = tl.full((BEAM,), -float("inf"), tl.float32)
    fresh_parent, fresh_class = lane, lane * 0
    taken = 0
    lowest = tl.max(score) - threshold
    for rank in range(2 * K):
        best, where = tl.max(score, axis=0, return_indices=True)
        score = tl.where(number == where, -float("inf"), score)
        label_here = tl.sum(tl.where(number == where, label, 0))
        live = best > -float("inf")
        parent = where // (2 * K)
        ends = live & (label_here == eos)
        worst, worst_at = tl.min(done, axis=0, return_indices=True)
        here = (lane == worst_at) & (ends & (rank < K) & (best > worst))
        done = tl.where(here, best, done)
        ended_at = tl.where(here, position, ended_at)
        ended_from = tl.where(here, parent, ended_from)
        goes_on = live & (label_here != eos) & (best >= lowest) & (taken < K)
        here = (lane == taken) & goes_on
        fresh = tl.where(here, best, fresh)
        fresh_parent = tl.where(here, parent, fresh_parent)
        fresh_class = tl.where(here, label_here, fresh_class)
        taken += goes_on.to(tl.int32)
    tl.store(done_scores + slot, done, mask=lane < K)
    tl.store(done_at + slot, ended_at, mask=lane < K)
    tl.store(done_from + slot, ended_from, mask=lane < K)
    if taken == 0:  # no extension is allowed: the open hypotheses do not change
        tl.store(finished + utterance, 1)
    elif position < longest:
        tl.store(open_scores + slot, fresh, mask=lane < K)
        tl.store(open_lengths + utterance, position + 1)
        tl.store(parents_out + slot, fresh_parent, mask=lane < K)
        tl.store(classes_out + slot, fresh_class, mask=lane < K)
        worst = tl.min(done)
        tl.store(finished + utterance, ((worst > -float("inf")) & (worst >= tl.max(fresh))).to(tl.int32))


@triton.jit
def read_out_kernel(parents, classes, last, slots, out, rows, width, beam):
    """Trace one hypothesis back from its last position and write its classes."""
    row = tl.program_id(0)
    first = (row // beam) * beam
    slot = tl.load(slots + row)
    end = tl.load(last + row)
    for back in range(0, end):
        at = (end - 1 - back) * rows + first + slot
        tl.store(out + row * width + end - 1 - back, tl.load(classes + at).to(tl.int64))
        slot = tl.load(parents + at)
