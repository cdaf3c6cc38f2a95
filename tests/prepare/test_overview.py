"""Samples of speech and text as found, and the summary of a prepared manifest."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from lhotse import CutSet, MonoCut, Recording, RecordingSet, SupervisionSegment, SupervisionSet

from priormatch.config import AudioSettings
from priormatch.data.manifest import utterance
from priormatch.data.normalizer import ENGLISH, Normalizer
from priormatch.errors import UserError
from priormatch.prepare import overview as overview_module
from priormatch.prepare.overview import (
    decode_some,
    example_line,
    letter_lines,
    letters,
    overview,
    sample_speech,
    sample_text,
    spread,
    survey_speech,
)
from priormatch.prepare.source import Utterance


def write(path: Any, seconds: float = 1.0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.zeros(round(8000 * seconds)), 8000)


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    write(tmp_path / "speech" / "ann" / "one.wav", 1.0)
    (tmp_path / "speech" / "ann" / "one.txt").write_text("Hello there.")
    write(tmp_path / "speech" / "bob" / "deep" / "two.flac", 2.0)
    write(tmp_path / "speech" / "three.wav", 3.0)
    (tmp_path / "speech" / "notes.txt").write_text("not a transcript")
    return tmp_path / "speech"


def test_a_folder(folder: Any) -> None:
    found = sample_speech(folder)
    assert (len(found.utterances), found.transcribed, found.speakers) == (3, 1, 2)
    assert found.hours == pytest.approx(6 / 3600)
    assert found.transcripts() == ["Hello there."]
    assert str(found) == "3 utterances, 1 of them transcribed, 6s, 2 speakers (1 utterance without one)"


def test_a_table(folder: Any) -> None:
    (folder / "table.csv").write_text(
        "path,text,speaker,start,end\nthree.wav,hello,ann,0.5,1.0\nthree.wav,,,,\n"
    )
    found = sample_speech(folder / "table.csv")
    assert (len(found.utterances), found.transcribed, found.speakers) == (2, 1, 1)
    assert found.durations == [0.5, 3.0]


def test_a_kaldi_folder(folder: Any) -> None:
    (folder / "wav.scp").write_text(f"long three.wav\nother {folder}/ann/one.wav\n")
    (folder / "segments").write_text("a long 0 1.5\nb long 1.5 -1\nc other 0 1\n")
    (folder / "text").write_text("a Hello there\n")
    (folder / "utt2spk").write_text("a ann\nb ann\nc bob\n")
    found = sample_speech(folder)
    assert (len(found.utterances), found.transcribed, found.speakers) == (3, 1, 2)
    assert found.durations[::2] == [1.5, 1.0]
    assert decode_some(found, 5) == (2, [])


def test_a_nemo_manifest(folder: Any) -> None:
    lines = [
        '{"audio_filepath": "three.wav", "duration": 2, "text": "one"}',
        '{"audio_filepath": "gone.wav"}',
    ]
    (folder / "nemo.jsonl").write_text("\n".join(lines))
    found = sample_speech(folder / "nemo.jsonl")
    assert (found.transcripts(), found.durations) == (["one"], [2.0])
    assert "No such file" in found.bad[folder / "gone.wav"]
    assert decode_some(found, 5) == (1, [])


def test_recordings_and_supervisions_of_lhotse(folder: Any) -> None:
    recording = Recording.from_file(folder / "three.wav")
    said = SupervisionSegment("a", recording.id, 1.0, 0.5, text="hello", speaker="ann")
    (folder / "lhotse").mkdir()
    RecordingSet.from_recordings([recording]).to_file(folder / "lhotse" / "x_recordings_y.jsonl.gz")
    SupervisionSet.from_segments([said]).to_file(folder / "lhotse" / "x_supervisions_y.jsonl.gz")
    found = sample_speech(folder / "lhotse")
    assert (found.transcripts(), found.durations, found.speakers) == (["hello"], [0.5], 1)
    assert decode_some(found, 5) == (1, [])


def test_a_data_set_that_holds_its_audio(folder: Any, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    audio = [{"bytes": path.read_bytes(), "path": None} for path in sorted(folder.rglob("*.[wf][al]*"))]
    audio[1]["bytes"] = audio[1]["bytes"][:-20]
    rows = {"audio": audio, "sentence": ["one", None, ""], "client_id": ["a", "b", "a"]}
    datasets.Dataset.from_dict(rows).save_to_disk(tmp_path / "set")
    before = sorted(tmp_path.rglob("*"))
    found = sample_speech(tmp_path / "set")
    assert (found.transcripts(), found.speakers) == (["one"], 2)
    assert sum(found.durations) == pytest.approx(4)
    assert (found.files, len(found.bad)) == (3, 1)
    assert len(decode_some(found, 5)[1]) == 1
    assert sorted(tmp_path.rglob("*")) == before, "nothing is written beside it"


def test_cuts_without_audio_are_counted_as_bad(tmp_path: Path) -> None:
    cut = MonoCut("a", 0.0, 2.0, 0, [SupervisionSegment("a", "r", 0.0, 2.0, text="hello")])
    CutSet.from_cuts([cut]).to_file(tmp_path / "cuts.jsonl.gz")
    found = sample_speech(tmp_path / "cuts.jsonl.gz")
    assert decode_some(found, 5) == (1, [(Path("a"), "the cut has no audio")])


def test_cuts(tiny_corpus: Callable[..., Path]) -> None:
    found = sample_speech(tiny_corpus(["monday", "at ten"]))
    assert found.transcripts() == ["monday", "at ten"]
    assert found.durations == pytest.approx([0.2, 0.4])
    assert decode_some(found, 5) == (2, [])


def test_files_with_bad_headers_are_left_out_of_the_hours_and_not_decoded(folder: Any) -> None:
    (folder / "ann" / "one.wav").write_bytes(b"RIFF, but no more")
    found = survey_speech(folder)
    assert found.hours == pytest.approx(5 / 3600)
    [(file, reason)] = found.bad.items()
    assert (file.name, found.files) == ("one.wav", 3)
    assert "cannot be opened" in reason
    assert decode_some(found, 10) == (2, [])


def test_damage_behind_the_header_is_found_by_decoding(folder: Any) -> None:
    path = folder / "bob" / "deep" / "two.flac"
    soundfile.write(path, np.random.default_rng(0).uniform(-0.3, 0.3, 16_000), 8000)
    content = bytearray(path.read_bytes())
    content[9000:9500] = bytes(500)
    path.write_bytes(content)
    found = survey_speech(folder)
    assert (found.bad, decode_some(found, 10)[0]) == ({}, 3)
    [(file, reason)] = decode_some(found, 10)[1]
    assert (file, "damaged" in reason) == (path, True)


def test_a_survey_reads_all_headers_where_a_sample_reads_some(
    folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview_module, "MOST_DURATIONS", 2)
    sampled, whole = sample_speech(folder), survey_speech(folder)
    assert len(sampled.durations) == 2
    assert sampled.hours == pytest.approx(1.5 * sum(sampled.durations) / 3600)
    assert "about" in str(sampled)
    assert sorted(whole.durations) == [1.0, 2.0, 3.0]
    assert whole.hours == pytest.approx(6 / 3600)
    assert "about" not in str(whole)


def test_a_survey_opens_each_file_once_whatever_the_manifest_says(folder: Any) -> None:
    lines = [f'{{"audio_filepath": "three.wav", "offset": {start}, "duration": 1}}' for start in (0, 1)]
    (folder / "nemo.jsonl").write_text("\n".join([*lines, '{"audio_filepath": "gone.wav", "duration": 9}']))
    found = survey_speech(folder / "nemo.jsonl")
    assert (found.files, list(found.bad), found.durations) == (2, [folder / "gone.wav"], [1.0, 1.0])


@pytest.mark.parametrize(("name", "words"), [("nowhere", "no such"), ("empty", "contains no audio")])
def test_what_is_not_there(tmp_path: Path, name: Any, words: Any) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=words):
        sample_speech(tmp_path / name)


def test_an_example_is_one_line() -> None:
    recording = Recording("a", [], 16_000, 16_000, 1.0)
    line = example_line(utterance("new\nline\x1b[2J ü", recording, "said\tthis", None))
    assert line == r"  new\nline\x1b[2J ü, 1.0 s, speaker unknown: said\tthis"


@pytest.mark.parametrize("count", [1, 9, 10, 11, 19, 20, 21, 105])
def test_a_sample_is_spread_and_no_larger_than_wanted(count: Any) -> None:
    items = [Utterance(Path, str(number), None, None) for number in range(count)]
    drawn = [items.index(each) for each in spread(items, 10)]
    assert 0 < len(drawn) <= 10
    assert len(drawn) == count or drawn[-1] >= count // 2


def test_text_is_taken_from_all_files(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(f"\n{name.upper()} one!\n{name} two\n{name} three\n")
    assert sample_text(tmp_path, most=3) == ["a one", "b one", "c one"]
    assert len(sample_text(tmp_path)) == 9
    (tmp_path / "a.txt").write_text("Straße 7, zurück\n中文\n")
    assert sample_text(tmp_path / "a.txt", Normalizer("unicode")) == ["straße zurück", "中文"]
    assert sample_text(tmp_path / "a.txt", Normalizer("unicode", "acekrstuzßü")) == ["straße zurück"]
    (tmp_path / "blank").mkdir()
    (tmp_path / "blank" / "blank.txt").write_text("\n 12 \n")
    with pytest.raises(UserError, match="no sentence"):
        sample_text(tmp_path / "blank")


def test_letters() -> None:
    assert letters(["ab a", "b"]) == {"a": 2, "b": 2}


def cut(name: str, seconds: float, text: str | None = None, speaker: str | None = None) -> MonoCut:
    recording = Recording(name, [], 16_000, round(16_000 * seconds), seconds)
    return utterance(name, recording, text, speaker)


def test_overview() -> None:
    cuts = [cut(f"u{i}", 1 + i, "guten morgen" if i else None, "ann" if i % 2 else None) for i in range(7)]
    printed = overview([*cuts, cut("short", 0.05), cut("long", 40)], ENGLISH, AudioSettings())
    assert printed.splitlines() == [
        "9 utterances, 1m08s, 1 speaker, 6 transcribed",
        "lengths: shortest 0.05 s, median 4.00 s, longest 40.00 s",
        "training will skip 1 shorter than 0.1 s (audio.shortest) and 1 longer than 36 s (audio.longest)",
        "for example:",
        "  u0, 1.0 s, speaker unknown: no transcript",
        "  u3, 4.0 s, ann: guten morgen",
        "  u6, 7.0 s, speaker unknown: guten morgen",
    ]


def test_fewer_than_three() -> None:
    assert overview([cut("u", 1)], ENGLISH, AudioSettings()).count("no transcript") == 1


def test_long_samples_are_cut() -> None:
    (line,) = overview([cut("u", 1, "hello " * 50, "x" * 128)], ENGLISH, AudioSettings()).splitlines()[-1:]
    assert line == f"  u, 1.0 s, {'x' * 23}…: {'hello ' * 16}hel…"


def test_transcribed_utterances_that_are_not_cut_are_reported() -> None:
    cuts = [cut("a", 30, "hello"), cut("b", 30), cut("c", 10, "you")]
    printed = overview(cuts, ENGLISH, AudioSettings(segment=20))
    assert (
        "not cut, though longer than 20 s: 1 transcribed utterance, as the times of the words are unknown"
        in printed
    )
    assert "not cut" not in overview(cuts, ENGLISH, AudioSettings())
    assert "not cut" not in overview(cuts[1:], ENGLISH, AudioSettings(segment=20))


def test_letters_outside_the_alphabet_are_counted_with_an_example() -> None:
    texts = ["the café is a café", "naïve", *["plain words that are many"] * 100]
    assert letter_lines(texts, ENGLISH) == ["not in the alphabet (english): é 2 (café), ï 1 (naïve)"]
    assert letter_lines(["plain"], ENGLISH) == letter_lines([], ENGLISH) == []


def test_text_that_is_not_english_is_questioned() -> None:
    assert letter_lines(["größe"], ENGLISH) == [
        "not in the alphabet (english): ß 1 (größe), ö 1 (größe)",
        "is that English? if not, pass --normalizer unicode (in a run language.normalizer=unicode)",
    ]


def test_a_derived_alphabet_is_shown_with_its_rare_letters() -> None:
    texts = ["große"] * 4000 + ["el niño"]
    assert letter_lines(texts, Normalizer("unicode")) == [
        "letters (unicode, 9): e g i l n o r ß ñ",
        "rare: i 1 (niño), l 1 (el), n 1 (niño), ñ 1 (niño)",
    ]


def test_long_lists_are_cut() -> None:
    texts = ["x" * 10_000 + " " + "".join(map(chr, range(0x430, 0x450)))]
    (line, *_) = letter_lines(texts, ENGLISH)
    assert line.endswith(") and 20 more")


def test_marks_and_invisible_letters_can_be_seen() -> None:
    (line,) = letter_lines(["नमस्ते می\u200cخ"], Normalizer("unicode"))
    assert " \N{DOTTED CIRCLE}\N{DEVANAGARI SIGN VIRAMA} " in line
    assert " U+200C" in line
