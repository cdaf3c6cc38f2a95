"""A user's folder or table becomes a manifest, whatever is wrong in it."""

from dataclasses import astuple
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest
import soundfile
from ffmpeg_stub import MP4, stand_in
from lhotse import CutSet
from own_files import read, truncate, write_audio

from priormatch.data.manifest import Summary, summary
from priormatch.data.waveforms import read_samples
from priormatch.errors import UserError
from priormatch.prepare.listings import list_table
from priormatch.prepare.overview import decode_some, survey_speech
from priormatch.prepare.own import prepare_own


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "audio"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "made" / "mine.jsonl.gz"


def test_folder(folder: Path, out: Path) -> None:
    write_audio(folder / "top.WAV")
    write_audio(folder / "ann/one.flac", text='\ufeff"Hello, World!"\n')
    write_audio(folder / "ann/deep/two.ogg", rate=22_050)
    write_audio(folder / "bob/three.opus", rate=48_000)
    write_audio(folder / "bob/four.mp3")
    (folder / "ann/._one.flac").write_bytes(b"left by a file manager")
    assert prepare_own(folder, out) == out
    cuts = read(out)
    assert {name: cut.supervisions[0].speaker for name, cut in cuts.items()} == {
        "ann-deep-two": "ann",
        "ann-one": "ann",
        "bob-four": "bob",
        "bob-three": "bob",
        "top": None,
    }
    assert {name: cut.supervisions[0].text for name, cut in cuts.items() if cut.supervisions[0].text} == {
        "ann-one": "hello world"
    }
    assert all(cut.load_audio().shape == (1, 8_000) for cut in cuts.values())
    assert not out.with_name("mine.bad.tsv").exists()


def test_ids_are_unique(folder: Path, out: Path) -> None:
    for name in ("a/b.wav", "a-b.wav", "a-b.flac", "a-b-2.wav"):
        write_audio(folder / name)
    prepare_own(folder, out)
    assert sorted(cut.id for cut in CutSet.from_file(out)) == ["a-b", "a-b-2", "a-b-3", "a-b-4"]


def test_the_first_of_several_channels_is_used(folder: Path, out: Path) -> None:
    folder.mkdir()
    channels = np.stack([np.full(1600, 0.25), np.full(1600, -0.75)], axis=1)
    soundfile.write(folder / "stereo.wav", channels, 16_000)
    prepare_own(folder, out)
    assert np.allclose(read(out)["stereo"].load_audio(), 0.25, atol=1e-3)


def test_bad_files_are_skipped_and_listed(folder: Path, out: Path) -> None:
    for i in range(20):
        write_audio(folder / f"{i:02d}.wav")
    bad = truncate(folder / "03.wav")
    prepare_own(folder, out)
    assert astuple(summary(read(out).values())) == pytest.approx((19, 9.5 / 3600, 0, 0))
    listing = out.with_name("mine.bad.tsv")
    assert listing.read_text() == f"path\treason\n{bad}\ttruncated: 20 bytes are missing at the end\n"
    write_audio(bad)
    prepare_own(folder, out, overwrite=True)
    assert len(read(out)) == 20
    assert not listing.exists()


def test_one_speaker_in_two_spellings_and_texts_in_capitals(folder: Path, out: Path) -> None:
    """As copies between macOS, Linux and Windows make them."""
    for form in ("NFC", "NFD"):
        place = folder / normalize(form, "Jürgen")
        place.mkdir(parents=True)
        write_audio(place / f"{form}.WAV")
        (place / f"{form}.TXT").write_text("hello")
    prepare_own(folder, out)
    (one,), (other,) = (cut.supervisions for cut in read(out).values())
    assert one.speaker == other.speaker == "Jürgen"
    assert one.text == other.text == "hello"


def test_recordings_that_must_be_converted_first_are_listed(folder: Path, out: Path) -> None:
    write_audio(folder / "one.wav")
    (folder / "one.wma").write_bytes(b"what one.wav was made of")
    (folder / "two.wma").write_bytes(b"as old computers record")
    prepare_own(folder, out)
    assert set(read(out)) == {"one"}
    (line,) = out.with_name("mine.bad.tsv").read_text().splitlines()[1:]
    assert line.startswith(f"{folder / 'two.wma'}\t")
    assert line.endswith("convert it: ffmpeg -i two.wma two.wav")


