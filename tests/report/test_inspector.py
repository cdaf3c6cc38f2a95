"""What the inspector sums up: which utterances are counted, and which are left out."""

from dataclasses import replace
from pathlib import Path

from narrowing import present
from tiny_report import beam, make_cut

from priormatch.report.inspector import LONGEST, Beam, ErrorChange, Sound, Utterance, embed, error_change


def inspected(reference: str | None, *texts: str, filtered: int | None = None) -> Utterance:
    """An utterance whose beams have one hypothesis each; the filter leaves nothing of the one of that number."""
    found = [beam("u", reference, [text]) for text in texts]
    if filtered is not None:
        (only,) = found[filtered].hypotheses
        found[filtered] = replace(found[filtered], hypotheses=[replace(only, weight=0.0)])
    return Utterance("u", reference, Sound(None), [Beam(0, each) for each in found])


def test_utterances_without_a_hypothesis_are_left_out_and_counted() -> None:
    utterances = [
        inspected("meeting at nine", "meeting ten", "meeting at ten"),
        inspected("doctor at ten", "at", "doctor at ten", filtered=0),
        inspected("monday", "tuesday", "monday", filtered=1),
        inspected(None, "tuesday", "monday"),
        inspected("tuesday", "monday"),
    ]
    assert error_change(utterances) == ErrorChange(known=3, both=1, first=2, last=1, words=3)
    assert error_change(utterances[1:]) is None


def test_audio_is_small_cut_short_and_never_in_the_way(tmp_path: Path) -> None:
    sound = embed(make_cut(tmp_path, 0).to_dict())
    uri = present(sound.uri)
    assert uri.startswith("data:audio/mpeg;base64,")
    assert len(uri) < 10_000
    long = embed(make_cut(tmp_path, 1, LONGEST + 5).to_dict())
    assert long.note == f"the first {LONGEST:g} seconds"
    assert embed(make_cut(tmp_path, 2).to_dict(), room=100).note == "left out to keep this file small"
    gone = make_cut(tmp_path, 3).to_dict()
    (tmp_path / "audio" / "3.wav").unlink()
    assert embed(gone).uri is None
    assert "3.wav: cannot be opened: No such file or directory" in embed(gone).note
    assert embed({"type": "nonsense"}).note.startswith("not a cut")
