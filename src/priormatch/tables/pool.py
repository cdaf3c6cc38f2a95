"""Tasks done one after another, or several at a time in processes of their own."""

import contextlib
import gc
import multiprocessing
import traceback
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

from priormatch.progress import Meter

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Task:
    """Work under a name, which must be importable for a process of its own, and where its messages go there."""

    name: str
    work: Callable[[], object]
    log: Path


class Pool:
    """Does tasks in this process, or several at a time in others that live as long as it does."""

    def __init__(self, jobs: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.processes = ProcessPoolExecutor(jobs, mp_context=context) if jobs > 1 else None

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.processes is not None:
            self.processes.shutdown(wait=kind is None, cancel_futures=True)

    def perform(self, tasks: Mapping[Key, Task], title: str) -> dict[Key, str]:
        """Do tasks, begun in their order, each whether or not others fail; those that failed, and why."""
        failed = {}
        with Meter(title, len(tasks)) as meter:
            for key, reason in self._results(tasks):
                if reason:
                    failed[key] = reason
                meter.advance(note=f"{tasks[key].name}{': ' + reason if reason else ''}")
        return failed

    def _results(self, tasks: Mapping[Key, Task]) -> Iterator[tuple[Key, str]]:
        """Each task as it ends, with the reason where it failed."""
        if self.processes is None:
            for key, task in tasks.items():
                yield key, attempt(task.work)
            return
        futures = {
            self.processes.submit(attempt_apart, task.work, task.log): key for key, task in tasks.items()
        }
        for future in as_completed(futures):
            yield futures[future], future.result()


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