def test_recordings_that_ffmpeg_decodes_are_written_once_beside_the_manifest(
    folder: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = stand_in(tmp_path, monkeypatch)
    (folder / "ann").mkdir(parents=True)
    (folder / "ann" / "a b.m4a").write_bytes(MP4)
    (folder / "ann" / "a b.txt").write_text("hello")
    for _ in range(2):
        prepare_own(folder, out, overwrite=True)
    assert called.read_text().count("-nostdin") == 1
    cut = read(out)["ann-a b"]
    assert (cut.duration, cut.supervisions[0].text, cut.supervisions[0].speaker) == (2.0, "hello", "ann")
    (decoded,) = out.with_name("mine.audio").iterdir()
    assert cut.recording.sources[0].source == str(decoded)
    assert len(read_samples(cut)) == 32_000
    found = survey_speech(folder)
    assert (found.bad, found.durations, decode_some(found, 9)) == ({}, [2.0], (1, []))
    monkeypatch.setenv("PATH", str(tmp_path))
    (reason,) = survey_speech(folder).bad.values()
    assert "ffmpeg, which is not on the PATH: install" in reason


def test_one_bad_file_never_stops_a_small_folder_but_two_may(folder: Path, out: Path) -> None:
    for name in "abc":
        write_audio(folder / f"{name}.flac")
    truncate(folder / "a.flac")
    prepare_own(folder, out)
    truncate(folder / "b.flac")
    with pytest.raises(
        UserError, match=r"2 of 3 .* a share of 0.05.*mine.bad.tsv, .*--max-bad-share"
    ) as error:
        prepare_own(folder, out, overwrite=True)
    assert str(folder / "a.flac") in str(error.value)
    assert sorted(read(out)) == ["b", "c"], "the old manifest stays"
    prepare_own(folder, out, overwrite=True, max_bad_share=0.7)
    assert sorted(read(out)) == ["c"]


@pytest.mark.parametrize("text", [b"", b" \n", b"...!", b"\xff\xfe\xfa"])
def test_transcripts_without_a_word_are_bad(folder: Path, out: Path, text: bytes) -> None:
    write_audio(folder / "good.wav", text="good")
    write_audio(folder / "bad.wav").with_suffix(".txt").write_bytes(text)
    prepare_own(folder, out)
    assert list(read(out)) == ["good"]
    assert "its transcript" in out.with_name("mine.bad.tsv").read_text()


def test_nothing_is_written_over(folder: Path, out: Path) -> None:
    write_audio(folder / "a.wav")
    prepare_own(folder, out)
    before = out.read_bytes()
    write_audio(folder / "b.wav")
    with pytest.raises(UserError, match=r"exists already: .*--overwrite"):
        prepare_own(folder, out)
    assert out.read_bytes() == before


def test_an_interrupt_leaves_nothing_behind(folder: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_audio(folder / "a.wav")

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("priormatch.data.manifest.list_bad", interrupt)
    with pytest.raises(KeyboardInterrupt):
        prepare_own(folder, out)
    assert list(out.parent.iterdir()) == []


def test_folders_and_places_that_will_not_do(folder: Path, out: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"audio: there is no such"):
        prepare_own(folder, out)
    folder.mkdir()
    with pytest.raises(UserError, match="contains no audio"):
        prepare_own(folder, out)
    file = write_audio(folder / "a.wav")
    with pytest.raises(UserError, match=r"a\.wav is one audio file"):
        prepare_own(file, out)
    with pytest.raises(UserError, match=r"cannot write .*a.wav"):
        prepare_own(folder, file / "mine.jsonl.gz")
    with pytest.raises(UserError, match=r"must end in .jsonl.gz"):
        prepare_own(folder, tmp_path / "mine.json")
    assert not out.parent.exists()


def write_table(folder: Path, *lines: str) -> Path:
    folder.mkdir(exist_ok=True)
    table = folder / "table.csv"
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return table


def test_csv(folder: Path, out: Path, tmp_path: Path) -> None:
    write_audio(folder / "x/a.wav", 4)
    elsewhere = write_audio(tmp_path / "b.flac", 2, rate=8_000)
    table = write_table(
        folder,
        "\ufeffPath,speaker,text,id,start,end,mood",
        'x/a.wav,ann,"Hello, you",first,0.5,1.75,calm',
        "x/a.wav,ann,,,2,,",
        "x/a.wav,,,,,4.005,",
        "",
        f"{elsewhere},bob,Bye,,,,",
    )
    prepare_own(table, out)
    cuts = read(out)
    name = "-".join(elsewhere.with_suffix("").parts[1:])
    assert list(cuts) == ["first", "x-a", "x-a-2", name]
    assert [(cut.start, cut.duration) for cut in cuts.values()] == [(0.5, 1.25), (2, 2), (0, 4), (0, 2)]
    assert [cut.supervisions[0].text for cut in cuts.values()] == ["hello you", None, None, "bye"]
    assert [cut.supervisions[0].speaker for cut in cuts.values()] == ["ann", "ann", None, "bob"]
    assert cuts["first"].load_audio().shape == (1, 20_000)
    assert cuts[name].load_audio().shape == (1, 32_000)


def test_csv_with_tabs_reads_quotes_as_characters(folder: Path, out: Path) -> None:
    write_audio(folder / "a.wav")
    write_audio(folder / "b.wav")
    table = write_table(folder, "path\ttext", 'a.wav\t"Well, he said', "b.wav\tno")
    prepare_own(table, out)
    assert [cut.supervisions[0].text for cut in CutSet.from_file(out)] == ["well he said", "no"]


def test_csv_with_semicolons_as_spreadsheets_write_it(folder: Path, out: Path) -> None:
    write_audio(folder / "a.wav")
    write_audio(folder / "b.wav")
    table = write_table(folder, '"Path";"text, as said";text', 'a.wav;;"Well; yes, no"', "b.wav;;no, yes")
    prepare_own(table, out)
    assert [cut.supervisions[0].text for cut in CutSet.from_file(out)] == ["well yes no", "no yes"]


def test_common_voice_as_it_is_released(folder: Path, out: Path, capsys: pytest.CaptureFixture) -> None:
    write_audio(folder / "clips/one.mp3")
    write_audio(folder / "clips/two.mp3")
    table = folder / "train.tsv"
    table.write_text(
        "client_id\tpath\tsentence_id\tsentence\tup_votes\n"
        'c0ffee\tone.mp3\t9\t"Hello, you\t2\nf00d\ttwo.mp3\t8\tBye\t0\n'
    )
    prepare_own(table, out)
    cuts = read(out)
    assert {name: cut.supervisions[0].text for name, cut in cuts.items()} == {
        "one": "hello you",
        "two": "bye",
    }
    assert cuts["one"].supervisions[0].speaker == "c0ffee"
    printed = capsys.readouterr().err
    assert (
        f"{table}: reading the columns client_id, path, sentence of client_id, path, sentence_id," in printed
    )
    assert "warning" not in printed


@pytest.mark.parametrize(
    "header", ["file,transcript", "File_Name;Transcription", "audio_filepath\tnormalized_text"]
)
def test_tables_with_other_usual_names(folder: Path, out: Path, header: str) -> None:
    write_audio(folder / "a.wav")
    mark = next(each for each in ",;\t" if each in header)
    prepare_own(write_table(folder, header, f"a.wav{mark}Hello!"), out)
    assert [cut.supervisions[0].text for cut in CutSet.from_file(out)] == ["hello"]


def test_columns_of_a_table_may_be_named(folder: Path, out: Path) -> None:
    write_audio(folder / "a.wav")
    table = write_table(folder, "Clip;n, in all;raw;text;path", "a.wav;1;Hello!;other;none.wav")
    prepare_own(table, out, audio_column="Clip", text_column="raw")
    assert [cut.supervisions[0].text for cut in CutSet.from_file(out)] == ["hello"]
    with pytest.raises(
        UserError, match=r"line 1: words is not a column .* name one of Clip, n, in all, raw, text, path"
    ):
        prepare_own(table, out, text_column="words", overwrite=True)


def test_text_that_is_not_read_is_named(folder: Path, out: Path, capsys: pytest.CaptureFixture) -> None:
    write_audio(folder / "a.wav")
    table = write_table(folder, "path,raw_text,text,mood", "a.wav,Hello you,,calm")
    prepare_own(table, out)
    printed = capsys.readouterr().err
    assert "nothing is transcribed, but the column raw_text looks like text" in printed
    assert "the column mood" not in printed
    prepare_own(table, out, text_column="raw_text", overwrite=True)
    assert "warning" not in capsys.readouterr().err


def test_lists_in_a_folder_without_transcripts_are_named(
    folder: Path, out: Path, capsys: pytest.CaptureFixture
) -> None:
    write_audio(folder / "train/a.wav")
    (folder / "train/said.csv").write_text("path,text\na.wav,hello\n")
    prepare_own(folder, out)
    assert "if the transcripts are in train/said.csv, provide that file" in capsys.readouterr().err
    (folder / "train/a.txt").write_text("hello")
    prepare_own(folder, out, overwrite=True)
    assert "said.csv" not in capsys.readouterr().err


def test_csv_lists_audio_it_cannot_use(folder: Path, out: Path) -> None:
    write_audio(folder / "a.wav", 1)
    table = write_table(
        folder,
        "path,start,end,text",
        "a.wav,0,1,",
        "a.wav,0.5,2,",
        "a.wav,1,,",
        "b.wav,,,",
        "a.wav,,,?!",
        "a.wav,,,at 5 pm",
    )
    prepare_own(table, out, max_bad_share=0.9)
    assert list(read(out)) == ["a"]
    assert [line.split("\t")[1] for line in out.with_name("mine.bad.tsv").read_text().splitlines()[1:]] == [
        "lasts 1.00 s, but line 3 asks for 0.5 to 2",
        "lasts 1.00 s, but line 4 asks for 1 to the end",
        "cannot be opened: No such file or directory",
        "its transcript '?!' contains no word",
        "its transcript 'at 5 pm' has digits: write numbers as words",
    ]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["clip,text", "a.wav,hi"], r"line 1: no audio column among clip, text; .*--audio-column"),
        ([""], "line 1: no audio column among none"),
        (["clip;text", "a.wav;hi"], r"line 1: no audio column among clip, text"),
        (["path;text", "a.wav;hi; you"], "line 2: 3 fields under 2 columns"),
        (["path,path", "a.wav,a.wav"], "line 1: the column path occurs twice"),
        (["path,text"], "no line below its header"),
        (["path,text", "a.wav,hi", "a.wav,hi, you"], "line 3: 3 fields under 2 columns"),
        (["path,text", " ,hi"], "line 2: the path '' names no file"),
        (["path,start", "a.wav,soon"], "line 2: start must be a number of seconds, not 'soon'"),
        (["path,end", "a.wav,nan"], "line 2: end must be a number"),
        (["path,start", "a.wav,-1"], "line 2: start must be a number"),
        (["path,start,end", "a.wav,3,2"], "line 2: the end 2 must come after the start 3"),
        (["path,id", "a.wav,x", "a.wav,y", "a.wav,x"], "line 4: the id 'x' is already on line 2"),
        (["path,text", 'a.wav,"never closed'], r"line \d: unexpected end of data"),
    ],
)
def test_mistakes_in_a_table_name_the_line(folder: Path, out: Path, lines: list[str], message: str) -> None:
    table = write_table(folder, *lines)
    with pytest.raises(UserError, match=message) as error:
        prepare_own(table, out)
    assert str(table) in str(error.value)
    assert not out.parent.exists()


