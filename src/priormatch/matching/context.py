"""Context for the prior: the text that precedes an utterance."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from priormatch.data.batches import Batch
from priormatch.data.recordings import previous_in_recording

if TYPE_CHECKING:  # lhotse is slow to import
    from lhotse.cut import Cut


def contexts_of(cuts: "Iterable[Cut]", heard: Mapping[str, str]) -> dict[str, str]:
    """The transcript of the previous utterance in the same recording, by id; none for the first of a recording."""
    before = previous_in_recording(cuts)
    return {name: text for name, earlier in before.items() if (text := heard.get(earlier, ""))}


def batch_context(batch: Batch, contexts: Mapping[str, str]) -> list[str]:
    """The text before each utterance of a batch, "" for none and for rows that only pad the batch."""
    padding = len(batch.waveforms) - len(batch)
    return [*(contexts.get(each, "") for each in batch.ids), *[""] * padding]
