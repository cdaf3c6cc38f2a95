"""What the inspector sums up: which utterances are counted, and which are said to be left out."""

from dataclasses import replace

from tiny_report import beam

from priormatch.report.inspector import Beam, Heard, Utterance, heard
from priormatch.report.sound import Sound


def seen(said: str | None, *texts: str, filtered: int | None = None) -> Utterance:
    """An utterance whose beams have one hypothesis each; the filter leaves nothing of the one of that number."""
    found = [beam("u", said, [text]) for text in texts]
    if filtered is not None:
        (only,) = found[filtered].hypotheses
        found[filtered] = replace(found[filtered], hypotheses=[replace(only, weight=0.0)])
    return Utterance("u", said, Sound(None), [Beam("", each) for each in found])


def test_utterances_without_a_hypothesis_are_left_out_and_told():
    utterances = [
        seen("meeting at nine", "meeting ten", "meeting at ten"),
        seen("doctor at ten", "at", "doctor at ten", filtered=0),
        seen("monday", "tuesday", "monday", filtered=1),
        seen(None, "tuesday", "monday"),
        seen("tuesday", "monday"),
    ]
    assert heard(utterances) == Heard(known=3, both=1, first=2, last=1, words=3)
    assert heard(utterances[1:]) is None
