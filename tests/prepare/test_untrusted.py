"""Tables, transcripts and text that are damaged or hostile end in a sentence, or are skipped and named."""

import gzip
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from own_files import read, reasons, texts, write_audio

from priormatch.config import AudioSettings
from priormatch.data import text_files
from priormatch.data.batches import UtteranceReader, once
from priormatch.data.corpus import Corpus, read_cuts
from priormatch.data.normalizer import normalize_unicode
from priormatch.data.text_files import prepare_text, read_sentences
from priormatch.data.tokenizer import Tokenizer
from priormatch.errors import UserError
from priormatch.prepare.overview import sample_speech
from priormatch.prepare.own import prepare_own
from priormatch.prepare.source import Intake


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "made.jsonl.gz"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a", "b", "c"):
        write_audio(tmp_path / "audio" / f"{name}.wav", text="ten to nine")
    return tmp_path / "audio"


def test_more_text_than_frames_is_bad_and_never_split(
    tiny_corpus: Callable[..., Path], tiny_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = Corpus.load(tiny_corpus(["monday at nine", "ten", "at ten"]), AudioSettings())
    corpus.cuts[1].supervisions[0].text = "ten " * 200_000
    corpus.cuts[2].supervisions[0].text = "t n " * 40  # one piece a letter, and as many frames as pieces
    encoded: list[int] = []
    encode = Tokenizer.encode

    def measured(self: Tokenizer, text: str, *others: Any) -> list[int]:
        encoded.append(len(text))
        return encode(self, text, *others)

    monkeypatch.setattr(Tokenizer, "encode", measured)
    (batch,) = once(UtteranceReader(corpus, tiny_tokenizer), 100.0)
    assert batch.ids == ["tiny-0"]
    assert len(batch.waveforms) == len(batch.labels) == 1
    told = dict(batch.bad)
    assert told["tiny-1"] == "its transcript of 800,000 characters is too long for 0.20 s"
    assert "too long for 0.40 s" in told["tiny-2"]
    assert max(encoded) < 1000


def test_transcripts_that_nobody_can_speak_are_listed(folder: Path, out: Path) -> None:
    (folder / "b.txt").write_text("word " * 1000)
    prepare_own(folder, out)
    assert list(texts(out)) == ["a", "c"]
    assert reasons(out) == ["its transcript of 4,999 characters is too long for 0.50 s"]


def test_of_unlabeled_speech_only_the_transcript_is_lost(folder: Path, out: Path) -> None:
    (folder / "b.txt").write_text("word " * 1000)
    prepare_own(folder, out, Intake(transcripts_needed=False))
    assert texts(out) == {"a": "ten to nine", "b": None, "c": "ten to nine"}


@pytest.mark.parametrize("kind", ["fifo", "loop", "large", "nul"])
def test_a_transcript_that_is_no_file_of_text(folder: Path, out: Path, kind: str) -> None:
    path = folder / "b.txt"
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to("other.txt")
        (folder / "other.txt").symlink_to("b.txt")
    else:
        path.write_bytes(b"ten " * 500_000 if kind == "large" else b"ten\0nine")
    speech = sample_speech(folder)
    assert "ten to nine" in speech.transcripts()
    prepare_own(folder, out)
    made = texts(out)
    assert list(made) == ["a", "c"]
    why = {"fifo": "not a regular file", "loop": "symbolic links", "large": "too long", "nul": "NUL"}
    assert why[kind] in reasons(out)[0]
    assert len(read_cuts(out)) == len(made)


def test_a_named_pipe_among_the_audio_is_listed(folder: Path, out: Path) -> None:
    os.mkfifo(folder / "pipe.wav")
    prepare_own(folder, out)
    assert reasons(out) == ["cannot be opened: not a regular file"]


def test_a_sample_of_a_damaged_file_is_listed_when_it_is_prepared(folder: Path, out: Path) -> None:
    samples = np.full(8000, 0.1, np.float32)
    samples[4000] = 1e38
    soundfile.write(folder / "b.wav", samples, 16_000, subtype="FLOAT")
    prepare_own(folder, out)
    assert reasons(out) == ["has samples of 1e+38, where full scale is 1"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('{"audio_filepath": "a\\u0000.wav"}', "NUL"),
        ('{"audio_filepath": "a\\ud800.wav"}', "surrogates"),
        ('{"audio_filepath": "a.wav", "text": "\\udfff"}', "surrogates"),
        ('{"audio_filepath": "a.wav", "id": ' + "[" * 100_000, "nested too deeply"),
        (
            '{"audio_filepath": "a.wav", "duration": ' + "9" * 4000 + "}",
            "duration must be a number of seconds",
        ),
        ('{"audio_filepath": "a.wav", "offset": ' + "9" * 5000 + "}", "4300"),
        ('{"audio_filepath": "a.wav", "duration": Infinity}', "duration must be a number of seconds"),
        ('{"audio_filepath": "a.wav", "text": 12}', "text must be text"),
    ],
)
def test_json_lines(folder: Path, out: Path, entry: str, message: str) -> None:
    (folder / "list.jsonl").write_text(f'{{"audio_filepath": "a.wav"}}\n{entry}\n')
    with pytest.raises(UserError, match=rf"list\.jsonl, line 2: .*{message}") as refusal:
        prepare_own(folder / "list.jsonl", out)
    assert len(str(refusal.value)) < 400


