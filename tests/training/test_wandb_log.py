import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from test_loop import OneNumber, lines, run
from tiny_run import command, files

from priormatch.config import Settings
from priormatch.errors import UserError
from priormatch.runs.stage import files_of
from priormatch.stopwatch import Stopwatch
from priormatch.training import wandb_log
from priormatch.training.wandb_log import run_id, wandb_plan

PLAN = wandb_log.WandbPlan("a-project", {"matching": {"max_proposal_cer": 60}})


class Killed(Exception):
    pass


class Dying(OneNumber):
    def backward(self, update: int, watch: Stopwatch) -> tuple[torch.Tensor, dict[str, float]]:
        if update == 5:
            raise Killed
        return super().backward(update, watch)


class Recorded:
    """Stands in for a run of wandb: keeps what is logged."""

    def __init__(self) -> None:
        self.logged: list[dict[str, Any]] = []
        self.ended: list[int] = []

    def define_metric(self, *_: str, **__: str) -> None:
        pass

    def log(self, metrics: dict[str, Any]) -> None:
        self.logged.append(metrics)

    def finish(self, exit_code: int = 0) -> None:
        self.ended.append(exit_code)


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stands in for the package, so that the tests do not need it; `begun` has the runs and their options."""
    module: Any = ModuleType("wandb")
    module.begun = []
    module.Settings = SimpleNamespace

    def init(**options: Any) -> Recorded:
        module.begun.append((options, Recorded()))
        return module.begun[-1][1]

    module.init = init
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


def test_a_stage_that_was_killed_goes_on_as_the_same_run(wandb: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        run(Dying(), tmp_path, wandb=PLAN, report_every=1)
    run(OneNumber(), tmp_path, wandb=PLAN, report_every=1)
    (first, before), (second, after) = wandb.begun
    assert first["id"] == second["id"] and first["resume"] == second["resume"] == "allow"
    assert second["project"] == "a-project" and second["config"] == PLAN.settings
    written = [{name: value for name, value in line.items() if name != "stage"} for line in lines(tmp_path)]
    resumed = after.logged[0]["update"]  # the checkpoint may be older than the last line
    assert after.logged == [line for line in written if line["update"] >= resumed]
    assert [line for line in before.logged if line["update"] < resumed] == written[: -len(after.logged)]
    assert before.ended == after.ended == [0]


def test_the_real_package_resumes_a_run_that_was_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    with pytest.raises(Killed):
        run(Dying(), tmp_path, wandb=PLAN, report_every=1)
    run(OneNumber(), tmp_path, wandb=PLAN, report_every=1)
    identity = (tmp_path / "wandb" / f"{tmp_path.name}.id").read_text().strip()
    logged = list((tmp_path / "wandb").glob("offline-run-*/run-*.wandb"))
    assert {file.name for file in logged} == {f"run-{identity}.wandb"}
    names = {name for line in lines(tmp_path) for name in line if not name.startswith("time_")}
    written = b"".join(
        file.read_bytes() for file in logged
    )  # what a kill leaves of the first may lack the last lines
    assert {name for name in names - {"stage"} if name.encode() not in written} == set()
    assert b"a-project" in written
    assert b"max_proposal_cer" in written, "the settings are its configuration"
    assert [each["update"] for each in lines(tmp_path) if "figure" in each] == [1, 2, 3, 4, 5, 6]
    assert not any("wandb" in name for name in files_of(tmp_path)), "logs may come and go"


def test_a_stage_that_begins_anew_is_another_run(tmp_path: Path) -> None:
    first = run_id(tmp_path, "lpm", 0)
    assert run_id(tmp_path, "lpm", 10) == run_id(tmp_path, "lpm", 20) == first
    assert run_id(tmp_path, "prior", 10) != first
    assert run_id(tmp_path, "lpm", 0) != first


def test_what_cannot_begin_does_not_stop_the_training(
    wandb: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(**_: Any) -> None:
        raise ConnectionError("no way to the server\nat all")

    monkeypatch.setattr(wandb, "init", broken)
    run(OneNumber(), tmp_path, wandb=PLAN)
    assert lines(tmp_path)[-1]["update"] == 6
    assert capsys.readouterr().err.count("Weights & Biases: no way to the server; logging to it stops") == 1


def test_what_fails_on_the_way_is_told_once_and_left_alone(
    wandb: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Failing(Recorded):
        def log(self, metrics: dict[str, Any]) -> None:
            super().log(metrics)
            raise ConnectionError

        def finish(self, exit_code: int = 0) -> None:
            super().finish(exit_code)
            raise ConnectionError

    failing = Failing()
    monkeypatch.setattr(wandb, "init", lambda **_: failing)
    run(OneNumber(), tmp_path, wandb=PLAN)
    assert lines(tmp_path)[-1]["update"] == 6
    assert (len(failing.logged), failing.ended) == (1, [1])
    assert capsys.readouterr().err.count("Weights & Biases: ConnectionError") == 1


def test_nothing_is_logged_unless_asked_for() -> None:
    assert wandb_plan(Settings()) is None


def test_a_missing_package_is_one_sentence_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(wandb_log, "find_spec", lambda _: None)
    with pytest.raises(UserError, match="not installed"):
        wandb_plan(Settings(wandb="x"))
    assert command("run", "demo", "wandb=x") == 2
    assert "install priormatch[wandb]" in capsys.readouterr().err
    assert files(tmp_path) == {}
