"""References and bootstrap units, by utterance."""

from collections.abc import Callable
from pathlib import Path

import pytest
from lhotse import CutSet

from priormatch.errors import UserError
from priormatch.scoring.references import references_of, units_of, with_references
from priormatch.scoring.transcripts import Transcript

DECODED = [Transcript("b", "at ten", 2, None, []), Transcript("a", "monday at", 2, None, [])]
REFERENCES = {"a": "monday at nine", "b": "at ten", "c": "doctor"}


def test_references_are_those_of_cuts_with_text(tiny_corpus: Callable[..., Path], tmp_path: Path) -> None:
    cuts = list(CutSet.from_file(tiny_corpus(["monday", "at ten"])))
    cuts[0].supervisions[0].text = None
    CutSet.from_cuts(cuts).to_file(tmp_path / "some.jsonl.gz")
    assert references_of(tmp_path / "some.jsonl.gz") == {"tiny-1": "at ten"}
    with pytest.raises(UserError, match=r"none\.jsonl\.gz contains no transcribed utterance"):
        references_of(tiny_corpus(2, "none", transcribed=False))


def test_references_are_replaced_and_unknown_ones_removed() -> None:
    found = with_references([*DECODED, Transcript("d", "at", 1, "at", [])], REFERENCES)
    assert [each.reference for each in found] == ["at ten", "monday at nine", None]


def test_units_are_the_speakers_or_the_recordings(tiny_corpus: Callable[..., Path], tmp_path: Path) -> None:
    cuts = list(CutSet.from_file(tiny_corpus(3)))
    cuts[1].supervisions[0].speaker = None
    cuts[2].custom = {"part_of": ["book", 12.5]}
    CutSet.from_cuts(cuts).to_file(tmp_path / "some.jsonl.gz")
    assert units_of(tmp_path / "some.jsonl.gz", "speakers") == {"tiny-0": "ann", "tiny-2": "ann"}
    places = {"tiny-0": "tiny-0", "tiny-1": "tiny-1", "tiny-2": "book"}
    assert units_of(tmp_path / "some.jsonl.gz", "recordings") == places


def test_texts_beside_audio_are_references(tmp_path: Path) -> None:
    for name in ("ann/one.wav", "ann/two.M4A"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "ann" / "one.txt").write_text("\ufeffmonday\nat  nine\n", encoding="utf-8")
    (tmp_path / "ann" / "two.txt").write_text("at ten")
    (tmp_path / "read me.txt").write_text("of no recording")
    assert references_of(tmp_path) == {"ann-one": "monday at nine", "ann-two": "at ten"}
    (tmp_path / "ann-two.wav").touch()
    (tmp_path / "ann-two.txt").write_text("doctor")
    with pytest.raises(UserError, match="are both for the recording ann-two: rename one of them"):
        references_of(tmp_path)


def test_texts_without_audio_are_all_references(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"contains no references: put NAME.txt next to NAME.wav"):
        references_of(tmp_path)
    (tmp_path / "one.txt").write_text("monday")
    (tmp_path / ".one.txt").write_text("hidden")
    assert references_of(tmp_path) == {"one": "monday"}
    (tmp_path / "text").write_text("utt-1 at ten\n")
    assert references_of(tmp_path) == {"utt-1": "at ten"}, "a Kaldi folder"
