from pathlib import Path
from typing import Any

import pytest
from tiny_run import command, files, make_folders

from priormatch.doctor import findings, install
from priormatch.doctor.findings import Finding

DATA = ("labeled=labeled", "unlabeled=unlabeled", "text=text.txt")


@pytest.fixture
def doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Ask the doctor; gives the exit code and the lines, of a command that writes nothing."""
    monkeypatch.chdir(tmp_path)
    make_folders(tmp_path)

    def doctor(*words: Any) -> Any:
        before = files(tmp_path)
        code = command("doctor", *words)
        assert files(tmp_path) == before
        return code, capsys.readouterr().out.splitlines()

    return doctor


def test_a_recipe_without_problems(doctor: Any) -> None:
    code, lines = doctor("tiny.yaml", *DATA, "test={calls: test}", "device=cpu")
    assert code == 0
    assert lines[-1].endswith(", 0 problems")
    assert "ok       labeled: 24 utterances, 24 of them transcribed, 12s, 4 speakers" in lines


def test_with_problems_the_exit_code_is_one(doctor: Any) -> None:
    code, lines = doctor("tiny.yaml", "labeled=nowhere", *DATA[1:], "device=cpu")
    assert code == 1
    (problem,) = [line for line in lines if line.startswith("problem")]
    assert "nowhere" in problem
    assert any(line.startswith("ok       unlabeled: ") for line in lines), "the rest is checked all the same"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("nowhere.yaml",), "nowhere.yaml"),
        (("demo", "training.sede=1"), "did you mean training.seed?"),
        (("demo", "device=gpu"), "device=gpu: not a device"),
    ],
)
def test_what_does_not_load_is_a_problem(doctor: Any, words: Any, expected: Any) -> None:
    code, lines = doctor(*words)
    assert code == 1
    assert any(line.startswith("problem") and expected in line for line in lines)


def test_settings_without_a_recipe(doctor: Any) -> None:
    code, lines = doctor("labeled=nowhere", *DATA[1:], "device=cpu")
    assert code == 1
    assert any("labeled: nowhere" in line for line in lines)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (["ok", "warning", "problem"], "1 ok, 1 warning, 1 problem"),
        (["ok", "ok"], "2 ok, 0 warnings, 0 problems"),
        (["warning", "problem"] * 2, "0 ok, 2 warnings, 2 problems"),
    ],
)
def test_findings_are_counted_in_good_english(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], found: Any, expected: Any
) -> None:
    monkeypatch.setattr(findings, "findings", lambda *_: [Finding(status, "this") for status in found])
    findings.examine(None, [])
    assert capsys.readouterr().out.splitlines()[-1] == expected


def test_nothing_is_tried_without_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Finding("problem", "torch cannot be imported")
    monkeypatch.setattr(install, "import_findings", lambda _: iter([broken]))
    assert list(findings.findings(None, []))[-1] == broken
