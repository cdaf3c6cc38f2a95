"""Whatever holds the user's audio is recognized by what it is."""

import json
from pathlib import Path

import pytest
from lhotse import CutSet, Recording, RecordingSet
from own_files import read, texts, write_audio

from priormatch.errors import UserError
from priormatch.prepare.own import prepare_own, recognize


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
    said = capsys.readouterr().err
    assert "1 audio file left out, not named in metadata.csv" in said
    assert "but the column said looks like text" in said
    prepare_own(tmp_path / "folder", out, text_column="said", overwrite=True)
    assert list(texts(out).values()) == ["hello you"]
    metadata.write_text("LJ001-0001|Printing, in the only sense\n")
    prepare_own(tmp_path / "folder", out, overwrite=True)
    assert list(texts(out)) == ["a", "b"]
    assert "if the transcripts are in metadata.csv" in capsys.readouterr().err


def test_what_is_nothing_of_the_kind(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no such file or folder"):
        recognize(tmp_path / "none")
    with pytest.raises(UserError, match=r"a\.wav is one audio file: give its folder"):
        recognize(write_audio(tmp_path / "a.wav"))
    (tmp_path / "wav.scp").touch()
    with pytest.raises(UserError, match="is part of a Kaldi folder: give the folder"):
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
