"""Tasks one after another, or side by side, and stages that a second process makes."""

import os
import select
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from priormatch.device import gpus_for
from priormatch.errors import UserError
from priormatch.pipeline.pool import Beside, Pool, Task, Worker, attempt


def test_a_task_that_fails_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = []
    tasks = {
        name: Task(name, work, tmp_path / name)
        for name, work in (("a", lambda: done.append("a")), ("b", fail), ("c", lambda: done.append("c")))
    }
    with Pool(1) as pool:
        assert pool.perform(tasks, "letters") == {"b": "UserError: no text: give some"}
    assert done == ["a", "c"]
    assert "letters: 3/3" in capsys.readouterr().err


def test_a_stop_is_no_failure(tmp_path: Path) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Pool(1) as pool:
        pool.perform({"a": Task("a", stop, tmp_path / "a")}, "letters")


def note(file: Path, name: str) -> None:
    with file.open("a") as log:
        log.write(f"{name}\n")


def task(file: Path, name: str, *after: str, work: Any = note) -> Task:
    return Task(name, partial(work, file, name), file.with_name(f"{name}.log"), frozenset(after))


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_task_waits_for_those_before_it_and_fails_with_them(tmp_path: Path, jobs: int) -> None:
    file = tmp_path / "done"
    tasks = {
        "last": task(file, "last", "lost", "b"),
        "b": task(file, "b", "a"),
        "a": task(file, "a"),
        "lost": Task(
            "lost", partial(note, tmp_path / "nowhere/done", "lost"), tmp_path / "lost.log", frozenset({"a"})
        ),
        "next": task(file, "next", "b"),
    }
    with Pool(jobs) as pool:
        failed = pool.perform(tasks, "letters")
    assert file.read_text().split() == ["a", "b", "next"]
    assert set(failed) == {"lost", "last"}
    assert failed["last"] == failed["lost"]
    assert "No such file" in failed["lost"]


