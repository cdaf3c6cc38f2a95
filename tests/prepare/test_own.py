"""A user's audio: its format is recognized, long recordings are cut, and a validation set is split off."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from lhotse import CutSet, MonoCut, Recording, RecordingSet, SupervisionSegment
from own_files import read, texts, write_audio
from tiny_run import command

from priormatch.data.manifest import utterance
from priormatch.data.recordings import place_of, previous_in_recording
from priormatch.errors import UserError
from priormatch.prepare.own import prepare_own, recognize, split_by_speaker
from priormatch.prepare.source import Intake


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same audio in every format."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    wav = write_audio(tmp_path / "folder/ann/a.wav", text="Hello")
    recording = Recording.from_file(wav, recording_id="a")
    (tmp_path / "table.tsv").write_text("path\ttext\nfolder/ann/a.wav\tHello\n")
    (tmp_path / "kaldi").mkdir()
    (tmp_path / "kaldi/wav.scp").write_text(f"a {wav}\n")
    (tmp_path / "kaldi/text").write_text("a Hello\n")
    for name in ("nemo.json", "nemo.jsonl"):
        (tmp_path / name).write_text(json.dumps({"audio_filepath": "folder/ann/a.wav", "text": "Hello"}))
    CutSet.from_cuts([recording.to_cut()]).to_file(tmp_path / "cuts.jsonl.gz")
    (tmp_path / "pair").mkdir()
    RecordingSet.from_recordings([recording]).to_file(tmp_path / "pair/recordings.jsonl.gz")
    rows = datasets.Dataset.from_dict({"path": [str(wav)], "text": ["Hello"]})
    rows.save_to_disk(tmp_path / "set")
    (tmp_path / "hub/data").mkdir(parents=True)
    rows.to_parquet(tmp_path / "hub/data/train-00000-of-00001.parquet")
    for name, content in (
        ("metadata.csv", "file_name,transcription\na.wav,Hello\n"),
        ("metadata.jsonl", '{"file_name": "a.wav", "transcription": "Hello"}\n'),
    ):
        write_audio(tmp_path / name.replace(".", "-") / "a.wav").with_name(name).write_text(content)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "what", "text"),
    [
        ("folder", "a folder of audio files", "hello"),
        ("table.tsv", "a table", "hello"),
        ("kaldi", "a Kaldi folder", "hello"),
        ("nemo.json", "a NeMo manifest", "hello"),
        ("nemo.jsonl", "a NeMo manifest", "hello"),
        ("cuts.jsonl.gz", "a Lhotse manifest", None),
        ("pair", "Lhotse recordings", None),
        ("set", "a Hugging Face dataset", "hello"),
        ("hub", "a Hugging Face dataset in Parquet", "hello"),
        ("metadata-csv", "a folder that metadata.csv describes", "hello"),
        ("metadata-jsonl", "a folder that metadata.jsonl describes", "hello"),
    ],
)
def test_formats(home: Path, name: str, what: str, text: str | None, capsys: pytest.CaptureFixture) -> None:
    out = prepare_own(home / name, home / "made.jsonl.gz")
    assert list(texts(out).values()) == [text]
    assert [cut.load_audio().shape for cut in read(out).values()] == [(1, 8000)]
    assert f"{home / name}: {what}\n" in capsys.readouterr().err


def test_a_described_folder_leaves_out_what_is_not_named(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    write_audio(tmp_path / "folder/a.wav")
    write_audio(tmp_path / "folder/b.wav")
    metadata, out = tmp_path / "folder/metadata.csv", tmp_path / "made.jsonl.gz"
    metadata.write_text("file_name,said\na.wav,Hello you\n")
    prepare_own(tmp_path / "folder", out)
    printed = capsys.readouterr().err
    assert "1 audio file left out, not named in metadata.csv" in printed
    assert "but the column said looks like text" in printed
    prepare_own(tmp_path / "folder", out, text_column="said", overwrite=True)
    assert list(texts(out).values()) == ["hello you"]
    metadata.write_text("LJ001-0001|Printing, in the only sense\n")
    prepare_own(tmp_path / "folder", out, overwrite=True)
    assert list(texts(out)) == ["a", "b"]
    assert "if the transcripts are in metadata.csv" in capsys.readouterr().err


def test_unknown_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no such file or folder"):
        recognize(tmp_path / "none")
    with pytest.raises(UserError, match=r"a\.wav is one audio file: pass its folder"):
        recognize(write_audio(tmp_path / "a.wav"))
    (tmp_path / "wav.scp").touch()
    with pytest.raises(UserError, match="is part of a Kaldi folder: provide the folder"):
        recognize(tmp_path / "wav.scp")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UserError, match=r"notes\.txt is not a list of audio in a known format"):
        recognize(tmp_path / "notes.txt")
    (tmp_path / "array.json").write_text('[{"audio_filepath": "a.wav"}]')
    with pytest.raises(UserError, match=r"array\.json, line 1: not a JSON object"):
        prepare_own(tmp_path / "array.json", tmp_path / "made.jsonl.gz")
    (tmp_path / "notes.jsonl").write_text("no JSON\n")
    with pytest.raises(UserError, match=r"notes\.jsonl, line 1: not a Lhotse cut"):
        prepare_own(tmp_path / "notes.jsonl", tmp_path / "made.jsonl.gz")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "audio").mkdir()
    return tmp_path / "audio"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "mine.jsonl.gz"


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
    write_talk(folder / "ann/read.wav").with_suffix(".txt").write_text("all of it")
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
    assert wholes == {"ann-short": 3.0, "ann-read": 12.0, "ann-talk-0001": 3.0}
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
    assert "silent.wav\tcontains no speech" in out.with_name("mine.bad.tsv").read_text()


def test_transcribed_recordings_are_not_cut_and_reported(
    folder: Path, out: Path, capsys: pytest.CaptureFixture
) -> None:
    write_talk(folder / "read.wav").with_suffix(".txt").write_text("all of it")
    assert command("prepare", "audio", folder, "--out", out, "--segment", 5) == 0
    assert "not cut, though longer than 5 s: 1 transcribed utterance" in capsys.readouterr().out
    assert list(read(out)) == ["read"]


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
    recording, start = place_of(second)
    assert recording == "day"
    assert start == pytest.approx(100 + second.start)
    assert Intake(segment=6).parts(whole, taken=()) == [whole]


def cuts(spoken: Sequence[tuple[str | None, float]]) -> CutSet:
    return CutSet.from_cuts(
        utterance(f"u{i}", Recording(f"u{i}", [], 16_000, round(16_000 * seconds), seconds), None, speaker)
        for i, (speaker, seconds) in enumerate(spoken)
    )


def speakers(part: CutSet) -> set[str | None]:
    return {cut.supervisions[0].speaker for cut in part}


SPOKEN = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 30).map(float)), min_size=2).filter(
    lambda spoken: len({speaker for speaker, _ in spoken}) > 1
)


@given(SPOKEN, st.floats(0.01, 0.99), st.integers(0, 1000))
def test_speakers_are_disjoint_and_nothing_is_lost(
    spoken: list[tuple[str, float]], share: float, seed: int
) -> None:
    train, validation = split_by_speaker(cuts(spoken), share, seed)
    assert speakers(train) and speakers(validation)
    assert not speakers(train) & speakers(validation)
    assert sorted([*train.ids, *validation.ids]) == sorted(f"u{i}" for i in range(len(spoken)))
    again = split_by_speaker(cuts(spoken), share, seed)
    assert [list(part.ids) for part in again] == [list(train.ids), list(validation.ids)]


def test_the_share_is_met_and_the_seed_matters() -> None:
    spoken = cuts([(f"s{i % 40}", 10.0) for i in range(400)])
    drawn = set()
    for seed in range(5):
        _, validation = split_by_speaker(spoken, 0.1, seed)
        assert sum(cut.duration for cut in validation) == pytest.approx(400)
        drawn.add(tuple(validation.ids))
    assert len(drawn) > 1


def test_a_tiny_share_takes_the_shortest_speaker() -> None:
    spoken = cuts([("long", 100.0), ("short", 10.0), ("middle", 50.0)])
    assert all(speakers(split_by_speaker(spoken, 0.01, seed)[1]) == {"short"} for seed in range(5))


def test_unknown_speakers_stay_in_training() -> None:
    train, validation = split_by_speaker(cuts([("a", 5.0), (None, 5.0), ("b", 5.0), (None, 5.0)]), 0.9, 1)
    assert None in speakers(train)
    assert None not in speakers(validation)


@pytest.mark.parametrize("speaker", [None, "only"])
def test_without_two_speakers_utterances_are_drawn_and_a_message_is_printed(
    speaker: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    train, validation = split_by_speaker(cuts([(speaker, 2.0)] * 50), 0.1, 0)
    assert (len(train), len(validation)) == (45, 5)
    assert "fewer than two speakers" in capsys.readouterr().err


def test_impossible_splits_are_refused() -> None:
    with pytest.raises(UserError, match="1 utterance"):
        split_by_speaker(cuts([("a", 5.0)]), 0.1, 0)
    for share in (0.0, 1.0, -0.1, float("nan")):
        with pytest.raises(UserError, match="between 0 and 1"):
            split_by_speaker(cuts([("a", 5.0), ("b", 5.0)]), share, 0)
