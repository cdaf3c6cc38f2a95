"""The verb `transcribe`: what it finds, where it writes, what it leaves alone, and how it ends."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from ffmpeg_stub import MP4, WEBM, stand_in
from narrowing import present
from tiny_language import speak
from tiny_run import command, files

from priormatch.config import FusionSettings
from priormatch.decoding.beam import Beam
from priormatch.decoding.tuning import write_tuned
from priormatch.models.conv_lm import ConvLM
from priormatch.pipeline.transcribe import RECORD, find_recordings, places_in
from priormatch.progress import duration_text
from priormatch.recognizers.formats import Origin, to_json
from priormatch.recognizers.heads import Frames
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer

GOOD = {"talk.wav", "deep/phone.wav", "deep/talk.mp3", "both.flac", "silent.wav"}
BAD = {"text.wav", "empty.wav", "cut.wav"}


@pytest.fixture
def model(tmp_path: Path, tiny_recognizer: SpeechRecognizer) -> Path:
    tiny_recognizer.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def prior(tmp_path: Path, tiny_prior: ConvPrior) -> Path:
    tiny_prior.save(tmp_path / "prior")
    return tmp_path / "prior"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Recordings of all kinds, some of which cannot be read."""
    root = tmp_path / "speech"
    (root / "deep").mkdir(parents=True)
    talk = np.concatenate(
        [np.zeros(8000), speak("monday at nine"), np.zeros(9600), speak("ten"), np.zeros(8000)]
    )
    soundfile.write(root / "talk.wav", np.tile(talk, 20), 16_000)
    soundfile.write(root / "deep/phone.wav", talk[::2], 8000, subtype="ULAW")
    soundfile.write(root / "deep/talk.mp3", talk, 16_000)
    soundfile.write(root / "both.flac", np.stack([0 * talk, talk], axis=1), 44_100)
    soundfile.write(root / "silent.wav", np.zeros(16_000), 16_000)
    soundfile.write(root / "cut.wav", talk, 16_000)
    (root / "cut.wav").write_bytes((root / "cut.wav").read_bytes()[:5000])
    (root / "text.wav").write_text("not audio at all\n" * 20)
    (root / "empty.wav").write_bytes(b"")
    (root / "notes.txt").write_text("not audio by its name")
    (root / "._talk.wav").write_bytes(b"left by a file manager")
    return root


def transcripts(out: Path) -> dict[str, bytes]:
    """All that lies in a folder but the record of what made it."""
    return {name: content for name, content in files(out).items() if name != RECORD}


