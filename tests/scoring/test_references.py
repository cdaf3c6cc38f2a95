"""What was really said, by utterance."""

import pytest
from lhotse import CutSet

from priormatch.errors import UserError
from priormatch.scoring.references import references_of, units_of, with_references
from priormatch.scoring.transcripts import Transcript

HEARD = [Transcript("b", "at ten", 2, None, []), Transcript("a", "monday at", 2, None, [])]
SAID = {"a": "monday at nine", "b": "at ten", "c": "doctor"}


def test_references_are_those_of_cuts_with_text(tiny_corpus, tmp_path):
    cuts = list(CutSet.from_file(tiny_corpus(["monday", "at ten"])))
    cuts[0].supervisions[0].text = None
    CutSet.from_cuts(cuts).to_file(tmp_path / "some.jsonl.gz")
    assert references_of(tmp_path / "some.jsonl.gz") == {"tiny-1": "at ten"}
    with pytest.raises(UserError, match=r"none\.jsonl\.gz holds no transcribed utterance"):
        references_of(tiny_corpus(2, "none", transcribed=False))


def test_transcripts_learn_what_was_said_and_forget_what_is_not_known():
    found = with_references([*HEARD, Transcript("d", "at", 1, "at", [])], SAID)
    assert [each.reference for each in found] == ["at ten", "monday at nine", None]


def test_units_are_the_speakers_or_the_recordings(tiny_corpus, tmp_path):
    cuts = list(CutSet.from_file(tiny_corpus(3)))
    cuts[1].supervisions[0].speaker = None
    cuts[2].custom = {"part_of": ["book", 12.5]}
    CutSet.from_cuts(cuts).to_file(tmp_path / "some.jsonl.gz")
    assert units_of(tmp_path / "some.jsonl.gz", "speakers") == {"tiny-0": "ann", "tiny-2": "ann"}
    places = {"tiny-0": "tiny-0", "tiny-1": "tiny-1", "tiny-2": "book"}
    assert units_of(tmp_path / "some.jsonl.gz", "recordings") == places
