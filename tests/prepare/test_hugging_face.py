"""A Hugging Face data set on disk becomes a manifest, offline."""

import sys
from pathlib import Path
from typing import Any

import pytest
from ffmpeg_stub import MP4, stand_in
from own_files import read, reasons, texts, truncate, write_audio
from tiny_run import command

from priormatch.errors import UserError
from priormatch.prepare.own import prepare_own
from priormatch.prepare.source import Intake

datasets = pytest.importorskip("datasets")
datasets.disable_progress_bars()
EMBEDDED = {"bytes": datasets.Value("binary"), "path": datasets.Value("string")}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "made" / "mine.jsonl.gz"


@pytest.fixture
def wav(tmp_path: Path) -> Path:
    return write_audio(tmp_path / "a.wav", 0.5)


def save(folder: Path, audio: list[Any], typed: bool = True, **columns: list[Any]) -> Path:
    """Save a data set with a column of audio, which datasets knows as such or not."""
    rows = datasets.Dataset.from_dict(
        {"audio": audio} | columns,
        features=datasets.Features(
            {"audio": EMBEDDED}
            | {
                name: datasets.Value("int64" if isinstance(column[0], int) else "string")
                for name, column in columns.items()
            }
        ),
    )
    if typed:
        rows = rows.cast_column("audio", datasets.Audio(sampling_rate=16_000))
    rows.save_to_disk(folder)
    return folder


@pytest.mark.parametrize("typed", [True, False])
def test_bytes_and_paths(wav: Path, out: Path, tmp_path: Path, typed: bool) -> None:
    flac = write_audio(tmp_path / "b.flac", 1.0).read_bytes()
    audio = [
        {"bytes": wav.read_bytes(), "path": "a.wav"},
        {"bytes": flac, "path": None},
        {"bytes": None, "path": str(wav)},
        {"bytes": flac, "path": None},
    ]
    folder = save(
        tmp_path / "set", audio, typed, sentence=["Hello!", None, "", "you"], speaker_id=[1, 2, 1, 2]
    )
    prepare_own(folder, out)
    assert texts(out) == {"set-000000": "hello", "set-000001": None, "set-000002": None, "set-000003": "you"}
    assert [cut.duration for cut in read(out).values()] == [0.5, 1.0, 0.5, 1.0]
    assert read(out)["set-000001"].supervisions[0].speaker == "2"
    written = sorted((out.parent / "mine.audio").iterdir())
    assert sorted(path.suffix for path in written) == [".flac", ".wav"]
    if not typed:  # datasets takes the audio in when it saves a column that it knows
        assert Path(read(out)["set-000002"].recording.sources[0].source) == wav, "in place"
    before = [path.stat().st_mtime_ns for path in written]
    prepare_own(folder, out, overwrite=True)
    assert [path.stat().st_mtime_ns for path in written] == before, "written once"


def test_audio_that_ffmpeg_decodes(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch)
    folder = save(tmp_path / "set", [{"bytes": MP4, "path": "a.m4a"}], typed=False, sentence=["hello"])
    prepare_own(folder, out)
    (cut,) = read(out).values()
    assert (cut.duration, Path(cut.recording.sources[0].source).suffix) == (2.0, ".flac")


def test_a_column_of_paths(wav: Path, out: Path, tmp_path: Path) -> None:
    rows = datasets.Dataset.from_dict({"file": ["a.wav", str(wav)], "id": ["x", None]})
    rows.save_to_disk(tmp_path / "set")
    (tmp_path / "set" / "a.wav").write_bytes(wav.read_bytes())
    prepare_own(tmp_path / "set", out)
    assert texts(out) == {"x": None, "set-000001": None}


def test_columns_may_be_named(wav: Path, out: Path, tmp_path: Path) -> None:
    pair = {"bytes": wav.read_bytes(), "path": "a.wav"}
    columns = {"near": [None], "far": [pair], "text": ["one"], "raw": ["two"], "where": [str(wav)], "n": [1]}
    features = {"near": EMBEDDED, "far": EMBEDDED, "n": datasets.Value("int64")}
    features |= {name: datasets.Value("string") for name in ("text", "raw", "where")}
    folder = tmp_path / "set"
    datasets.Dataset.from_dict(columns, features=datasets.Features(features)).save_to_disk(folder)
    words = ("prepare", "audio", folder, "--out", out, "--overwrite")
    assert command(*words, "--audio-column", "far", "--text-column", "raw") == 0
    assert texts(out) == {"set-000000": "two"}
    assert command(*words, "--audio-column", "where") == 0
    assert texts(out) == {"set-000000": "one"}
    assert Path(read(out)["set-000000"].recording.sources[0].source) == wav
    with pytest.raises(UserError, match="n is not a column that fits; name one of text, raw, where"):
        prepare_own(folder, out, audio_column="far", text_column="n")
    with pytest.raises(
        UserError, match=r"nearby is not a column that .* name one of near, far, text, raw, where"
    ):
        prepare_own(folder, out, audio_column="nearby")
    with pytest.raises(
        UserError, match="is a folder of audio files and has no columns: leave --audio-column"
    ):
        prepare_own(tmp_path, out, text_column="raw")


def test_a_split_must_be_named(wav: Path, out: Path, tmp_path: Path) -> None:
    rows = datasets.Dataset.from_dict({"audio": [str(wav)]})
    datasets.DatasetDict({"train": rows, "dev": rows}).save_to_disk(tmp_path / "sets")
    with pytest.raises(
        UserError, match=r"contains the splits dev, train: name one of them, such as .*sets/dev"
    ):
        prepare_own(tmp_path / "sets", out)
    prepare_own(tmp_path / "sets" / "train", out)
    assert list(read(out)) == ["train-000000"]


