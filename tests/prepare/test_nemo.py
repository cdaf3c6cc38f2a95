"""NeMo's JSON lines become a manifest."""

import gzip
import json
from pathlib import Path

import pytest
from own_files import read, reasons, texts, write_audio

from priormatch.data.normalizer import Normalizer
from priormatch.errors import UserError
from priormatch.prepare.own import prepare_own
from priormatch.prepare.source import Intake


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_audio(tmp_path / "nemo/clips/a.wav", 2)
    return tmp_path / "nemo/manifest.json"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "made.jsonl.gz"


def write(file: Path, *entries: object) -> Path:
    file.write_text("".join(f"{json.dumps(each)}\n" for each in entries))
    return file


def test_entries(file: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = write_audio(tmp_path / "b.flac", 1)
    monkeypatch.chdir(tmp_path)
    write(
        file,
        {"audio_filepath": "clips/a.wav", "duration": 2.004, "text": "Grüß Gott!", "speaker": 7},
        {"audio_filepath": "clips/a.wav", "offset": 0.5, "duration": 1.0, "text": "", "lang": "de"},
        {"audio_filepath": str(elsewhere), "duration": 1.0, "text": None, "id": "mine"},
        {"audio_filepath": "b.flac"},
    )
    prepare_own(file, out, Intake(Normalizer("unicode")))
    assert texts(out) == {"clips-a": "grüß gott", "clips-a-2": None, "mine": None, "b": None}
    assert [(cut.start, cut.duration) for cut in read(out).values()] == [(0, 2), (0.5, 1), (0, 1), (0, 1)]
    assert read(out)["clips-a"].supervisions[0].speaker == "7"


def test_other_names_and_columns_that_are_named(file: Path, out: Path, capsys: pytest.CaptureFixture) -> None:
    prepare_own(write(file, {"path": "none.wav", "audio_filepath": "clips/a.wav"}), out)
    assert list(read(out)) == ["clips-a"]
    entry = {
        "path": "clips/a.wav",
        "client_id": 3,
        "sentence": "Hello!",
        "clip": "none.wav",
        "raw": "You there",
    }
    prepare_own(write(file, entry), out, overwrite=True)
    assert texts(out) == {"clips-a": "hello"}
    assert read(out)["clips-a"].supervisions[0].speaker == "3"
    prepare_own(file, out, text_column="raw", overwrite=True)
    assert texts(out) == {"clips-a": "you there"}
    with pytest.raises(UserError, match=r"said is not a column .* path, client_id, sentence, clip, raw"):
        prepare_own(file, out, text_column="said", overwrite=True)
    assert "warning" not in capsys.readouterr().err
    prepare_own(write(file, entry | {"sentence": ""}), out, overwrite=True)
    assert "but the column raw looks like text" in capsys.readouterr().err


def test_compressed_with_line_ends_of_windows_and_a_byte_order_mark(file: Path, out: Path) -> None:
    entry = json.dumps({"audio_filepath": "clips/a.wav", "text": "hello"})
    packed = file.with_name("m.jsonl.gz")
    packed.write_bytes(gzip.compress(f"\ufeff{entry}\r\n\r\n".encode()))
    prepare_own(packed, out)
    assert texts(out) == {"clips-a": "hello"}


def test_what_the_audio_cannot_give_is_listed(file: Path, out: Path) -> None:
    write(
        file,
        {"audio_filepath": "clips/a.wav"},
        {"audio_filepath": "clips/a.wav", "offset": 1, "duration": 1.5},
        {"audio_filepath": "clips/none.wav"},
        {"audio_filepath": "clips/a.wav", "text": "at 5"},
    )
    prepare_own(file, out, max_bad_share=0.9)
    assert list(read(out)) == ["clips-a"]
    assert reasons(out) == [
        "lasts 2.00 s, but line 2 asks for 1 to 2.5",
        "cannot be opened: No such file or directory",
        "its transcript 'at 5' has digits: write numbers as words",
    ]
    prepare_own(file, out, Intake(transcripts_needed=False), max_bad_share=0.9, overwrite=True)
    assert texts(out) == {"clips-a": None, "clips-a-3": None}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"audio_filepath": "a.wav"', r"line 2: not JSON \(Expecting ',' delimiter, column 27\)"),
        ("[1]", "line 2: not a JSON object"),
        ("{}", "line 2: there is no audio_filepath"),
        ('{"audio_filepath": ["a.wav", "b.wav"]}', "line 2: audio_filepath must be text"),
        ('{"audio_filepath": "a.wav", "offset": -1}', "line 2: offset must be a number of seconds, not -1"),
        ('{"audio_filepath": "a.wav", "duration": "x"}', "line 2: duration must be a number of seconds"),
        ('{"audio_filepath": "a.wav", "duration": 1e308}', "line 2: duration must be a number of seconds"),
        ('{"audio_filepath": "a.wav", "duration": NaN}', "line 2: duration must be a number of seconds"),
        ('{"audio_filepath": "a.wav", "duration": true}', "line 2: duration must be a number"),
        ('{"audio_filepath": "a.wav", "duration": [1]}', "line 2: duration must be a number"),
        ('{"audio_filepath": "a.wav", "duration": 0}', "line 2: duration must be above 0"),
        ('{"audio_filepath": "a.wav", "text": 5}', "line 2: text must be text, not 5"),
        ('{"audio_filepath": "a.wav", "id": "x"}', "line 2: the id 'x' is already on line 1"),
        ('{"audio_filepath": "a.wav", "shard_id": 0}', r"line 2: the audio is in a tar file"),
    ],
)
def test_mistakes_name_the_line(file: Path, out: Path, line: str, message: str) -> None:
    file.write_text(f'{{"audio_filepath": "clips/a.wav", "id": "x"}}\n{line}\n')
    with pytest.raises(UserError, match=message) as error:
        prepare_own(file, out)
    assert str(file) in str(error.value)
    assert not out.exists()


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_other_encodings_are_named(file: Path, out: Path, encoding: str) -> None:
    file.write_bytes('{"audio_filepath": "clips/a.wav", "text": "Grüße"}\n'.encode(encoding))
    with pytest.raises(UserError, match=r"manifest\.json is not UTF-8 text"):
        prepare_own(file, out)


def test_an_empty_manifest(file: Path, out: Path) -> None:
    with pytest.raises(UserError, match=r"manifest.json is empty"):
        prepare_own(write(file), out)
