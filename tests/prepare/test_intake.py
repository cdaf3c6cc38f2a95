"""What becomes of audio on its way into a manifest: long recordings are cut at their pauses."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
from lhotse import CutSet, MonoCut, Recording, SupervisionSegment
from tiny_run import command

from priormatch.data.recordings import place_of, previous_in_recording
from priormatch.errors import UserError
from priormatch.prepare.intake import Intake
from priormatch.prepare.own import prepare_own


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "audio").mkdir()
    return tmp_path / "audio"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "mine.jsonl.gz"


def read(manifest: Path) -> dict[str, MonoCut]:
    return {cut.id: cut for cut in CutSet.from_file(manifest)}


def write_talk(path: Path, sentences: int = 4, rate: int = 16_000) -> Path:
    """Two seconds of speech and one of quiet, again and again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    parts = [random.normal(0, level, count * rate) for level, count in ((0.2, 2), (0.001, 1))] * sentences
    soundfile.write(path, np.concatenate(parts), rate)
    return path


def test_long_untranscribed_recordings_are_cut_at_their_pauses(folder: Path, out: Path) -> None:
    write_talk(folder / "ann/talk.wav", rate=8000)
    write_talk(folder / "ann/short.wav", sentences=1)
    write_talk(folder / "ann/told.wav").with_suffix(".txt").write_text("all of it")
    write_talk(folder / "ann/talk-0001.wav", sentences=1)
    prepare_own(folder, out, Intake(segment=5))
    cuts = read(out)
    parts = [cut for name, cut in cuts.items() if cut.recording_id == "ann-talk"]
    assert [cut.id for cut in parts] == ["ann-talk-0000", "ann-talk-0001x", "ann-talk-0002", "ann-talk-0003"]
    assert [cut.start for cut in parts] == pytest.approx([0, 2.85, 5.85, 8.85], abs=0.05)
    assert [cut.duration for cut in parts] == pytest.approx([2.15, 2.3, 2.3, 2.3], abs=0.1)
    assert all(cut.load_audio().shape == (1, cut.num_samples) for cut in parts)
    assert {cut.supervisions[0].speaker for cut in parts} == {"ann"}
    wholes = {name: cut.duration for name, cut in cuts.items() if cut.recording_id != "ann-talk"}
    assert wholes == {"ann-short": 3.0, "ann-told": 12.0, "ann-talk-0001": 3.0}
    assert previous_in_recording(parts) == {
        "ann-talk-0001x": "ann-talk-0000",
        "ann-talk-0002": "ann-talk-0001x",
        "ann-talk-0003": "ann-talk-0002",
    }


def test_a_line_of_a_table_is_cut_within_its_bounds(tmp_path: Path, out: Path) -> None:
    write_talk(tmp_path / "talk.wav")
    table = tmp_path / "talks.csv"
    table.write_text("path,start,end,speaker,id\ntalk.wav,0.123,8.456,bob,b\n")
    prepare_own(table, out, Intake(segment=5))
    cuts = read(out)
    assert list(cuts) == ["b-0000", "b-0001", "b-0002"]
    assert min(cut.start for cut in cuts.values()) >= 0.123
    assert max(cut.end for cut in cuts.values()) <= 8.456
    assert {cut.supervisions[0].speaker for cut in cuts.values()} == {"bob"}


def test_a_long_recording_without_speech_is_listed(folder: Path, out: Path) -> None:
    write_talk(folder / "talk.wav")
    soundfile.write(folder / "silent.wav", np.zeros(160_000), 16_000)
    prepare_own(folder, out, Intake(segment=5))
    assert all(cut.recording_id == "talk" for cut in read(out).values())
    assert "silent.wav\tholds no speech" in out.with_name("mine.bad.tsv").read_text()


def test_what_is_transcribed_stays_whole_and_is_told(
    folder: Path, out: Path, capsys: pytest.CaptureFixture
) -> None:
    write_talk(folder / "told.wav").with_suffix(".txt").write_text("all of it")
    assert command("prepare", "audio", folder, "--out", out, "--segment", 5) == 0
    assert "not cut, though longer than 5 s: 1 transcribed utterance" in capsys.readouterr().out
    assert list(read(out)) == ["told"]


def test_segments_of_no_length_are_refused() -> None:
    with pytest.raises(UserError, match="1 s or more"):
        Intake(segment=0.2)


def test_parts_keep_the_channel_of_a_cut_and_its_place_in_a_longer_recording(tmp_path: Path) -> None:
    rate, rng = 16_000, np.random.default_rng(0)
    loud, quiet = (rng.normal(0, level, 2 * rate) for level in (0.2, 0.001))
    speech = np.concatenate([loud, quiet, loud])
    path = tmp_path / "call.wav"
    soundfile.write(path, np.stack([rng.normal(0, 0.2, len(speech)), speech], axis=1), rate)
    supervision = SupervisionSegment("call", "call", 0.0, 6.0, channel=1)
    whole = MonoCut(
        "call",
        0.0,
        6.0,
        1,
        supervisions=[supervision],
        recording=Recording.from_file(path, recording_id="call"),
        custom={"part_of": ["day", 100.0]},
    )
    first, second = Intake(segment=3).parts(whole, taken=())
    assert (first.channel, second.channel) == (1, 1)
    assert second.start == pytest.approx(3.85, abs=0.05)
    assert place_of(second) == ("day", pytest.approx(100 + second.start))
    assert Intake(segment=6).parts(whole, taken=()) == [whole]