def test_tables_with_nul_characters(folder: Path, out: Path) -> None:
    (folder / "list.csv").write_bytes(b"path,text\na.wav,ten\nb\0.wav,ten\n")
    with pytest.raises(UserError, match=r"list\.csv, line 3: a NUL character"):
        prepare_own(folder / "list.csv", out)


@pytest.mark.parametrize("name", ["list.csv", "list.jsonl", "list.txt"])
def test_lists_that_are_named_pipes_are_not_waited_for(
    folder: Path, tmp_path: Path, out: Path, name: str
) -> None:
    os.mkfifo(folder / name)
    with pytest.raises(UserError, match=name):
        prepare_own(folder / name, out)
    with pytest.raises(UserError, match=name):
        list(read_sentences(folder / name))


def test_lines_are_bounded_also_those_of_compressed_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_files, "MOST_BYTES", 1000)
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"a" * 1000 + b"\n"))
    with pytest.raises(UserError, match=r"a\.txt\.gz has a line of more than"):
        list(read_sentences(path))
    path.write_bytes(gzip.compress(b"a" * 999 + b"\n" + b"b" * 1000))
    assert [len(line) for line in read_sentences(path)] == [999, 1000]


def test_text_with_links_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "good.txt").write_text("ten to nine.\n")
    (tmp_path / "in" / "a.txt").symlink_to("b.txt")
    (tmp_path / "in" / "b.txt").symlink_to("a.txt")
    (tmp_path / "in" / "up").symlink_to("..")
    assert prepare_text([tmp_path / "in"], tmp_path / "out.txt").sentences == 1


def test_a_word_of_marks_takes_no_time() -> None:
    start = time.process_time()
    assert normalize_unicode("\u0301" * 600_000) == ""
    assert time.process_time() - start < 2


def test_what_is_prepared_can_be_read(folder: Path, out: Path) -> None:
    rows = [{"audio_filepath": "a.wav", "speaker": "Zoë \N{GRINNING FACE}", "text": "häufig", "id": "ä b"}]
    (folder / "list.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    prepare_own(folder / "list.jsonl", out)
    assert [cut.id for cut in read_cuts(out)] == list(read(out)) == ["ä b"]


def test_a_first_look_at_a_folder_waits_for_no_pipe(folder: Path) -> None:
    os.mkfifo(folder / "pipe.wav")
    speech = sample_speech(folder)
    assert (len(speech.utterances), len(speech.durations)) == (4, 3)