def test_parquet_as_the_hub_has_it(
    wav: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "hub"
    (folder / "data").mkdir(parents=True)
    (folder / "hub.py").write_text("raise SystemExit('a script was run')\n")
    pair = {"bytes": wav.read_bytes(), "path": "a.wav"}

    def shard(name: str, text: str) -> Path:
        rows = datasets.Dataset.from_dict({"audio": [pair], "normalized_text": [text]})
        rows.cast_column("audio", datasets.Audio(16_000)).to_parquet(folder / "data" / name)
        return folder / "data" / name

    first = shard("train-00000-of-00002.parquet", "One")
    shard("train-00001-of-00002-0123456789abcdef.parquet", "Two")
    prepare_own(folder, out)
    assert texts(out) == {"train-000000": "one", "train-000001": "two"}
    test = shard("test.Parquet", "Three")
    with pytest.raises(
        UserError, match=r"splits data/test, data/train: use one file .* such as .*test\.Parquet"
    ):
        prepare_own(folder, out, overwrite=True)
    prepare_own(first, out, overwrite=True)
    assert texts(out) == {"train-000000": "one", "train-000001": "two"}
    prepare_own(test, out, overwrite=True)
    assert texts(out) == {"test-000000": "three"}
    stray = write_audio(tmp_path / "hub/stray.wav")
    prepare_own(folder, out, overwrite=True)
    assert list(read(out)) == ["stray"], "audio first"
    stray.unlink()
    test.write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(UserError, match=r"data/test cannot be read as a dataset \(.*\)"):
        prepare_own(test, out, overwrite=True)


def test_text_that_is_not_read_is_named(
    wav: Path, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    rows = {"audio": [str(wav)] * 2, "raw_text": ["Hello you", None], "mood": ["calm", "so so"], "n": [1, 2]}
    datasets.Dataset.from_dict(rows).save_to_disk(tmp_path / "set")
    prepare_own(tmp_path / "set", out)
    printed = capsys.readouterr().err
    assert (
        "but the column raw_text looks like text; if it is the transcript, run `priormatch prepare" in printed
    )
    assert "the column mood" not in printed
    prepare_own(tmp_path / "set", out, text_column="raw_text", overwrite=True)
    assert "warning" not in capsys.readouterr().err


def test_rows_that_cannot_be_used_are_listed(wav: Path, out: Path, tmp_path: Path) -> None:
    broken = truncate(write_audio(tmp_path / "b.wav")).read_bytes()
    audio = [
        {"bytes": wav.read_bytes(), "path": None},
        {"bytes": broken, "path": "b.wav"},
        {"bytes": b"no audio at all", "path": None},
        {"bytes": None, "path": "https://example.org/c.wav"},
        {"bytes": None, "path": None},
        {"bytes": wav.read_bytes(), "path": "../../escape.wav"},
        None,
    ]
    folder = save(tmp_path / "set", audio, typed=False, text=["a", "b", "c", "d", "e", "at 5", "g"])
    prepare_own(folder, out, max_bad_share=0.9)
    assert list(read(out)) == ["set-000000"]
    truncated, not_audio, *others = reasons(out)
    assert "truncated" in truncated
    assert "cannot be opened" in not_audio
    assert others == [
        "cannot be opened: No such file or directory",
        "row 4 has neither audio nor a path",
        "its transcript 'at 5' has digits: write numbers as words",
        "row 6 has neither audio nor a path",
    ]
    prepare_own(folder, out, Intake(transcripts_needed=False), max_bad_share=0.9, overwrite=True)
    assert texts(out) == {"set-000000": "a", "set-000005": None}


def test_data_sets_that_will_not_do(wav: Path, out: Path, tmp_path: Path) -> None:
    def refused(message: str, columns: dict[str, list[Any]]) -> None:
        folder = tmp_path / f"set{len(list(tmp_path.iterdir()))}"
        datasets.Dataset.from_dict(columns).save_to_disk(folder)
        with pytest.raises(UserError, match=message):
            prepare_own(folder, out)

    refused("has no audio column among text, n", {"text": ["a"], "n": [1]})
    refused("has no rows|cannot be read as a dataset", {"audio": []})
    refused("2 rows have the id x", {"audio": [str(wav)] * 2, "id": ["x", "x"]})
    pair = {"bytes": wav.read_bytes(), "path": "a.wav"}
    refused("several audio columns, one, two: name it with .* --audio-column", {"one": [pair], "two": [pair]})
    assert not out.exists()


def test_a_damaged_data_set_is_named(wav: Path, out: Path, tmp_path: Path) -> None:
    folder = save(tmp_path / "set", [{"bytes": None, "path": str(wav)}])
    (arrow,) = folder.glob("*.arrow")
    arrow.write_bytes(arrow.read_bytes()[:40])
    with pytest.raises(UserError, match=r"set cannot be read as a dataset \(.*\): save or download it again"):
        prepare_own(folder, out)
    (folder / "state.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read as a dataset"):
        prepare_own(folder, out)


def test_without_the_library_its_extra_is_named(
    wav: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save(tmp_path / "set", [{"bytes": None, "path": str(wav)}])
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r'pip install "priormatch\[datasets\]"'):
        prepare_own(folder, out)
