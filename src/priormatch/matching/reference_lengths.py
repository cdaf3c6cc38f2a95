"""Reference lengths L that need no decoding: from transcripts, and from how fast people speak."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from priormatch.data.batches import cut_text
from priormatch.data.tokenizer import Tokenizer

if TYPE_CHECKING:  # lhotse is slow to import
    from lhotse.cut import Cut


def oracle_lengths(transcribed: "Iterable[Cut]", tokenizer: Tokenizer) -> dict[str, int]:
    """The pieces of each transcript, by the utterance's id."""
    return {cut.id: len(tokenizer.encode(text)) for cut in transcribed if (text := cut_text(cut))}


def pieces_a_second(transcribed: "Iterable[Cut]", tokenizer: Tokenizer) -> float:
    """How many pieces are spoken in a second, pauses included."""
    cuts = [cut for cut in transcribed if cut_text(cut)]
    return sum(oracle_lengths(cuts, tokenizer).values()) / sum(cut.duration for cut in cuts)


def lengths_by_rate(cuts: "Iterable[Cut]", rate: float) -> dict[str, int]:
    """The pieces an utterance of each duration has at that rate, at least one."""
    return {cut.id: max(round(rate * cut.duration), 1) for cut in cuts}
