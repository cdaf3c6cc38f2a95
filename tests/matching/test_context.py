"""What the prior reads before an utterance."""

from lhotse import Recording

from priormatch.data.manifest import utterance
from priormatch.matching.context import contexts_of


def test_contexts_are_what_was_heard_just_before() -> None:
    recording = Recording("r", [], 16_000, 160_000, 10.0)
    cuts = [utterance(name, recording, None, None, start=start) for start, name in enumerate("abcd")]
    heard = {"a": "good morning", "b": "", "c": "how are you", "d": "fine"}
    # Nothing was heard in b, and what comes before that is not what c follows.
    assert contexts_of(cuts, heard) == {"b": "good morning", "d": "how are you"}
    assert contexts_of(cuts, {"d": "fine"}) == {}
