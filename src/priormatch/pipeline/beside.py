"""A second process of a run: it trains what the first does not wait for (`parallel` in the settings)."""

from collections import deque
from collections.abc import Callable
from pathlib import Path

from priormatch.errors import UserError
from priormatch.pipeline.pool import Task, Worker
from priormatch.progress import say


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
