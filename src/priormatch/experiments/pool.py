"""Tasks done one after another, or several at a time in processes of their own."""

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TypeVar

import torch

from priormatch.progress import Meter, say

Key = TypeVar("Key", bound=Hashable)
PATIENCE = 20.0  # seconds that a process has to end by itself
GRACE = 5.0  # the same, when nobody waits for it: about as long as a new command takes to start
KILLED = "its process was killed, perhaps for want of memory"
WANT_OF_MEMORY = (KILLED, "MemoryError", "out of memory", "allocate memory", "signal: Killed")
"""Words of the reasons, Python's, torch's and ours, of what failed because there was too little memory."""


@dataclass(frozen=True)
class Task:
    """Work under a name, which must be importable for a process of its own, and where its messages go there.

    `after` has the keys of tasks that must be done before.
    """

    name: str
    work: Callable[[], object]
    log: Path
    after: frozenset[Hashable] = frozenset()


class Pool:
    """Does tasks in this process, or several at a time in others that live as long as it does."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.workers: list[Worker] = []

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.workers:
            each.process.terminate()
        for each in self.workers:
            each.end()

    def perform(self, tasks: Mapping[Key, Task], title: str) -> dict[Key, str]:
        """Do tasks, those that may begin in their order; the ones that failed, and why.

        What comes after a task that failed is not begun, and fails for the same reason; all others are done. One that
        fails beside others for want of memory is tried once more when nothing else is left to begin or at work.
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
        """The tasks that end next, with the reason where they fail; begins those that may, of `alone` one by itself."""
        for key, task in list(left.items()):
            if not task.after.isdisjoint(failed):
                del left[key]
                yield key, next(failed[each] for each in failed if each in task.after)
                return
        unfinished = {*left, *(key for key, _ in running.values())}
        ready = [key for key, task in left.items() if task.after.isdisjoint(unfinished)]
        assert ready or running, "tasks wait for each other"
        if self.jobs == 1:
            yield ready[0], attempt(left.pop(ready[0]).work)
            return
        together = [key for key in ready if key not in alone]
        for key in together[: self.jobs - len(running)] if together or running else ready[:1]:
            worker, task = self._idle(running), left.pop(key)
            say(f"{task.name}, told in {task.log}")
            worker.begin(task)
            running[worker] = key, task
        heard = wait([each.connection for each in running])
        for worker in [each for each in running if each.connection in heard]:
            (key, task), reason = running.pop(worker), worker.outcome()
            if key not in alone and any(words in reason for words in WANT_OF_MEMORY):
                say(f"{task.name} is tried again by itself: {reason}")
                alone.add(key)
                left[key] = task
            else:
                yield key, reason

    def _idle(self, running: Mapping["Worker", object]) -> "Worker":
        """A process that has nothing to do, a new one where none is left."""
        self.workers = [each for each in self.workers if each in running or each.process.is_alive()]
        for each in self.workers:
            if each not in running:
                return each
        self.workers.append(Worker())
        return self.workers[-1]


class Worker:
    """A process that does one task after another; a task that takes it down with it fails alone."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs,))
        self.process.start()
        theirs.close()

    def begin(self, task: Task) -> None:
        """Hand over a task."""
        with contextlib.suppress(BrokenPipeError):  # it has just ended: the outcome tells
            self.connection.send((task.work, task.log))

    def outcome(self) -> str:
        """Wait until its task is over; why it failed, if so."""
        try:
            return str(self.connection.recv())
        except (EOFError, ConnectionResetError):
            self.end()
            code = self.process.exitcode
            return KILLED if code == -signal.SIGKILL else f"its process ended with exit code {code}"

    def end(self) -> None:
        """Wait for its end, which it has been asked for, but not forever."""
        self.process.join(PATIENCE)
        self.process.kill()
        self.process.join()


def serve(connection: Connection) -> None:
    """Do the tasks that come, until this process is told to end, or the one that sends them is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the one that sends tasks gets it too
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(1)
    )  # so that a stage puts down how far it came, or saves
    threading.Thread(target=end_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError):
        while True:
            work, log = connection.recv()
            connection.send(attempt_apart(work, log))


def end_with_parent() -> None:
    """End this process when the one that started it is gone, which may have been killed; soon, as it holds a lock."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os.kill(os.getpid(), signal.SIGKILL)


def attempt(work: Callable[[], object]) -> str:
    """Do a task; why it failed, if so."""
    try:
        work()
    except Exception as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"[:200]
    return ""


def attempt_apart(work: Callable[[], object], log: Path) -> str:
    """The same with its messages in a file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file, contextlib.redirect_stderr(file):
        reason = attempt(work)
    gc.collect()
    torch.cuda.empty_cache()  # for those who work beside it
    return reason