def be_killed(file: Any, name: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_task_whose_process_is_killed_fails_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "done"
    tasks = {
        "lost": task(file, "lost", work=be_killed),
        "last": task(file, "last", "lost"),
        **{name: task(file, name) for name in "abc"},
    }
    with Pool(2) as pool:
        failed = pool.perform(tasks, "letters")
        assert sorted(file.read_text().split()) == ["a", "b", "c"]
        assert set(failed) == {"lost", "last"}
        assert failed["last"] == failed["lost"] == "its process was killed, perhaps because memory ran out"
        assert capsys.readouterr().err.count("lost will be retried alone: its process was killed") == 1
        assert pool.perform({"more": task(file, "more")}, "letters") == {}
        processes = [each.process for each in pool.workers]
    assert not any(each.is_alive() for each in processes)


def fail_once(how: Any, file: Any, name: Any) -> None:
    again = file.with_name(f"{name} again")
    if not again.exists():
        again.touch()
        how()
    note(file, name)


def run_out_of_memory() -> None:
    raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")


def be_killed_by_the_system() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_lacked_memory_is_tried_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "done"
    tasks = {
        "large": task(file, "large", work=partial(fail_once, run_out_of_memory)),
        "killed": task(file, "killed", work=partial(fail_once, be_killed_by_the_system)),
        "last": task(file, "last", "large", "killed"),
    }
    with Pool(2) as pool:
        assert pool.perform(tasks, "letters") == {}
    assert sorted(file.read_text().split()) == ["killed", "large", "last"]
    said = capsys.readouterr().err
    assert "large will be retried alone: OutOfMemoryError: CUDA out of memory" in said
    assert "killed will be retried alone: its process was killed, perhaps because memory ran out" in said
    assert "letters: 3/3" in said


def test_what_lacked_memory_has_nothing_beside_it_the_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work, ended = [], []

    class Stub:
        """Stands for a process whose task lacks memory, if it is the large one, wherever another is beside it."""

        process = SimpleNamespace(is_alive=lambda: True, terminate=lambda: None)

        def __init__(self, gpu: str) -> None:
            self.connection, self.gpu = self, gpu

        def begin(self, task: Task) -> None:
            self.name, self.alone = task.name, True
            at_work.append(self)
            if len(at_work) > 1:
                for each in at_work:
                    each.alone = False

        def outcome(self) -> str:
            at_work.remove(self)
            ended.append(self.name)
            return "" if self.alone or self.name != "large" else attempt(run_out_of_memory)

        def end(self) -> None:
            pass

    monkeypatch.setattr("priormatch.pipeline.pool.Worker", Stub)
    monkeypatch.setattr("priormatch.pipeline.pool.wait", lambda connections: at_work[:1])
    tasks = {name: task(tmp_path / "done", name) for name in ("large", "b", "c", "d")}
    tasks["last"] = task(tmp_path / "done", "last", "large")
    with Pool(2) as pool:
        assert pool.perform(tasks, "letters") == {}
    assert ended == ["large", "b", "c", "d", "large", "last"]


def note_gpu(file: Any, name: Any) -> None:
    note(file, f"{name}:{os.environ.get('CUDA_VISIBLE_DEVICES')}")


def test_tasks_in_parallel_are_spread_over_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five tasks begin at once; what each process sees is one GPU. A GPU that is free again gets the next task."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    file = tmp_path / "seen"
    tasks = {name: task(file, name, work=note_gpu) for name in "abcde"}
    with Pool(5, gpus_for("auto")) as pool:
        assert pool.perform(tasks, "letters") == {}
        assert sorted(file.read_text().split()) == ["a:0", "b:1", "c:2", "d:0", "e:1"]
        file.unlink()
        assert pool.perform({"f": task(file, "f", work=note_gpu)}, "letters") == {}
        assert file.read_text().split() == ["f:0"]
        assert len(pool.workers) == 5, "processes are used again"


def test_only_visible_gpus_are_taken_and_a_chosen_device_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, GPU-7,-1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert gpus_for("cuda") == ["5", "GPU-7"]
    assert gpus_for("cuda:1") == gpus_for("cpu") == [""]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert gpus_for("auto") == [""]


def wait_forever(file: Any, name: Any) -> None:
    try:
        file.write_text(str(os.getpid()))
        threading.Event().wait()
    finally:
        file.with_name("put down").touch()


def test_a_process_at_work_puts_down_how_far_it_came_when_its_pool_is_left(tmp_path: Path) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    file = tmp_path / "begun"
    os.mkfifo(file)

    def ring_once_begun() -> None:
        file.read_text()
        os.kill(os.getpid(), signal.SIGUSR1)

    threading.Thread(target=ring_once_begun).start()
    before = signal.signal(signal.SIGUSR1, stop)
    try:
        with pytest.raises(KeyboardInterrupt), Pool(2) as pool:
            pool.perform({"a": task(file, "a", work=wait_forever)}, "letters")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not any(each.process.is_alive() for each in pool.workers)
    assert (tmp_path / "put down").exists()


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd")
def test_a_process_at_work_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    file = tmp_path / "begun"
    os.mkfifo(file)
    command = [sys.executable, "-c", "import sys, test_pool; test_pool.work_apart(sys.argv[1])", str(file)]
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}) as starter:
        worker = os.pidfd_open(int(file.read_text()))
        starter.kill()
    assert select.select([worker], [], [], 30)[0], "it has ended"
    assert (tmp_path / "put down").exists()
    os.close(worker)


def work_apart(file: Any) -> None:
    """Have a task done that does not end."""
    worker = Worker()
    worker.begin(task(Path(file), "a", work=wait_forever))
    worker.outcome()


def note_process(file: Path, word: str) -> None:
    note(file, f"{word} {os.getpid()}")


def fail() -> None:
    raise UserError("no text: give some")


def test_stages_are_made_in_order_in_one_other_process(tmp_path: Path) -> None:
    file = tmp_path / "made"
    with Beside(True, tmp_path / "log") as beside:
        for word in ("prior", "topline"):
            beside.begin(word, partial(note_process, file, word))
        beside.wait_for("topline")
        beside.wait_for("prior")  # which was waited for with it
        beside.begin("longer", partial(note_process, file, "longer"))
        beside.begin("decoded", partial(note_process, file, "decoded"))
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
