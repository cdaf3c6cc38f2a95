import tomllib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packaging.requirements import Requirement

from priormatch.doctor.install import (
    MODULES,
    OF_DEVELOPERS,
    import_findings,
    numbers,
    python_finding,
    requirement_findings,
    sound_findings,
    unmet,
)

HAVE = {"torch": "2.13.0+cpu", "numpy": "2.1", "gradio": "5.9"}


def found(*declared: str) -> list[tuple[str, str]]:
    return [(each.status, str(each)) for each in requirement_findings(declared, HAVE.get)]


@pytest.mark.parametrize(("version", "status"), [((3, 10), "problem"), ((3, 11), "ok"), ((3, 13), "ok")])
def test_python(version: tuple[int, int], status: str) -> None:
    assert python_finding(version).status == status


@pytest.mark.parametrize(
    ("requirement", "reason"),
    [
        ("torch<2.14,>=2.9", None),
        ("torch (>=2.9)", None),
        ("torch[cuda]>=2.13", None),
        ("torch", None),
        ("torch<2.13,>=2.9", "torch 2.13.0+cpu is not <2.13"),
        ("torch>=2.13.1", "torch 2.13.0+cpu is not >=2.13.1"),
        ("numpy!=2.1", "numpy 2.1 is not !=2.1"),
        ("lhotse>=1.33", "lhotse is not installed"),
    ],
)
def test_a_requirement_is_met_or_the_reason_is_given(requirement: Any, reason: Any) -> None:
    assert unmet(requirement, HAVE.get) == reason


def test_versions_are_compared_as_numbers() -> None:
    assert numbers("2.9") < numbers("2.13.0+cpu") == numbers("2.13") < numbers("2.13.1rc1")


def test_what_is_needed_is_a_problem_and_an_extra_is_not() -> None:
    assert [status for status, _ in found("torch>=2.9", "numpy>=1.26")] == ["ok"]
    assert found("torch<2")[0] == (
        "problem",
        'problem  torch 2.13.0+cpu is not <2; run `pip install "torch<2"`',
    )
    (_, (status, line)) = found("torch", 'gradio>=6; extra == "page"')
    assert status == "ok"
    assert line == (
        "ok       extras: none installed; without page (gradio 5.9 is not >=6);"
        " `pip install 'priormatch[page]'` if you want them"
    )
    assert found("torch", "gradio; extra == 'page'")[1][1] == "ok       extras: page installed"


def test_extras_are_one_line_and_those_of_developers_are_left_out() -> None:
    extras = ["gradio; extra == 'page'", "onnx; extra == 'export'", "wandb; extra == 'wandb'"]
    (line,) = [line for _, line in found("torch", *extras, "mkdocs; extra == 'docs'") if "extras" in line]
    assert "extras: page installed; without export (onnx is not installed), wandb (wandb is not" in line
    assert "`pip install 'priormatch[export,wandb]'`" in line
    assert "docs" not in line


def test_a_clone_that_is_not_installed_is_a_warning() -> None:
    assert [status for status, _ in found()] == ["warning"]


def test_every_requirement_of_the_project_can_be_read() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = [
        f'{each}; extra == "{name}"'
        for name, needed in project["optional-dependencies"].items()
        for each in needed
    ]
    lowest = {
        each.name: bound.version
        for each in map(Requirement, extras)
        for bound in each.specifier
        if bound.operator == ">="
    }
    versions = {**lowest, "torch": "99999"}
    declared = [*project["dependencies"], *extras]
    lines = [str(each) for each in requirement_findings(declared, lambda name: versions.get(name, "1"))]
    assert [line for line in lines if "torch 99999 is not <" in line]
    (extras_line,) = [line for line in lines if "extras" in line]
    shown = set(extras_line.partition("extras: ")[2].removesuffix(" installed").split(", "))
    assert shown == project["optional-dependencies"].keys() - OF_DEVELOPERS
    assert project["optional-dependencies"].keys() > OF_DEVELOPERS


def test_a_module_that_cannot_be_imported() -> None:
    (finding,) = import_findings(["json", "no_such_module"])
    assert finding.status == "problem"
    assert "no_such_module" in finding.what
    assert list(import_findings(MODULES)) == []


def test_formats_of_audio(monkeypatch: pytest.MonkeyPatch) -> None:
    import soundfile

    assert [each.status for each in sound_findings()] == ["ok"]
    write = soundfile.write

    def without_mp3(*arguments: BytesIO | int | np.ndarray, format: str, **others: str) -> None:
        if format == "MP3":
            raise ValueError("Unknown format: 'MP3'")
        write(*arguments, format=format, **others)

    monkeypatch.setattr(soundfile, "write", without_mp3)
    warning, others = sound_findings()
    assert warning.status == "warning"
    assert "MP3" in warning.what
    assert "reads WAV, FLAC, OGG" in others.what
