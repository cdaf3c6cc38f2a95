"""GPU kernels of CTC; `kernels/ctc.py` explains and launches them.

A row is one label sequence of one utterance. State u of a row is reached after u of its labels: the path is in the
blank that follows them or still in label u, as in `models/ctc.py`. Logarithms of the likelihood are binary, which is
what the hardware computes. No sum depends on the order of execution.
"""

import math

import triton
import triton.language as tl

from priormatch.decoding import prefix_search
from priormatch.models import ctc

IMPOSSIBLE = tl.constexpr(ctc.IMPOSSIBLE)
LOG2_E, LN_2 = tl.constexpr(math.log2(math.e)), tl.constexpr(math.log(2))
NO_PREFIX, NO_PARENT = tl.constexpr(prefix_search.NO_PREFIX), tl.constexpr(prefix_search.NO_PARENT)
MULTIPLIER = tl.constexpr(prefix_search.MULTIPLIER)


@triton.jit
def log2_add(a, b):
    """log2(2^a + 2^b) of finite values."""
    return tl.maximum(a, b) + tl.log2(1.0 + tl.exp2(-tl.abs(a - b)))


@triton.jit
def log_add(a, b):
    """log(e^a + e^b); both may be -inf."""
    highest = tl.maximum(a, b)
    added = highest + tl.log(1.0 + tl.exp(-tl.abs(a - b)))
    return tl.where(highest == -float("inf"), highest, added)


@triton.jit
def sum_of_run(sum_a, class_a, sum_b, class_b):
    """Add two stretches of a sorted row: the sum of the last class's run."""
    return tl.where(class_a == class_b, sum_a + sum_b, sum_b), class_b


@triton.jit
def emissions_kernel(
    x, normalizers, frames, labels, lengths, emissions, highest, steps, classes, width, beam, blank,
    NORMALIZED: tl.constexpr, FRAMES: tl.constexpr, CLASSES: tl.constexpr, STATES: tl.constexpr,
):  # fmt: skip
    """log2 q of the blank (column 0) and of every label (column u), relative to the highest of them in each frame.

    With NORMALIZED, x are logits, and log Σ exp of each frame is written as well.
    """
    utterance = tl.program_id(1)
    t = tl.program_id(0) * FRAMES + tl.arange(0, FRAMES)
    real = t < tl.minimum(tl.load(frames + utterance), steps)
    x += (utterance.to(tl.int64) * steps + t)[:, None] * classes
    base = tl.zeros((FRAMES,), tl.float32)
    if NORMALIZED:
        top = tl.full((FRAMES,), IMPOSSIBLE, tl.float32)
        total = tl.zeros((FRAMES,), tl.float32)
        for begin in range(0, classes, CLASSES):
            c = begin + tl.arange(0, CLASSES)
            inside = real[:, None] & (c < classes)[None, :]
            value = tl.load(x + c[None, :], mask=inside, other=-float("inf")).to(tl.float32)
            higher = tl.maximum(top, tl.max(value, axis=1))
            total = total * tl.exp(top - higher) + tl.sum(tl.exp(value - higher[:, None]), axis=1)
            top = higher
        base = top + tl.log(total)
        tl.store(normalizers + utterance * steps + t, base, mask=real)
    u = tl.arange(0, STATES)
    for k in range(beam):
        row = utterance * beam + k
        used = u < tl.load(lengths + row)
        label = tl.load(labels + row * width + u - 1, mask=used & (u > 0), other=blank)
        inside = real[:, None] & used[None, :]
        value = tl.load(x + label[None, :], mask=inside, other=-float("inf")).to(tl.float32) - base[:, None]
        value = tl.maximum(value, IMPOSSIBLE)
        top = tl.max(value, axis=1)
        at = row.to(tl.int64) * steps + t
        tl.store(highest + at, top, mask=real)
        tl.store(emissions + at[:, None] * width + u[None, :], (value - top[:, None]) * LOG2_E, mask=inside)


