"""Stages that a second process makes."""

import os
from functools import partial
from pathlib import Path

import pytest

from priormatch.errors import UserError
from priormatch.pipeline.pool import Beside


def note(file: Path, word: str) -> None:
    with file.open("a") as out:
        out.write(f"{word} {os.getpid()}\n")


def fail() -> None:
    raise UserError("no text: give some")


def test_stages_are_made_in_order_in_one_other_process(tmp_path: Path) -> None:
    file = tmp_path / "made"
    with Beside(True, tmp_path / "log") as beside:
        for word in ("prior", "topline"):
            beside.begin(word, partial(note, file, word))
        beside.wait_for("topline")
        beside.wait_for("prior")  # which was waited for with it
        beside.begin("longer", partial(note, file, "longer"))
        beside.begin("decoded", partial(note, file, "decoded"))
        beside.wait_for_all()
        beside.wait_for_all()
        assert len(file.read_text().splitlines()) == 4
    words = [line.split() for line in file.read_text().splitlines()]
    assert [word for word, _ in words] == ["prior", "topline", "longer", "decoded"]
    assert len({process for _, process in words}) == 1
    assert words[0][1] != str(os.getpid())


def test_the_reason_of_a_failed_stage_and_its_log_are_named(tmp_path: Path) -> None:
    with Beside(True, tmp_path / "log") as beside:
        beside.begin("prior", fail)
        with pytest.raises(UserError, match=r"^prior: no text: give some \(log: .*log\)$"):
            beside.wait_for("prior")
    assert "no text: give some" in (tmp_path / "log").read_text()


def test_alone_nothing_is_begun_and_nothing_waited_for(tmp_path: Path) -> None:
    with Beside(False, tmp_path / "log") as beside:
        beside.begin("prior", fail)
        beside.wait_for("prior")
        beside.wait_for_all()
        assert beside.worker is None