def test_tables_that_cannot_be_read(folder: Path, out: Path) -> None:
    with pytest.raises(UserError, match="cannot read the table"):
        list_table(folder / "none.csv")
    table = write_table(folder, "path")
    table.write_bytes(b"path\n\xff\xfe\n")
    with pytest.raises(UserError, match="not UTF-8"):
        prepare_own(table, out)


def test_recordings_of_a_table_are_told_apart(folder: Path, out: Path) -> None:
    for name in ("a/b.wav", "a-b.wav"):
        write_audio(folder / name)
    table = write_table(folder, "path,id", "a/b.wav,x", "a-b.wav,y", "a/b.wav,z")
    prepare_own(table, out)
    assert [cut.recording_id for cut in read(out).values()] == ["a-b", "a-b-2", "a-b"]


def test_other_kinds_of_audio_are_found_and_read(folder: Path, out: Path) -> None:
    write_audio(folder / "a.aiff", 0.5)
    write_audio(folder / "b.AU", 0.25)
    prepare_own(folder, out)
    cuts = read(out)
    assert [cut.duration for cut in cuts.values()] == [0.5, 0.25]
    assert [len(read_samples(cut)) for cut in cuts.values()] == [8000, 4000]


def test_summaries_read_well() -> None:
    assert str(Summary(1519, 5.312, 28, 1519)) == "1,519 utterances, 5.31 hours, 28 speakers, all transcribed"
    assert str(Summary(2, 0.001, 0, 0)) == "2 utterances, 4s, speakers unknown, none transcribed"
    assert str(Summary(1, 1, 1, 1)) == "1 utterance, 1.00 hours, 1 speaker, all transcribed"
    assert str(Summary(4, 1, 2, 3)) == "4 utterances, 1.00 hours, 2 speakers, 3 transcribed"
