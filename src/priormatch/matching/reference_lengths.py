"""Reference lengths L: those of a batch, and two sources that need no decoding."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from priormatch.data.batches import Batch
from priormatch.data.corpus import cut_text
from priormatch.data.tokenizer import Tokenizer

if TYPE_CHECKING:  # lhotse is slow to import
    from lhotse.cut import Cut


def oracle_lengths(transcribed: "Iterable[Cut]", tokenizer: Tokenizer) -> dict[str, int]:
    """Tokens of each transcript, by utterance id."""
    return {cut.id: len(tokenizer.encode(text)) for cut in transcribed if (text := cut_text(cut))}


def pieces_a_second(transcribed: "Iterable[Cut]", tokenizer: Tokenizer) -> float:
    """Mean number of tokens per second of speech, including pauses."""
    cuts = [cut for cut in transcribed if cut_text(cut)]
    return sum(oracle_lengths(cuts, tokenizer).values()) / sum(cut.duration for cut in cuts)


def lengths_by_rate(ids: Iterable[str], durations: Iterable[float], rate: float) -> dict[str, int]:
    """Tokens expected in each utterance from its duration in seconds, at least one."""
    return {name: max(round(rate * float(each)), 1) for name, each in zip(ids, durations, strict=True)}


def batch_lengths(batch: Batch, lengths: Mapping[str, int]) -> Tensor:
    """Reference lengths of a batch with the end of sentence, on its device, 0 for unknown: (B,)."""
    tokens = [lengths.get(each, 0) for each in batch.ids]
    known = torch.zeros(len(batch.waveforms), dtype=torch.long, pin_memory=batch.waveforms.is_cuda)
    known[: len(tokens)] = torch.tensor([n + 1 if n > 0 else 0 for n in tokens])
    return known.to(batch.waveforms.device, non_blocking=True)
