"""`--json`: on every verb that prints results, standard output is one document of JSON."""

import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from tiny_run import command, make_folders

from priormatch.cli.app import VERBS
from priormatch.cli.prepare import prepare
from priormatch.json_text import to_json
from priormatch.scoring.bootstrap import PairedTest

SILENT = {"new", "report", "serve", "decode", "tune", "push", "export", "tokenizer", "train-prior", "train"}
SILENT |= {"label", "match"}
"""Verbs that write files, and print nothing but where they are."""


def printed(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> Any:
    capsys.readouterr()
    assert command(*words, "--json") == code
    return json.loads(capsys.readouterr().out)


def test_every_verb_that_prints_results_prints_json_too() -> None:
    verbs = [verb for group in VERBS.values() for verb in group]
    verbs += [each.callback for each in prepare.registered_commands if each.callback is not None]
    without = {verb.__name__ for verb in verbs if "as_json" not in inspect.signature(verb).parameters}
    assert {name.replace("_", "-") for name in without} == SILENT


def test_what_json_cannot_represent_becomes_null_and_dataclasses_become_objects() -> None:
    test = PairedTest(1.0, (0.5, float("nan")), 0.25, 3.0, (float("inf"), 2.0))
    found = json.loads(to_json({"a": [test], "path": Path("b"), "ß": "ü"}))
    assert found["a"][0] | {"p_value": 0.25, "interval": [0.5, None]} == found["a"][0]
    assert (found["path"], found["ß"]) == ("b", "ü")
    assert "ü" in to_json("ü")


def test_settings(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "settings", "--recipe", "demo", "matching.beam_size=7")
    assert (found["name"], found["matching"]["beam_size"]) == ("demo", 7)
    assert command("settings", "--reference", "--json") == 2
    assert "--reference prints Markdown: omit --json" in capsys.readouterr().err


def test_doctor(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = printed(capsys, "doctor", f"runs={tmp_path}", "labeled=nowhere", "device=cpu", code=1)
    assert {each["status"] for each in found["findings"]} <= {"ok", "warning", "problem"}
    assert found["problem"] == sum(each["status"] == "problem" for each in found["findings"]) > 0
    assert any("nowhere" in each["what"] for each in found["findings"])


def test_preparing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    make_folders(tmp_path)
    audio = tmp_path / "labeled.jsonl.gz"
    (entry,) = printed(capsys, "prepare", "audio", tmp_path / "labeled", "--out", audio)
    assert entry["hours"] > 0
    assert entry | {"path": str(audio), "utterances": 24, "speakers": 4, "labeled": 24} == entry
    text = printed(capsys, "prepare", "text", tmp_path / "text.txt", "--out", tmp_path / "sentences.txt")
    assert (text["files"], text["sentences"]) == (1, 120)
    for _ in range(2):  # also when it is finished
        (packed,) = printed(capsys, "pack", audio, "--out", tmp_path / "packed")
        assert packed["utterances"] == 24


def test_transcribing_takes_it_as_a_format(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros(16_000), 16_000)
    assert command("transcribe", tmp_path, tmp_path / "a.wav", "--json", "--format", "srt") == 2
    assert "only one format can be printed" in capsys.readouterr().err


def test_a_run_prints_its_results_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from priormatch.pipeline import run
    from priormatch.pipeline.run_results import RESULTS

    def pretend(settings: object, force: bool) -> Path:
        print("a table")
        (tmp_path / RESULTS).write_text('{"systems": {"lpm": {}}}\n')
        return tmp_path

    monkeypatch.setattr(run, "run", pretend)
    assert printed(capsys, "demo") == {"systems": {"lpm": {}}}
    assert printed(capsys, "run", "demo") == {"systems": {"lpm": {}}}
    assert command("demo") == 0
    assert capsys.readouterr().out == "a table\n"


def test_a_table_prints_its_rows_with_numbers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    from priormatch.experiments.scales import Request

    folder = Request((), "demo", overrides=("runs=here",)).places(0).folder
    folder.mkdir(parents=True)
    found = printed(capsys, "table", "6:1-2", "--so-far", "runs=here")
    assert found["table"] == "tab6_kd" and [row["row"] for row in found["rows"]] == [1, 2]
    papers = [value for row in found["rows"] for value in row.values() if isinstance(value, float)]
    assert papers
    assert any(value is None for row in found["rows"] for value in row.values()), "not measured yet"
