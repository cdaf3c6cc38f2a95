"""Context for the prior: the text that precedes an utterance."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from priormatch.data.batches import Batch
from priormatch.data.recordings import previous_in_recording

if TYPE_CHECKING:  # lhotse is slow to import
    from lhotse.cut import Cut


def contexts_of(cuts: "Iterable[Cut]", heard: Mapping[str, str]) -> dict[str, str]:
    """The transcript of the previous utterance in the same recording, by id; none for the first of a recording."""
    before = previous_in_recording(cuts)
    return {name: text for name, earlier in before.items() if (text := heard.get(earlier, ""))}


class ReadsContext(Protocol):
    """A prior that can encode texts as contexts."""

    def contexts(self, texts: Sequence[str]) -> Tensor:
        """Texts -> contexts (N, V)."""


def batch_context(batch: Batch, contexts: Mapping[str, str], prior: ReadsContext) -> Tensor:
    """Encode the contexts of a batch for the prior, on the batch's device: (B, V)."""
    padding = len(batch.waveforms) - len(batch)
    texts = [*(contexts.get(each, "") for each in batch.ids), *[""] * padding]
    context = prior.contexts(texts)
    if batch.waveforms.is_cuda:
        context = context.pin_memory()
    return context.to(batch.waveforms.device, non_blocking=True)