@triton.jit
def paths_kernel(
    emissions, highest, frames, labels, lengths, likelihoods, relative, reached, steps, width, beam,
    LEARNING: tl.constexpr, STATES: tl.constexpr, FRAMES: tl.constexpr,
):  # fmt: skip
    """Sum over all paths of one row, from the first frame on, or (second grid axis) from the last one on.

    A path backward in time reads the labels backward, so both directions share the recursion. With LEARNING, the state
    of every label at every frame is written: with the frame's emission in the first direction, without it in the other,
    so that both add up to all paths through this label at this frame.
    """
    row, backward = tl.program_id(0), tl.program_id(1)
    count = tl.minimum(tl.load(frames + row // beam), steps).to(tl.int32)
    last = tl.load(lengths + row).to(tl.int32) - 1
    if last < 0:
        tl.store(likelihoods + row, -float("inf"))
        return
    u = tl.arange(0, STATES)
    before = tl.maximum(u - 1, 0)
    is_label = (u > 0) & (u <= last)
    position = tl.where(backward == 0, u, last + 1 - u)  # of label u in the row, counted from 1
    following = tl.where(backward == 0, u + 1, last - u)
    labels += row * width - 1
    label = tl.load(labels + position, mask=is_label, other=-1)
    following = tl.load(labels + following, mask=u < last, other=-2)
    emissions += row.to(tl.int64) * steps * width
    reached += (backward * tl.num_programs(0) + row).to(tl.int64) * steps * width
    in_blank = tl.where(u == 0, 0.0, IMPOSSIBLE)
    in_label = tl.full((STATES,), IMPOSSIBLE, tl.float32)
    for step in tl.range(0, count, num_stages=4):  # emissions are read ahead
        t = tl.where(backward == 0, step, count - 1 - step)
        log_label = tl.load(emissions + t * width + position, mask=is_label, other=IMPOSSIBLE)
        log_blank = tl.load(emissions + t * width + u * 0)  # a scalar would not be read ahead
        left = log2_add(in_blank, in_label)
        entering = tl.where(label == following, in_blank, left)
        entered = log2_add(in_label, tl.gather(entering, before, 0))
        in_blank = left + log_blank
        in_label = entered + log_label  # state 0 is no label, and stays impossible
        if LEARNING:
            kept = tl.where(backward == 0, in_label, entered)
            tl.store(reached + t * width + position, kept, mask=is_label)
    if backward == 0:
        total = tl.sum(tl.where(u == last, log2_add(in_blank, in_label), 0.0))
        offset = tl.zeros((), tl.float64)
        for begin in range(0, count, FRAMES):
            t = begin + tl.arange(0, FRAMES)
            more = tl.load(highest + row.to(tl.int64) * steps + t, mask=t < count, other=0.0)
            offset += tl.sum(more.to(tl.float64))
        likelihood = (total.to(tl.float64) * LN_2 + offset).to(tl.float32)
        tl.store(likelihoods + row, tl.where(likelihood > IMPOSSIBLE / 2, likelihood, -float("inf")))
        tl.store(relative + row, total)


@triton.jit
def gradient_kernel(
    gradient, likelihoods, relative, reached, by_class, order, frames, x, normalizers, out,
    steps, classes, width, beam, blank,
    NORMALIZED: tl.constexpr, FRAMES: tl.constexpr, CLASSES: tl.constexpr, ENTRIES: tl.constexpr,
):  # fmt: skip
    """Σ_k g_k · (share of the paths of row k that emit class c at frame t), for some frames of one utterance.

    The labels of all rows are sorted by class, so each class has one run of entries, whose end holds its sum. With
    NORMALIZED, the gradient is that of logits: - Σ_k g_k · q(c) is added.
    """
    utterance = tl.program_id(1)
    t = tl.program_id(0) * FRAMES + tl.arange(0, FRAMES)
    real = t < tl.minimum(tl.load(frames + utterance), steps)
    entry = tl.arange(0, ENTRIES)
    by_class += utterance * beam * width
    label = tl.load(by_class + entry, mask=entry < beam * width, other=classes)
    following = tl.load(by_class + entry + 1, mask=entry + 1 < beam * width, other=classes)
    source = tl.load(order + utterance * beam * width + entry, mask=entry < beam * width, other=0).to(
        tl.int32
    )
    row = utterance * beam + source // width
    is_label = label < classes
    possible = tl.load(likelihoods + row, mask=is_label, other=-float("inf")) > -float("inf")
    weight = tl.load(gradient + row, mask=possible, other=0.0)
    total = tl.load(relative + row, mask=possible, other=0.0)

    there = real[:, None] & possible[None, :]
    at = row.to(tl.int64) * steps * width + source % width + 1
    reached += at[None, :] + (t * width)[:, None]
    ahead = tl.load(reached, mask=there, other=IMPOSSIBLE)
    rows = (tl.num_programs(1) * beam).to(tl.int64)
    behind = tl.load(reached + rows * steps * width, mask=there, other=IMPOSSIBLE)
    share = weight[None, :] * tl.exp2(ahead + behind - total[None, :])
    sums, _ = tl.associative_scan((share, tl.broadcast_to(label[None, :], share.shape)), 1, sum_of_run)

    weights = 0.0
    for k in range(beam):
        likelihood = tl.load(likelihoods + utterance * beam + k)
        weights += tl.where(likelihood > -float("inf"), tl.load(gradient + utterance * beam + k), 0.0)
    in_blank = weights - tl.sum(share, axis=1)  # every path emits one class per frame
    at = (utterance.to(tl.int64) * steps + t)[:, None] * classes
    base = tl.zeros((FRAMES,), tl.float32)
    if NORMALIZED:
        base = tl.load(normalizers + utterance * steps + t, mask=real, other=0.0)
    for begin in range(0, classes, CLASSES):
        c = (begin + tl.arange(0, CLASSES))[None, :]
        value = tl.where(c == blank, in_blank[:, None], 0.0)
        if NORMALIZED:
            logit = tl.load(x + at + c, mask=real[:, None] & (c < classes), other=0.0).to(tl.float32)
            value -= weights * tl.exp(logit - base[:, None])
        value = tl.where(real[:, None], value, 0.0)
        tl.store(out + at + c, value.to(out.dtype.element_ty), mask=(t < steps)[:, None] & (c < classes))
    tl.debug_barrier()  # the classes of labels are written again
    at += label[None, :]
    ends = real[:, None] & (is_label & (label != following))[None, :]
    if NORMALIZED:
        logit = tl.load(x + at, mask=ends, other=0.0).to(tl.float32)
        sums -= weights * tl.exp(logit - base[:, None])
    tl.store(out + at, sums.to(out.dtype.element_ty), mask=ends)


@triton.jit
def prefix_search_kernel(
    log_q, token_q, tokens, frames, sources, columns, scores, lengths, nodes, tree_nodes, tree_tokens,
    steps, classes, blank, limit, hypotheses, threshold,
    WIDTH: tl.constexpr, SLOTS: tl.constexpr, CANDIDATES: tl.constexpr,
):  # fmt: skip
    """Prefix search in all frames of one utterance; `decoding/prefix_search.py` explains the steps.

    Candidate i keeps the prefix sources[i], or extends it by token number columns[i] of the frame's best ones if that
    is at least 0. The best prefixes are written with their lengths, scores and last nodes in the tree.
    """
    utterance = tl.program_id(0)
    count = tl.minimum(tl.load(frames + utterance), steps).to(tl.int32)
    slot, candidate = tl.arange(0, SLOTS), tl.arange(0, CANDIDATES)
    source, column = tl.load(sources + candidate), tl.load(columns + candidate)
    extends = (column >= 0) & (column < limit)
    log_q += utterance.to(tl.int64) * steps * classes
    token_q += utterance.to(tl.int64) * steps * limit
    tokens += utterance.to(tl.int64) * steps * limit
    tree_nodes += utterance.to(tl.int64) * steps * WIDTH
    tree_tokens += utterance.to(tl.int64) * steps * WIDTH
    in_blank = tl.where(slot == 0, 0.0, -float("inf"))
    in_token = tl.full((SLOTS,), -float("inf"), tl.float32)
    total = in_blank
    last = tl.full((SLOTS,), 0, tl.int32) + blank
    length, node = slot * 0, slot * 0
    prefix = tl.where(slot == 0, 0, NO_PREFIX).to(tl.int64)
    parent = tl.full((SLOTS,), NO_PARENT, tl.int64)
    pauses, skipped = 0, 0.0
    for t in range(count):
        log_blank = tl.load(log_q + t * classes + blank).to(tl.float32)
        pauses = tl.where(log_blank > threshold, pauses + 1, 0)
        if pauses > 1:
            skipped += log_blank
        else:
            at = tl.max(tl.where(parent[:, None] == prefix[None, :], slot[None, :], -1), axis=1)
            of_parent = tl.maximum(at, 0)
            doubled = tl.gather(last, of_parent, 0) == last
            enters = tl.where(doubled, tl.gather(in_blank, of_parent, 0), tl.gather(total, of_parent, 0))
            enters = tl.where(at >= 0, enters, -float("inf"))
            log_last = tl.load(log_q + t * classes + last).to(tl.float32)
            kept_in_blank = total + log_blank
            kept_in_token = log_add(in_token, enters) + log_last
            kept = log_add(kept_in_blank, kept_in_token)

            token = tl.load(tokens + t * limit + column, mask=extends, other=0).to(tl.int32)
            added = tl.load(token_q + t * limit + column, mask=extends, other=-float("inf")).to(tl.float32)
            doubled = tl.gather(last, source, 0) == token  # the same token once more needs a blank before it
            added += tl.where(doubled, tl.gather(in_blank, source, 0), tl.gather(total, source, 0))
            extension = hash_of_extension(tl.gather(prefix, source, 0), token)
            is_kept = tl.max((extension[:, None] == prefix[None, :]).to(tl.int32), axis=1) > 0
            added = tl.where(is_kept, -float("inf"), added)  # what it would get is in `enters`
            score = tl.where(column == -1, tl.gather(kept, source, 0), added)

            chosen = best_candidates(score, candidate, SLOTS)
            total = tl.where(slot < WIDTH, tl.gather(score, chosen, 0), -float("inf"))
            extended = tl.gather(column, chosen, 0) >= 0
            chosen_token = tl.gather(token, chosen, 0)
            nothing = total == -float("inf")
            old = tl.gather(source, chosen, 0)
            node_before, prefix_before = tl.gather(node, old, 0), tl.gather(prefix, old, 0)
            tree_at = t * WIDTH + slot
            tl.store(tree_nodes + tree_at, node_before, mask=slot < WIDTH)
            tl.store(tree_tokens + tree_at, chosen_token, mask=slot < WIDTH)
            in_blank = tl.where(extended, -float("inf"), tl.gather(kept_in_blank, old, 0))
            in_token = tl.where(extended, total, tl.gather(kept_in_token, old, 0))
            in_blank = tl.where(nothing, -float("inf"), in_blank)
            in_token = tl.where(nothing, -float("inf"), in_token)
            last = tl.where(extended, chosen_token, tl.gather(last, old, 0))
            length = tl.gather(length, old, 0) + extended.to(tl.int32)
            node = tl.where(extended, 1 + tree_at, node_before)
            parent = tl.where(extended, prefix_before, tl.gather(parent, old, 0))
            parent = tl.where(nothing, NO_PARENT, parent)
            prefix = tl.where(extended, hash_of_extension(prefix_before, chosen_token), prefix_before)
            prefix = tl.where(nothing, NO_PREFIX, prefix)
    at = utterance * hypotheses + slot
    tl.store(scores + at, total + skipped, mask=slot < hypotheses)
    tl.store(nodes + at, node, mask=slot < hypotheses)
    length = tl.where(total > -float("inf"), length + 1, 0)
    tl.store(lengths + at, length.to(tl.int64), mask=slot < hypotheses)


@triton.jit
def hash_of_extension(prefix, token):
    """The hashes of prefixes after one more token."""
    product = prefix * MULTIPLIER + (token + 1)
    return product ^ (product >> 32)


@triton.jit
def best_candidates(score, candidate, COUNT: tl.constexpr):
    """The numbers of the candidates with the highest scores, best first; of equals the first."""
    bits = score.to(tl.int32, bitcast=True)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # integers in the order of the scores
    best = tl.topk((ordered.to(tl.int64) << 32) | (0x7FFFFFFF - candidate), COUNT)
    return (0x7FFFFFFF - (best & 0x7FFFFFFF)).to(tl.int32)


@triton.jit
def trace_kernel(tree_nodes, tree_tokens, nodes, lengths, found, steps, width, hypotheses):
    """Trace one hypothesis back from its last node to the root and write its tokens."""
    row = tl.program_id(0)
    at = (row // hypotheses).to(tl.int64) * steps * width - 1  # node 0 is the root
    found += row.to(tl.int64) * (steps + 1)
    node, count = tl.load(nodes + row), tl.load(lengths + row).to(tl.int32) - 1
    for back in range(count):
        tl.store(found + count - 1 - back, tl.load(tree_tokens + at + node).to(tl.int64))
        node = tl.load(tree_nodes + at + node)