def test_one_file_a_recording_and_bad_ones_named_at_the_end(
    model: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    formats = [word for each in ("txt", "json", "srt", "vtt") for word in ("--format", each)]
    assert command("transcribe", model, folder, "--out", out, *formats) == 1
    stems = {str(Path(name).with_suffix("")) for name in GOOD}
    assert set(transcripts(out)) == {
        f"{stem}.{each}" for stem in stems for each in ("txt", "json", "srt", "vtt")
    }
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    seconds = sum(soundfile.info(folder / name).duration for name in GOOD)
    told = f"5 recordings transcribed, 1 of them without speech ({duration_text(seconds)} of audio)"
    assert told in said.err
    assert "notes" not in said.err
    named = lines[lines.index("3 recordings could not be read:") + 1 :]
    assert {line.split(": ")[0].strip() for line in named} == {str(folder / name) for name in BAD}
    assert all(line.count(": ") >= 1 for line in named)
    silent = json.loads((out / "silent.json").read_text())
    assert (silent["text"], silent["segments"], silent["duration"]) == ("", [], 1.0)
    found = json.loads((out / "talk.json").read_text())
    assert found["text"]
    assert (found["file"], found["model"], found["prior"]) == (str(folder / "talk.wav"), str(model), None)
    assert (out / "talk.txt").read_text().split() == found["text"].split()
    for segment in found["segments"]:
        assert 0 <= segment["start"] < segment["end"] <= found["duration"]
        assert 0 <= segment["confidence"] <= 1
    assert not list(out.rglob(".tmp-*"))


def test_recordings_that_must_be_converted_are_named_and_those_that_are_converted_are_not(
    model: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    speech = folder / "deep"
    for name in ("call.amr", "film.WMV", "talk.amr", "._call.amr"):
        (speech / name).write_bytes(b"#!AMR\n" + bytes(100))
    (speech / "picture.jpg").write_bytes(b"no recording")
    assert command("transcribe", model, speech, "--out", tmp_path / "out") == 1
    assert set(transcripts(tmp_path / "out")) == {"phone.txt", "talk.txt"}
    *_, head, call, film = capsys.readouterr().err.splitlines()
    assert head == "2 recordings could not be read:"
    assert call.startswith(f"  {speech / 'call.amr'}: cannot be opened")
    assert call.endswith("convert it: ffmpeg -i call.amr call.wav")
    assert film.startswith(f"  {speech / 'film.WMV'}: cannot be opened")


def test_recordings_that_ffmpeg_decodes(
    model: Path,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_in(tmp_path, monkeypatch)
    speech = folder / "deep"
    (speech / "my call ü.m4a").write_bytes(MP4)
    (speech / "film.webm").write_bytes(WEBM)
    (speech / "list.mp4").write_bytes(b"#EXTM3U\nfile:///etc/passwd\n")
    assert command("transcribe", model, speech, "--out", tmp_path / "out") == 1
    assert {"my call ü.txt", "film.txt"} < set(transcripts(tmp_path / "out"))
    *_, head, refused = capsys.readouterr().err.splitlines()
    assert head == "1 recording could not be read:"
    assert refused == f"  {speech / 'list.mp4'}: is not MP4, by its content: give the file its real suffix"


def test_where_nothing_can_be_read_nothing_is_said_to_be_transcribed(
    model: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only = folder / "only"
    only.mkdir()
    (only / "call.m4a").write_bytes(b"not read")
    shutil.copy(folder / "cut.wav", only)
    assert command("transcribe", model, only) == 1
    said = capsys.readouterr().err
    assert "2 recordings could not be read:" in said
    assert "transcribed" not in said


def test_segments_are_as_long_as_the_model_has_learned_from(
    tiny_recognizer: SpeechRecognizer, tmp_path: Path
) -> None:
    tiny_recognizer.longest_heard = 1.5
    tiny_recognizer.save(tmp_path / "model")
    talk = np.pad(speak(" ".join(["monday at nine"] * 10)), 16_000)
    soundfile.write(tmp_path / "talk.wav", talk, 16_000)

    def longest(*words: str) -> float:
        call = ("--out", tmp_path / "out", "--format", "json", "--overwrite", *words)
        assert command("transcribe", tmp_path / "model", tmp_path / "talk.wav", *call) == 0
        found = json.loads((tmp_path / "out" / "talk.json").read_text())["segments"]
        return max(each["end"] - each["start"] for each in found)

    assert longest() <= 1.5 < longest("--longest", "3") <= 3


def test_a_name_that_is_no_text_is_reported(
    model: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = folder / "deep" / os.fsdecode(b"caf\xe9.wav")
    shutil.copy(folder / "silent.wav", odd)
    assert command("transcribe", model, folder / "deep", "--out", tmp_path / "out") == 1
    assert "not valid UTF-8: rename it" in capsys.readouterr().err
    assert set(transcripts(tmp_path / "out")) == {"phone.txt", "talk.txt"}


def test_transcripts_that_are_there_stay_until_told_otherwise(
    model: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, speech = tmp_path / "out", folder / "deep"
    assert command("transcribe", model, speech, "--out", out) == 0
    (out / "talk.txt").write_text("mended by hand")
    capsys.readouterr()
    assert command("transcribe", model, speech, "--out", out, "--format", "txt", "--format", "srt") == 0
    assert set(transcripts(out)) == {"talk.txt", "talk.srt", "phone.txt", "phone.srt"}
    assert (out / "talk.txt").read_text() == "mended by hand"
    capsys.readouterr()
    assert command("transcribe", model, speech, "--out", out) == 0
    assert "2 of 2 recordings already have transcripts" in capsys.readouterr().err
    assert command("transcribe", model, speech, "--out", out, "--overwrite") == 0
    assert (out / "talk.txt").read_text() != "mended by hand"


def test_what_was_stopped_goes_on(
    model: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert command("transcribe", model, folder / "deep", "--out", out) == 0
    whole = transcripts(out)
    (out / "phone.txt").unlink()
    with (out / RECORD).open("a") as record:
        record.write('{"file": "phone.txt", "mod')  # cut off by a kill
    assert command("transcribe", model, folder / "deep", "--out", out) == 0
    assert "1 of 2 recordings already have transcripts" in capsys.readouterr().err
    assert transcripts(out) == whole
    assert command("transcribe", model, folder / "deep", "--out", out) == 0
    assert "2 of 2 recordings already have transcripts" in capsys.readouterr().err


@pytest.fixture
def refusal(
    model: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Transcribe once, then otherwise into the same folder, which must be refused; tells the reason."""
    out, speech = tmp_path / "out", folder / "deep"
    assert command("transcribe", model, speech, "--out", out) == 0

    def refusal(*words: object, model: Path = model, speech: Path = speech) -> str:
        before = files(out)
        capsys.readouterr()
        assert command("transcribe", model, speech, "--out", out, *words) == 2
        assert files(out) == before
        return capsys.readouterr().err

    return refusal


def test_transcripts_of_other_settings_are_refused(refusal: Callable[..., str], prior: Path) -> None:
    assert "was made with another search.beam_size: choose another --out" in refusal("--beam-size", 2)
    assert "was made with another cutting.longest:" in refusal("--longest", 3)
    assert "was made with another cutting.pause:" in refusal(
        "--pause", 0.5, "--format", "txt", "--format", "srt"
    )
    assert "was made with another prior and search.beam_size and" in refusal("--prior", prior)


def test_transcripts_of_another_model_or_recording_are_refused_until_told_otherwise(
    refusal: Callable[..., str], folder: Path, tmp_path: Path, tiny_recognizer: SpeechRecognizer
) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    with torch.no_grad():
        present(tiny_recognizer.decoder).start.add_(1)
    tiny_recognizer.save(other)
    assert "phone.txt was made with another model: choose another --out" in refusal(model=other)
    shutil.copytree(folder / "deep", tmp_path / "namesakes")
    assert "phone.txt was made with another recording: " in refusal(speech=tmp_path / "namesakes")
    words = ("transcribe", other, folder / "deep" / "phone.wav", "--out", out)
    assert command(*words, "--overwrite") == 0
    assert command(*words) == 0, "it is its own now"
    assert "phone.txt was made with another model" in refusal()
    assert "talk.txt was made with another model" in refusal(model=other), "the first one's still"


def test_files_of_unknown_making_are_refused(refusal: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "out" / RECORD).unlink()
    assert f"exists, and {tmp_path / 'out' / RECORD} does not record how it was made" in refusal()


def test_without_a_folder_the_text_is_printed(
    model: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("transcribe", model, folder / "talk.wav") == 0
    alone = capsys.readouterr().out
    assert "==>" not in alone
    assert command("transcribe", model, folder / "talk.wav", folder / "silent.wav") == 0
    expected = f"==> {folder / 'talk.wav'} <==\n{alone}==> {folder / 'silent.wav'} <==\n"
    assert capsys.readouterr().out == expected


def test_without_a_folder_json_is_printed_a_line_a_recording(
    model: Path, prior: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--prior", prior, "--format", "json")
    assert command("transcribe", model, folder / "talk.wav", folder / "silent.wav", *words) == 0
    talk, silent = map(json.loads, capsys.readouterr().out.splitlines())
    found = SpeechRecognizer.load(model).transcribe(folder / "talk.wav", prior=ConvPrior.load(prior))
    assert talk == json.loads(to_json(Origin(str(folder / "talk.wav"), str(model), str(prior)), found))
    assert (silent["file"], silent["segments"]) == (str(folder / "silent.wav"), [])
    assert command("transcribe", model, folder / "talk.wav", *words) == 0
    assert json.loads(capsys.readouterr().out) == talk


@pytest.mark.parametrize("form", ["srt", "vtt"])
def test_without_a_folder_subtitles_are_printed_as_they_are_written(
    model: Path, folder: Path, tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("transcribe", model, folder / "talk.wav", "--format", form)
    assert command(*words) == 0
    printed = capsys.readouterr().out
    assert command(*words, "--out", tmp_path / "out") == 0
    assert printed == (tmp_path / f"out/talk.{form}").read_text() != ""


def test_threads_are_as_asked_for(model: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    assert command("transcribe", model, folder / "silent.wav") == 0
    assert asked == []
    assert command("transcribe", model, folder / "silent.wav", "--threads", 3) == 0
    assert asked == [3]


def test_a_prior_and_its_tuned_values_change_the_search(
    model: Path,
    prior: Path,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_tuned(tmp_path / "fusion.yaml", FusionSettings(beam_size=3, lm_weight=0.7), {})
    used: list[FusionSettings] = []
    search_with = SpeechRecognizer.search_with

    def noted(self: SpeechRecognizer, lm: ConvLM, frames: Frames, settings: FusionSettings) -> Beam:
        used.append(settings)
        return search_with(self, lm, frames, settings)

    monkeypatch.setattr(SpeechRecognizer, "search_with", noted)
    words = ("transcribe", model, folder / "talk.wav", "--prior", prior)
    tuned = ("--fusion", tmp_path / "fusion.yaml")

    def searched(*more: object) -> set[tuple[int, float]]:
        used.clear()
        assert command(*words, *more) == 0
        return {(each.beam_size, each.lm_weight) for each in used}

    assert searched(*tuned) == {(3, 0.7)}
    assert searched(*tuned, "--beam-size", 2) == {(2, 0.7)}
    assert "not tuned" not in capsys.readouterr().err
    assert searched() == {(FusionSettings.beam_size, FusionSettings.lm_weight)}
    assert capsys.readouterr().err.count("is not tuned (LM weight 0.3, beam size 8)") == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ("speech", "--format", "srt"),
            "srt of 8 recordings cannot be printed together: pass a folder as --out",
        ),
        (("speech/talk.wav", "--format", "srt", "--format", "txt"), "one format can be printed"),
        (("speech", "--threads", "-1"), "--threads"),
        (("speech", "--fusion", "fusion.yaml"), "pass --prior too"),
        (("speech", "--out", "out", "--format", "doc"), "doc"),
        (("nowhere",), "no such file or folder"),
        (("model",), "contains no audio"),
        ((), "Missing argument"),
        (("speech", "--longest", "0.5"), "--longest"),
        (("speech", "--batch-seconds", "5"), "is below the maximum segment length, 20 s"),
        (("speech", "--device", "abacus"), "not a device"),
        (("speech", "--out", "speech/talk.wav"), "cannot write"),
    ],
)
def test_a_call_that_makes_no_sense_is_one_sentence(
    model: Path,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = files(tmp_path)
    assert command("transcribe", "model", *words) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("priormatch: ")]
    assert expected in line
    assert files(tmp_path) == before


def test_another_folder_is_no_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("transcribe", folder, folder) == 2
    assert "contains no recognizer" in capsys.readouterr().err


def places(root: Path, given: list[str]) -> dict[str, str]:
    paths = [root / name for name in given]
    found = places_in(Path("out"), find_recordings(paths), paths)
    return {str(path.relative_to(root)): str(place) for path, place in found.items()}


def test_every_recording_has_a_place_of_its_own(tmp_path: Path) -> None:
    for name in ("a/x.wav", "a/x.mp3", "a/x.wav.flac", "a/y.wav", "b/x.wav", "b/c/z.v2.ogg", "b/bare"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert places(tmp_path, ["a"]) == {
        "a/x.mp3": "out/x.mp3",
        "a/x.wav": "out/x.wav",
        "a/x.wav.flac": "out/x.wav.flac",
        "a/y.wav": "out/y",
    }
    assert places(tmp_path, ["b"]) == {"b/x.wav": "out/x", "b/c/z.v2.ogg": "out/c/z.v2"}
    assert places(tmp_path, ["a/x.wav", "b/x.wav"]) == {"a/x.wav": "out/a/x", "b/x.wav": "out/b/x"}
    assert places(tmp_path, ["b", "b/x.wav", "b/bare"]) == {
        "b/x.wav": "out/x",
        "b/c/z.v2.ogg": "out/c/z.v2",
        "b/bare": "out/bare",
    }
    assert places(tmp_path, ["b/x.wav"]) == {"b/x.wav": "out/x"}
    assert places(tmp_path / "a", ["../b/x.wav", "y.wav"]) == {"../b/x.wav": "out/b/x", "y.wav": "out/a/y"}
    assert len(set(places(tmp_path, ["a", "b"]).values())) == 6
