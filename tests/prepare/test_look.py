from pathlib import Path

import numpy as np
import pytest
import soundfile
from lhotse import CutSet, MonoCut, Recording, RecordingSet, SupervisionSegment, SupervisionSet

from priormatch.data.normalizer import Normalizer
from priormatch.errors import UserError
from priormatch.prepare.look import decode_some, letters, look_at_speech, look_at_text, spread


def write(path, seconds=1.0):
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.zeros(round(8000 * seconds)), 8000)


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "speech" / "ann" / "one.wav", 1.0)
    (tmp_path / "speech" / "ann" / "one.txt").write_text("Hello there.")
    write(tmp_path / "speech" / "bob" / "deep" / "two.flac", 2.0)
    write(tmp_path / "speech" / "three.wav", 3.0)
    (tmp_path / "speech" / "notes.txt").write_text("not a transcript")
    return tmp_path / "speech"


def test_a_folder(folder):
    found = look_at_speech(folder)
    assert (len(found.utterances), found.transcribed, found.speakers) == (3, 1, 2)
    assert found.hours == pytest.approx(6 / 3600)
    assert found.transcripts() == ["Hello there."]
    assert str(found) == "3 utterances, 1 of them transcribed, 6s, 2 speakers"


def test_a_table(folder):
    (folder / "table.csv").write_text(
        "path,text,speaker,start,end\nthree.wav,hello,ann,0.5,1.0\nthree.wav,,,,\n"
    )
    found = look_at_speech(folder / "table.csv")
    assert (len(found.utterances), found.transcribed, found.speakers) == (2, 1, 1)
    assert found.durations == [0.5, 3.0]


def test_a_kaldi_folder(folder):
    (folder / "wav.scp").write_text(f"long three.wav\nother {folder}/ann/one.wav\n")
    (folder / "segments").write_text("a long 0 1.5\nb long 1.5 -1\nc other 0 1\n")
    (folder / "text").write_text("a Hello there\n")
    (folder / "utt2spk").write_text("a ann\nb ann\nc bob\n")
    found = look_at_speech(folder)
    assert (len(found.utterances), found.transcribed, found.speakers) == (3, 1, 2)
    assert found.durations[::2] == [1.5, 1.0]
    assert decode_some(found, 5) == (2, [])


def test_a_nemo_manifest(folder):
    lines = [
        '{"audio_filepath": "three.wav", "duration": 2, "text": "one"}',
        '{"audio_filepath": "gone.wav"}',
    ]
    (folder / "nemo.jsonl").write_text("\n".join(lines))
    found = look_at_speech(folder / "nemo.jsonl")
    assert (found.transcripts(), found.durations) == (["one"], [2.0])
    tried, [(file, reason)] = decode_some(found, 5)
    assert (tried, file) == (2, folder / "gone.wav")
    assert "No such file" in reason


def test_recordings_and_supervisions_of_lhotse(folder):
    recording = Recording.from_file(folder / "three.wav")
    said = SupervisionSegment("a", recording.id, 1.0, 0.5, text="hello", speaker="ann")
    (folder / "lhotse").mkdir()
    RecordingSet.from_recordings([recording]).to_file(folder / "lhotse" / "x_recordings_y.jsonl.gz")
    SupervisionSet.from_segments([said]).to_file(folder / "lhotse" / "x_supervisions_y.jsonl.gz")
    found = look_at_speech(folder / "lhotse")
    assert (found.transcripts(), found.durations, found.speakers) == (["hello"], [0.5], 1)
    assert decode_some(found, 5) == (1, [])


def test_a_data_set_that_holds_its_audio(folder, tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    audio = [{"bytes": path.read_bytes(), "path": None} for path in sorted(folder.rglob("*.[wf][al]*"))]
    audio[1]["bytes"] = audio[1]["bytes"][:-20]
    rows = {"audio": audio, "sentence": ["one", None, ""], "client_id": ["a", "b", "a"]}
    datasets.Dataset.from_dict(rows).save_to_disk(tmp_path / "set")
    before = sorted(tmp_path.rglob("*"))
    found = look_at_speech(tmp_path / "set")
    assert (found.transcripts(), found.speakers) == (["one"], 2)
    assert sum(found.durations) == pytest.approx(6, abs=0.1)
    tried, bad = decode_some(found, 5)
    assert (tried, len(bad)) == (3, 1)
    assert sorted(tmp_path.rglob("*")) == before, "nothing is written beside it"


def test_cuts_without_audio_are_counted_as_bad(tmp_path):
    cut = MonoCut("a", 0.0, 2.0, 0, [SupervisionSegment("a", "r", 0.0, 2.0, text="hello")])
    CutSet.from_cuts([cut]).to_file(tmp_path / "cuts.jsonl.gz")
    found = look_at_speech(tmp_path / "cuts.jsonl.gz")
    assert decode_some(found, 5) == (1, [(Path("a"), "the cut has no audio")])


def test_cuts(tiny_corpus):
    found = look_at_speech(tiny_corpus(["monday", "at ten"]))
    assert found.transcripts() == ["monday", "at ten"]
    assert found.durations == pytest.approx([0.2, 0.4])
    assert decode_some(found, 5) == (2, [])


def test_damage_is_found_by_decoding_and_headers_that_lie_are_left_out_of_the_hours(folder):
    (folder / "ann" / "one.wav").write_bytes(b"RIFF, but no more")
    found = look_at_speech(folder)
    assert len(found.durations) == 2
    assert found.hours == pytest.approx(2.5 * 3 / 3600)
    assert str(found).endswith("about 8s, 2 speakers")
    tried, [(file, reason)] = decode_some(found, 10)
    assert (tried, file.name) == (3, "one.wav")
    assert "cannot be opened" in reason


@pytest.mark.parametrize(("name", "words"), [("nowhere", "no such"), ("empty", "holds no audio")])
def test_what_is_not_there(tmp_path, name, words):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=words):
        look_at_speech(tmp_path / name)


@pytest.mark.parametrize("count", [1, 9, 10, 11, 19, 20, 21, 105])
def test_a_sample_is_spread_and_no_larger_than_wanted(count):
    drawn = spread(range(count), 10)
    assert 0 < len(drawn) <= 10
    assert len(drawn) == count or drawn[-1] >= count // 2


def test_text_is_taken_from_all_files(tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(f"\n{name.upper()} one!\n{name} two\n{name} three\n")
    assert look_at_text(tmp_path, most=3) == ["a one", "b one", "c one"]
    assert len(look_at_text(tmp_path)) == 9
    (tmp_path / "a.txt").write_text("Straße 7, zurück\n中文\n")
    assert look_at_text(tmp_path / "a.txt", Normalizer("unicode")) == ["straße zurück", "中文"]
    assert look_at_text(tmp_path / "a.txt", Normalizer("unicode", "acekrstuzßü")) == ["straße zurück"]
    (tmp_path / "blank").mkdir()
    (tmp_path / "blank" / "blank.txt").write_text("\n 12 \n")
    with pytest.raises(UserError, match="no sentence"):
        look_at_text(tmp_path / "blank")


def test_letters():
    assert letters(["ab a", "b"]) == {"a": 2, "b": 2}
