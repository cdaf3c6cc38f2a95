"""Padding of batches to few shapes, so that CUDA graphs can be reused."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from priormatch.data.batches import Batch
from priormatch.device import has_kernels

SAMPLES = 10_240  # 64 frames, 0.64 s
LABELS, MANY_LABELS = 8, 64  # lengths above the second are rounded up to multiples of it, as there are many
ROWS = 8
SENTENCES = 64


def on_grid(batch: Batch, eos: int) -> Batch:
    """Pad the batch to a round shape if steps are recorded; return it unchanged otherwise."""
    return pad_batch(batch, eos) if has_kernels(batch.waveforms.device) else batch


def labels_on_grid(labels: Tensor, eos: int) -> Tensor:
    """Pad labels (..., U) to a round width if steps are recorded; return them unchanged otherwise."""
    return pad_labels(labels, eos) if has_kernels(labels.device) else labels


def sentences_on_grid(labels: Tensor, lengths: Tensor, eos: int) -> tuple[Tensor, Tensor]:
    """Pad sentences (N, U) to a round shape if steps are recorded; return them unchanged otherwise."""
    return pad_sentences(labels, lengths, eos) if has_kernels(labels.device) else (labels, lengths)


def pad_sentences(labels: Tensor, lengths: Tensor, eos: int) -> tuple[Tensor, Tensor]:
    """Pad sentences (N, U) with lengths (N,) to round numbers of labels and rows; the added rows have length 0."""
    more = -len(labels) % SENTENCES
    return _repeat_first(pad_labels(labels, eos), more), functional.pad(lengths, (0, more))


def pad_batch(batch: Batch, eos: int) -> Batch:
    """Pad a batch to round numbers of samples, labels and, if there are many, rows.

    The added rows repeat the first one and have no labels; `len(batch)` still counts only the original ones.
    """
    rows, samples = batch.waveforms.shape
    more = -rows % ROWS if rows > 2 * ROWS else 0
    return replace(
        batch,
        waveforms=_repeat_first(functional.pad(batch.waveforms, (0, -samples % SAMPLES)), more),
        samples=_repeat_first(batch.samples, more),
        labels=_repeat_first(pad_labels(batch.labels, eos), more),
        label_lengths=functional.pad(batch.label_lengths, (0, more)),
    )


def pad_labels(labels: Tensor, eos: int) -> Tensor:
    """Pad labels (..., U) with the end of sentence to a round width."""
    multiple = LABELS if labels.shape[-1] <= MANY_LABELS else MANY_LABELS
    return functional.pad(labels, (0, -labels.shape[-1] % multiple), value=eos)


def _repeat_first(x: Tensor, more: int) -> Tensor:
    """Append `more` copies of the first row."""
    return torch.cat([x, x[:1].expand(more, *x.shape[1:])]) if more else x
