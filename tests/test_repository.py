"""What hosts and container builders read from the repository: the workflow, the issue templates, the Dockerfile."""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[1]
GITHUB = ROOT / ".github"


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_workflow_runs_the_tests_with_supported_pythons() -> None:
    workflow = read(GITHUB / "workflows/test.yml")
    assert {"push", "pull_request"} <= workflow[True].keys()  # YAML reads `on` as true
    job = workflow["jobs"]["test"]
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert [command.split()[:2] for command in commands] == [["make", "test"]]
    supported = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert all(version in SpecifierSet(supported) for version in job["strategy"]["matrix"]["python"])
    assert workflow["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("name", ["bug_report.yml", "feature_request.yml"])
def test_an_issue_template_has_what_the_host_requires(name: str) -> None:
    template = read(GITHUB / "ISSUE_TEMPLATE" / name)
    assert all(template[key] for key in ("name", "description", "body"))
    fields = [each for each in template["body"] if each["type"] != "markdown"]
    assert len({each["id"] for each in fields}) == len(fields)
    assert all(each["attributes"]["label"] for each in fields)
    assert any(each.get("validations", {}).get("required") for each in fields)


def instructions() -> list[list[str]]:
    """The words of each instruction of the Dockerfile."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [shlex.split(line) for line in text.splitlines() if line.strip()]


def copied() -> set[str]:
    return {name for word, *names in instructions() if word == "COPY" for name in names[:-1]}


def test_what_the_image_copies_exists_and_is_not_ignored() -> None:
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"}
    assert all((ROOT / name).exists() for name in copied())
    assert copied() == let_through


def test_the_image_has_all_that_the_package_is_built_from() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    needed = {
        *(name.split("/")[0] for name in wheel),
        project["project"]["readme"],
        "LICENSE",
        "pyproject.toml",
    }
    assert needed <= copied()


def test_the_image_runs_the_demo_on_the_cpu_unless_it_is_built_for_cuda() -> None:
    found = instructions()
    assert ["ARG", "DEVICE=cpu"] in found
    assert [words for words in found if words[0] in ("ENTRYPOINT", "CMD")] == [
        ["ENTRYPOINT", "[priormatch]"],
        ["CMD", "[demo]"],
    ]
    assert any("cuda)" in words for words in found)
