"""Run tasks one at a time, or several in parallel in separate processes, or some beside the work of this process."""

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TypeVar

import torch

from priormatch.errors import UserError
from priormatch.progress import Meter, say

Key = TypeVar("Key", bound=Hashable)
PATIENCE = 20.0  # seconds before a process that was asked to end is killed
GRACE = 5.0  # the same if the parent is gone: about the time a new command takes to start
KILLED = "its process was killed, perhaps because memory ran out"
WANT_OF_MEMORY = (KILLED, "MemoryError", "out of memory", "allocate memory", "signal: Killed")
"""Parts of error messages (Python's, torch's and ours) of tasks that ran out of memory."""


@dataclass(frozen=True)
class Task:
    """Named work, which must be picklable to run in another process, and the log file for its messages there.

    `after` holds the keys of tasks that must finish first.
    """

    name: str
    work: Callable[[], object]
    log: Path
    after: frozenset[Hashable] = frozenset()


class Pool:
    """Runs tasks in this process, or several in parallel in worker processes that live as long as the pool.

    Workers are spread over `gpus`, as CUDA_VISIBLE_DEVICES names them; an empty name leaves the choice to them.
    """

    def __init__(self, jobs: int, gpus: Sequence[str] = ("",)) -> None:
        self.jobs, self.gpus = jobs, gpus
        self.workers: list[Worker] = []

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.workers:
            each.process.terminate()
        for each in self.workers:
            each.end()

    def perform(self, tasks: Mapping[Key, Task], title: str) -> dict[Key, str]:
        """Run tasks, in order among those that are ready; return the failed tasks with reasons.

        Tasks that depend on a failed task are not started and fail for the same reason; all others run. With several
        jobs, a task that runs out of memory is retried once, when no other task is ready or running.
        """
        failed: dict[Key, str] = {}
        left, running, alone = dict(tasks), dict[Worker, tuple[Key, Task]](), set[Key]()
        with Meter(title, len(tasks)) as meter:
            while left or running:
                for key, reason in self._ended(left, running, alone, failed):
                    if reason:
                        failed[key] = reason
                    meter.advance(note=f"{tasks[key].name}{': ' + reason if reason else ''}")
        return failed

    def _ended(
        self,
        left: dict[Key, Task],
        running: dict["Worker", tuple[Key, Task]],
        alone: set[Key],
        failed: Mapping[Key, str],
    ) -> Iterator[tuple[Key, str]]:
        """Start ready tasks, those in `alone` one at a time; yield the next tasks to end, with reasons if failed."""
        for key, task in list(left.items()):
            if not task.after.isdisjoint(failed):
                del left[key]
                yield key, next(failed[each] for each in failed if each in task.after)
                return
        unfinished = {*left, *(key for key, _ in running.values())}
        ready = [key for key, task in left.items() if task.after.isdisjoint(unfinished)]
        assert ready or running, "tasks depend on each other in a cycle"
        if self.jobs == 1:
            yield ready[0], attempt(left.pop(ready[0]).work)
            return
        together = [key for key in ready if key not in alone]
        for key in together[: self.jobs - len(running)] if together or running else ready[:1]:
            worker, task = self._idle(running), left.pop(key)
            say(f"{task.name}, log: {task.log}")
            worker.begin(task)
            running[worker] = key, task
        heard = wait([each.connection for each in running])
        for worker in [each for each in running if each.connection in heard]:
            (key, task), reason = running.pop(worker), worker.outcome()
            if key not in alone and any(words in reason for words in WANT_OF_MEMORY):
                say(f"{task.name} will be retried alone: {reason}")
                alone.add(key)
                left[key] = task
            else:
                yield key, reason

    def _idle(self, running: Mapping["Worker", object]) -> "Worker":
        """An idle worker on the GPU with the fewest tasks; a new one if there is none."""
        self.workers = [each for each in self.workers if each in running or each.process.is_alive()]
        gpu = min(self.gpus, key=[each.gpu for each in running].count)
        for each in self.workers:
            if each not in running and each.gpu == gpu:
                return each
        self.workers.append(Worker(gpu))
        return self.workers[-1]


class Worker:
    """A process that runs one task at a time, on one GPU; if a task crashes it, only that task fails."""

    def __init__(self, gpu: str = "") -> None:
        self.gpu = gpu
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, gpu))
        self.process.start()
        theirs.close()

    def begin(self, task: Task) -> None:
        """Send a task to the process."""
        with contextlib.suppress(BrokenPipeError):  # the process has just ended: `outcome` reports it
            self.connection.send((task.work, task.log))

    def outcome(self) -> str:
        """Wait for the task to end; return the reason if it failed."""
        try:
            return str(self.connection.recv())
        except (EOFError, ConnectionResetError):
            self.end()
            code = self.process.exitcode
            return KILLED if code == -signal.SIGKILL else f"its process ended with exit code {code}"

    def end(self) -> None:
        """Wait for a process that was asked to end, and kill it after `PATIENCE` seconds."""
        self.process.join(PATIENCE)
        self.process.kill()
        self.process.join()


class Beside:
    """Stages that a second process makes, in the order in which they are begun; its messages go to a log file.

    Without `parallel` nothing is begun, and the first process makes all stages itself.
    """

    def __init__(self, parallel: bool, log: Path) -> None:
        self.parallel, self.log = parallel, log
        self.worker: Worker | None = None
        self.begun: deque[str] = deque()

    def __enter__(self) -> "Beside":
        return self

    def __exit__(self, *_: object) -> None:
        if self.worker is not None:
            self.worker.process.terminate()  # a training saves its progress
            self.worker.end()

    def begin(self, stage: str, make: Callable[[], object]) -> None:
        """Make a stage after those begun before."""
        if self.parallel:
            self.worker = self.worker or Worker()
            say(f"{stage}: in a second process, log: {self.log}")
            self.worker.begin(Task(stage, make, self.log))
            self.begun.append(stage)

    def wait_for(self, stage: str) -> None:
        """Wait until a stage is made that was begun; raise `UserError` if it failed."""
        while self.worker is not None and stage in self.begun:
            now = self.begun.popleft()
            say(f"waiting for {now}, log: {self.log}")
            if reason := self.worker.outcome():
                raise UserError(f"{now}: {reason.removeprefix('UserError: ')} (log: {self.log})")

    def wait_for_all(self) -> None:
        """Wait until all stages are made that were begun."""
        if self.begun:
            self.wait_for(self.begun[-1])


def serve(connection: Connection, gpu: str) -> None:
    """Run incoming tasks until this process is terminated or its parent is gone."""
    if gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu  # before anything here uses CUDA
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from a terminal: the parent gets it too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that a stage saves its progress
    threading.Thread(target=end_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError):
        while True:
            work, log = connection.recv()
            connection.send(attempt_apart(work, log))


def end_with_parent() -> None:
    """End this process soon after its parent is gone, perhaps killed, because this process holds a lock."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os.kill(os.getpid(), signal.SIGKILL)


def attempt(work: Callable[[], object]) -> str:
    """Run a task; return the reason if it failed."""
    try:
        work()
    except Exception as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"[:200]
    return ""


def attempt_apart(work: Callable[[], object], log: Path) -> str:
    """Run a task with its messages in a log file; return the reason if it failed."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file, contextlib.redirect_stderr(file):
        reason = attempt(work)
    gc.collect()
    torch.cuda.empty_cache()  # for the other processes
    return reason
