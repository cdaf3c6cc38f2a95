"""What the prior reads before the hypotheses of an utterance."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from priormatch.data.recordings import previous_in_recording

if TYPE_CHECKING:  # lhotse is slow to import
    from lhotse.cut import Cut


def contexts_of(cuts: "Iterable[Cut]", heard: Mapping[str, str]) -> dict[str, str]:
    """The text heard in the utterance before each in its recording, by id; nothing where there is none."""
    before = previous_in_recording(cuts)
    return {name: text for name, earlier in before.items() if (text := heard.get(earlier, ""))}
