"""The order of utterances in their recordings, also of those that are stored apart from them."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
from lhotse import CutSet, Recording
from lhotse.audio import AudioSource

from priormatch.data.corpus import read_cuts
from priormatch.data.manifest import utterance
from priormatch.data.pack import pack
from priormatch.data.recordings import PART_OF, audio_of, contexts_of, place_of, previous_in_recording
from priormatch.errors import UserError
from priormatch.prepare.corpora import prepare_librispeech


def recording(name: str) -> Recording:
    return Recording(name, [], 16_000, 160_000, 10.0)


def test_audio_is_named_with_the_place_in_it() -> None:
    source = AudioSource("file", [0], "talks/one.flac")
    one = Recording("one", [source], 16_000, 160_000, 10.0)
    assert audio_of(utterance("a", one, None, None)) == "talks/one.flac"
    part = utterance("a", one, None, None, start=2.5, duration=4.0)
    assert audio_of(part) == "talks/one.flac, 2.5 to 6.5 s"
    assert audio_of(utterance("a", recording("none"), None, None)) == "a"


def test_cuts_follow_one_another_by_where_they_begin() -> None:
    one, other = recording("one"), recording("other")
    cuts = [
        utterance("c", one, None, None, start=7.0),
        utterance("x", other, None, None, start=1.0),
        utterance("a", one, None, None, start=2.5),
        utterance("b", one, None, None, start=10.0 / 3),
        utterance("alone", recording("third"), None, None),
        utterance("w", other, None, None, start=1.0),  # as long ago as x
    ]
    assert previous_in_recording(cuts) == {"b": "a", "c": "b", "x": "w"}
    assert previous_in_recording([]) == {}


def test_contexts_are_what_was_heard_just_before() -> None:
    cuts = [utterance(name, recording("r"), None, None, start=start) for start, name in enumerate("abcd")]
    heard = {"a": "good morning", "b": "", "c": "how are you", "d": "fine"}
    # Nothing was heard in b, and what comes before that is not what c follows.
    assert contexts_of(cuts, heard) == {"b": "good morning", "d": "how are you"}
    assert contexts_of(cuts, {"d": "fine"}) == {}


@pytest.mark.parametrize("stored", ["talk", ["talk"], ["talk", "later"], 3, ["talk", None]])
def test_a_place_that_is_none_is_named(stored: object) -> None:
    cut = utterance("a", recording("one"), None, None)
    cut.custom = {PART_OF: stored}
    with pytest.raises(UserError, match=r"a: part_of=.* write it as"):
        place_of(cut)


def test_packed_cuts_know_where_they_were(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "r.wav", np.zeros(48_000), 16_000)
    soundfile.write(tmp_path / "s.wav", np.zeros(16_000), 16_000)
    whole, single = (Recording.from_file(tmp_path / f"{name}.wav") for name in "rs")
    cuts = [
        utterance("b", whole, None, None, start=2.0, duration=0.5),
        utterance("s", single, None, None),
        utterance("a", whole, None, None, start=1.0, duration=0.5),
    ]
    packed = read_cuts(pack(cuts, tmp_path / "packed", "all"))
    assert {cut.recording_id for cut in packed} == {"all-00000"}
    assert [place_of(cut) for cut in packed] == [("r", 2.0), ("s", 0.0), ("r", 1.0)]
    assert previous_in_recording(packed) == {"b": "a"}
    again = read_cuts(pack(packed, tmp_path / "again", "all"))
    assert previous_in_recording(again) == {"b": "a"}


def test_utterances_of_librispeech_follow_one_another_in_their_chapter(tmp_path: Path) -> None:
    for chapter in ("10", "9"):
        folder = tmp_path / "dev" / "84" / chapter
        folder.mkdir(parents=True)
        for number in range(2):
            soundfile.write(folder / f"84-{chapter}-000{number}.flac", np.zeros(1600), 16_000)
        lines = [f"84-{chapter}-000{number} WORD\n" for number in range(2)]
        (folder / f"84-{chapter}.trans.txt").write_text("".join(lines))
    cuts = read_cuts(prepare_librispeech(tmp_path, tmp_path / "out")["dev"])
    assert previous_in_recording(cuts) == {"84-9-0001": "84-9-0000", "84-10-0001": "84-10-0000"}
    kept = CutSet.from_cuts(cuts[::-1])
    assert previous_in_recording(kept) == previous_in_recording(cuts)
