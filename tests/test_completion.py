"""Completion as a shell asks for it, through the environment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_run import command

CODE = "import sys; sys.argv = ['priormatch']; from priormatch.cli import main\nmain()"


def completions(words: str, folder: Path) -> list[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[1] / "src"),
        "_PRIORMATCH_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    ended = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, cwd=folder, capture_output=True, text=True, check=True
    )
    return ended.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("priormatch doc", ["doctor"]),
        ("priormatch run de", ["demo"]),
        ("priormatch run mi", ["mine.yaml"]),
        ("priormatch doctor /no/such/", []),
        ("priormatch settings --recipe ow", ["own"]),
        ("priormatch run demo matching.refresh", ["matching.refresh=", "matching.refresh_every="]),
        ("priormatch match matching.combine=", ["matching.combine=alternate", "matching.combine=sum"]),
        ("priormatch demo no.such=", []),
    ],
)
def test_verbs_recipes_and_settings_are_completed(words: str, expected: list[str], tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").touch()
    assert completions(words, tmp_path) == expected


@pytest.mark.parametrize(
    ("shell", "sign"),
    [("bash", "complete -o default -F"), ("zsh", "compdef"), ("fish", "complete --command")],
)
def test_the_script_is_for_the_shell_that_is_named(
    shell: str, sign: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("--show-completion", shell) == 0
    assert sign in capsys.readouterr().out


def test_a_shell_that_is_not_known_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--show-completion", "ksh") == 2
    assert "no completion for ksh: choose from bash, zsh, fish" in capsys.readouterr().err
