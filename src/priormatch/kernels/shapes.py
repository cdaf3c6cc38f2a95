"""Padding of batches to few shapes, so that CUDA graphs can be reused."""

from bisect import bisect_left
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from priormatch.data.batches import Batch
from priormatch.device import has_kernels

SAMPLES = 10_240  # 64 frames, 0.64 s
LABELS, MANY_LABELS = 8, 64  # lengths above the second are rounded up to multiples of it, as there are many
ROWS = 8
# Widths of sentences: about five per doubling, up to the longest line that a text file can have.
WIDTHS = [0, *sorted({round(2 ** (step / 5)) for step in range(126)})]


def on_grid(batch: Batch, eos: int) -> Batch:
    """Pad the batch to a round shape if steps are recorded; return it unchanged otherwise."""
    return pad_batch(batch, eos) if has_kernels(batch.waveforms.device) else batch


def labels_on_grid(labels: Tensor, eos: int) -> Tensor:
    """Pad labels (..., U) to a round width if steps are recorded; return them unchanged otherwise."""
    return pad_labels(labels, eos) if has_kernels(labels.device) else labels


def sentences_on_grid(
    labels: Tensor, lengths: Tensor, eos: int, tokens: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Pad sentences (N, U) to a round shape if steps on `device` are recorded; return them unchanged otherwise."""
    return pad_sentences(labels, lengths, eos, tokens) if has_kernels(device) else (labels, lengths)


def pad_sentences(labels: Tensor, lengths: Tensor, eos: int, tokens: int) -> tuple[Tensor, Tensor]:
    """Pad sentences (N, U) with lengths (N,) to the shape in `sentence_shape`; the added rows have length 0."""
    count, longest = labels.shape
    padded = labels.new_full(sentence_shape(count, longest, tokens), eos)
    padded[:count, :longest] = labels
    return padded, functional.pad(lengths, (0, len(padded) - count))


def sentence_shape(rows: int, width: int, tokens: int) -> tuple[int, int]:
    """The shape to which a batch of sentences is padded, which has at most `tokens` labels including padding.

    There is one shape for each round width: it has as many rows as any batch that is padded to this width.
    """
    place = bisect_left(WIDTHS, width)
    return max(tokens // (WIDTHS[place - 1] + 1), rows), WIDTHS[place]


def pad_batch(batch: Batch, eos: int) -> Batch:
    """Pad a batch to the rows of its shape, or to round numbers of samples and, if there are many, rows; and labels.

    The added rows repeat the first one and have no labels; `len(batch)` still counts only the original ones.
    """
    rows, samples = batch.waveforms.shape
    if batch.rows:
        more, after = max(batch.rows - rows, 0), 0
    else:
        more, after = -rows % ROWS if rows > 2 * ROWS else 0, -samples % SAMPLES
    return replace(
        batch,
        waveforms=repeat_first(functional.pad(batch.waveforms, (0, after)), more),
        samples=repeat_first(batch.samples, more),
        labels=repeat_first(pad_labels(batch.labels, eos), more),
        label_lengths=functional.pad(batch.label_lengths, (0, more)),
        noise=repeat_first(batch.noise, more),
    )


def pad_labels(labels: Tensor, eos: int) -> Tensor:
    """Pad labels (..., U) with the end of sentence to a round width."""
    multiple = LABELS if labels.shape[-1] <= MANY_LABELS else MANY_LABELS
    return functional.pad(labels, (0, -labels.shape[-1] % multiple), value=eos)


def repeat_first(x: Tensor, more: int) -> Tensor:
    """Append `more` copies of the first row."""
    return torch.cat([x, x[:1].expand(more, *x.shape[1:])]) if more else x
