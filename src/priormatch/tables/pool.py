"""Tasks done one after another, or several at a time in processes of their own."""

import contextlib
import gc
import multiprocessing
import traceback
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

from priormatch.progress import Meter

Key = TypeVar("Key", bound=Hashable)


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
        context = multiprocessing.get_context("spawn")
        self.jobs = jobs
        self.processes = ProcessPoolExecutor(jobs, mp_context=context) if jobs > 1 else None

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.processes is not None:
            self.processes.shutdown(wait=kind is None, cancel_futures=True)

    def perform(self, tasks: Mapping[Key, Task], title: str) -> dict[Key, str]:
        """Do tasks, those that may begin in their order; the ones that failed, and why.

        What comes after a task that failed is not begun, and fails for the same reason; all others are done.
        """
        failed: dict[Key, str] = {}
        left, running = dict(tasks), dict[Future[str], Key]()
        with Meter(title, len(tasks)) as meter:
            while left or running:
                for key, reason in self._ended(left, running, failed):
                    if reason:
                        failed[key] = reason
                    meter.advance(note=f"{tasks[key].name}{': ' + reason if reason else ''}")
        return failed

    def _ended(
        self, left: dict[Key, Task], running: dict[Future[str], Key], failed: Mapping[Key, str]
    ) -> Iterator[tuple[Key, str]]:
        """The tasks that end next, with the reason where they fail; begins those that may."""
        for key, task in list(left.items()):
            if not task.after.isdisjoint(failed):
                del left[key]
                yield key, next(failed[each] for each in failed if each in task.after)
                return
        unfinished = {*left, *running.values()}
        ready = [key for key, task in left.items() if task.after.isdisjoint(unfinished)]
        assert ready or running, "tasks wait for each other"
        if self.processes is None:
            yield ready[0], attempt(left.pop(ready[0]).work)
            return
        for key in ready[: self.jobs - len(running)]:
            task = left.pop(key)
            running[self.processes.submit(attempt_apart, task.work, task.log)] = key
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            yield running.pop(future), future.result()


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
