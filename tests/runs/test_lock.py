"""One process at a time in the folder of a stage and in that of a run."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from narrowing import present

from priormatch.errors import UserError
from priormatch.pipeline.pool import Pool, Task
from priormatch.runs import lock
from priormatch.runs.lock import RUN_LOCK, STAGE_LOCK, alone_in

HOLD = """
import sys
from pathlib import Path
from priormatch.runs import lock
from priormatch.runs.lock import alone_in

with alone_in(Path(sys.argv[1]), sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_elsewhere(folder: Path, name: str) -> Iterator[subprocess.Popen[str]]:
    """Another process holds the folder; yields that process."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    command = [sys.executable, "-c", HOLD, str(folder), name]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, env=environment, text=True) as other:
        assert present(other.stdout).readline() == "held\n"
        yield other
        other.kill()


def take(folder: Path, name: str = STAGE_LOCK) -> str:
    """Hold a folder for a moment; what it was refused with, if so."""
    try:
        with alone_in(folder, name):
            return ""
    except UserError as error:
        return str(error)


def take_and_tell(folder: Path, file: Path) -> None:
    file.write_text(take(folder) or "taken")


def test_a_run_excludes_other_runs_and_stages_in_its_folder(tmp_path: Path) -> None:
    stage = tmp_path / "run" / "decoded" / "lpm"
    stage.mkdir(parents=True)
    with held_elsewhere(tmp_path / "run", RUN_LOCK) as other:
        refused = f"another process is at work in {tmp_path / 'run'} (process {other.pid} on "
        assert take(tmp_path / "run", RUN_LOCK).startswith(refused)
        assert take(stage).startswith(refused)
        assert take(tmp_path) == "", "beside the run"
    assert take(tmp_path / "run", RUN_LOCK) == take(stage) == ""
    assert (tmp_path / "run" / RUN_LOCK).read_text() == ""


def test_stages_share_the_folder_of_a_run_that_is_not_running(tmp_path: Path) -> None:
    for name in ("run/a", "run/b"):
        (tmp_path / name).mkdir(parents=True)
    assert take(tmp_path / "run", RUN_LOCK) == ""
    with held_elsewhere(tmp_path / "run/a", STAGE_LOCK):
        assert take(tmp_path / "run/b") == ""
        assert "another process is at work" in take(tmp_path / "run/a")
        assert "another process is at work" in take(tmp_path / "run", RUN_LOCK)


def test_a_process_holds_what_it_opens_twice(tmp_path: Path) -> None:
    """Closing a second descriptor would give the lock up."""
    stage = tmp_path / "stage"
    stage.mkdir()
    with ExitStack() as locks:
        locks.enter_context(alone_in(tmp_path, RUN_LOCK))
        locks.enter_context(alone_in(stage))
        assert "(this process)" in take(tmp_path, RUN_LOCK)
        assert "(this process)" in take(stage)
        with pytest.raises(AssertionError), held_elsewhere(stage, STAGE_LOCK):
            pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_inherits_no_lock(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with alone_in(tmp_path):
        child = os.fork()
        if child == 0:
            os.close(writing)
            os.read(reading, 1)  # until the parent closes it
            os._exit(0)
    try:
        with held_elsewhere(tmp_path, STAGE_LOCK):
            pass
    finally:
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)


def test_the_processes_of_a_pool_work_under_the_lock_of_their_parent(tmp_path: Path) -> None:
    (tmp_path / "study/systems").mkdir(parents=True)
    told = tmp_path / "told"
    with alone_in(tmp_path / "study", RUN_LOCK), Pool(2) as pool:
        work = partial(take_and_tell, tmp_path / "study/systems", told)
        assert pool.perform({"a": Task("a", work, tmp_path / "a.log")}, "letters") == {}
    assert told.read_text() == "taken"


def test_a_lock_that_is_no_file_is_one_sentence(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / STAGE_LOCK)
    with pytest.raises(UserError, match=r"stage\.lock cannot be locked"), alone_in(tmp_path):
        pass


def test_a_folder_of_links_in_a_circle_does_not_stop_the_lock(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="loop"), alone_in(tmp_path / "loop"):
        pass


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """The lock file of a folder in which a process of another machine is at work, without a lock seen here."""
    file = tmp_path / STAGE_LOCK
    file.write_text("123 another-machine 2026-01-01 00:00:00 UTC\n")
    return file


def test_a_process_of_another_machine_that_is_silent_counts_as_gone(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lock, "LEASE", 0.2)
    assert take(elsewhere.parent) == ""
    assert "process 123 on another-machine since 2026" in capsys.readouterr().err
    assert elsewhere.read_text() == ""


def test_the_clock_of_a_file_server_does_not_prolong_the_wait(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    monkeypatch.setattr(time, "monotonic", lambda: 0.0 + sum(waited))
    os.utime(elsewhere, (time.time() + 3600,) * 2)
    assert take(elsewhere.parent) == ""
    assert sum(waited) == pytest.approx(lock.LEASE, abs=1.0)


def test_one_that_is_silent_for_long_is_not_waited_for(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.utime(elsewhere, (0, 0))
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("waited"))
    assert take(elsewhere.parent) == ""


def test_one_that_shows_signs_of_life_is_left_alone(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: os.utime(elsewhere))
    os.utime(elsewhere, (time.time() - 1,) * 2)
    before = elsewhere.read_text()
    assert take(elsewhere.parent).startswith(f"another process is at work in {elsewhere.parent} (process 123")
    assert elsewhere.read_text() == before


def test_a_folder_at_work_shows_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touched, touch = threading.Event(), os.utime

    def noted(*words: Any) -> None:
        touch(*words)
        touched.set()

    monkeypatch.setattr(lock, "BEAT", 0.01)
    monkeypatch.setattr(os, "utime", noted)
    with alone_in(tmp_path):
        os.utime(tmp_path / STAGE_LOCK, (0, 0))
        touched.clear()
        assert touched.wait(20)
        assert (tmp_path / STAGE_LOCK).stat().st_mtime > 0
