"""Training metrics: one JSON line per report, the same values as TensorBoard events, and optionally in W&B."""

import fcntl
import json
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from priormatch.distributed import is_main
from priormatch.files import open_regular, replacing, set_aside, writing
from priormatch.json_text import parse_json
from priormatch.progress import say
from priormatch.training.wandb_log import WandbLog

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

FILE = "metrics.jsonl"
_writing = threading.Lock()
"""Excludes threads of this process from each other, which record locks do not."""


def parse_entry(text: str) -> dict[str, Any] | None:
    """Parse a line of `metrics.jsonl`; return None if it is invalid."""
    try:
        entry = parse_json(text)
    except ValueError:
        return None
    known = isinstance(entry, dict) and isinstance(entry.get("stage"), str)
    return entry if known and type(entry.get("update")) in (int, float) else None


def _event_writer(folder: Path, update: int) -> "SummaryWriter | None":
    """A writer of TensorBoard events that discards those after `update`; None without the extra `tensorboard`."""
    if find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder), purge_step=update + 1 if update else 0)


@contextmanager
def alone_with(*files: Path) -> Iterator[None]:
    """Wait until no other stage uses these files of metrics."""
    with _writing, ExitStack() as opened:
        for file in sorted(files):
            lock = opened.enter_context(file.with_suffix(".lock").open("w"))
            fcntl.lockf(lock, fcntl.LOCK_EX)  # unlike flock, not inherited by forked readers
        yield


def move_lines(stage: str, source: Path, target: Path) -> None:
    """Move a stage's lines from the metrics of one folder to the end of those of another."""
    file, other = (folder / FILE for folder in (source, target))
    if not file.is_file():
        return
    with alone_with(file, other):
        lines = read_lines(file)
        moved = [
            line for line in lines if (entry := parse_entry(line)) is not None and entry["stage"] == stage
        ]
        if not moved:
            return
        append_lines(other, moved)
        gone = set(moved)
        write_lines(file, [line for line in lines if line not in gone])


def read_lines(file: Path) -> list[str]:
    """The lines of a file; an invalid byte is kept, and damages only its own line."""
    with open_regular(file) as opened:
        return opened.read().decode(errors="surrogateescape").splitlines()


def append_lines(file: Path, lines: Sequence[str]) -> None:
    """Add lines to a file, with the invalid bytes that reading has kept."""
    with writing(file), file.open("a", encoding="utf-8", errors="surrogateescape") as end:
        end.writelines(f"{line}\n" for line in lines)


def write_lines(file: Path, lines: Sequence[str]) -> None:
    """Replace the lines of a file, with the invalid bytes that reading has kept."""
    with replacing(file) as temporary:
        temporary.write_text(
            "".join(f"{line}\n" for line in lines), encoding="utf-8", errors="surrogateescape"
        )


class MetricsLog:
    """Appends to `metrics.jsonl` of a run, after removing the lines of this stage after `update`.

    Those lines belong to updates that an interruption lost and that will be repeated. At update 0 all lines of the
    stage move to `metrics.old.jsonl`. Several stages of a run may train at the same time. `values` restores the
    values for the next report that `settle` returned.
    """

    def __init__(
        self,
        folder: Path,
        stage: str,
        update: int,
        mirror: WandbLog | None = None,
        values: Mapping[str, list[float]] | None = None,
    ) -> None:
        self.file, self.stage, self.mirror = folder / FILE, stage, mirror
        self.events = None
        if is_main():
            folder.mkdir(parents=True, exist_ok=True)
            with alone_with(self.file):
                if self.file.exists():
                    self._take_back(update)
            self.events = _event_writer(folder / "tensorboard" / stage, update)
        self.values = {name: list(each) for name, each in (values or {}).items()}
        self.gathered: list[tuple[list[str], Tensor | None, dict[str, float]]] = []

    def _take_back(self, update: int) -> None:
        lines = read_lines(self.file)
        undone = [line for line in lines if self._undone(line, update)]
        if undone and update == 0:  # the stage restarts, perhaps with other settings
            append_lines(self.file.with_name("metrics.old.jsonl"), undone)
        left = [line for line in lines if not self._undone(line, update)]
        damaged = sum(parse_entry(line) is None for line in lines[:-1])  # a kill may truncate the last
        if damaged:
            aside = set_aside(self.file)
            say(f"{self.file.name}: {damaged} damaged lines removed; the original file is kept as {aside}")
        write_lines(self.file, left)

    def _undone(self, line: str, update: int) -> bool:
        entry = parse_entry(line)
        if entry is None:
            return True  # truncated by a kill, or damaged
        return bool(entry["stage"] == self.stage and (entry["update"] > update or update == 0))

    def add(self, metrics: Mapping[str, Tensor | float]) -> None:
        """Add the metrics of one update to the next report, without waiting for the device."""
        on_device = {name: value for name, value in metrics.items() if isinstance(value, Tensor)}
        stacked = torch.stack([value.detach().float() for value in on_device.values()]) if on_device else None
        others = {name: value for name, value in metrics.items() if not isinstance(value, Tensor)}
        self.gathered.append((list(on_device), stacked, others))

    def settle(self) -> dict[str, list[float]]:
        """The finite values since the last report by name, for a checkpoint; waits for the device."""
        for names, stacked, others in self.gathered:
            found = dict(zip(names, [] if stacked is None else stacked.tolist(), strict=True))
            for name, value in (found | others).items():
                if math.isfinite(value):
                    self.values.setdefault(name, []).append(value)
        self.gathered.clear()
        return self.values

    def means(self) -> dict[str, float]:
        """Means of the finite values since the last report."""
        values, self.values = self.settle(), {}
        return {name: sum(each) / len(each) for name, each in values.items()}

    def write(self, update: int, metrics: dict[str, Any]) -> None:
        """Write one line, and its numbers as TensorBoard events if TensorBoard is installed; the main process does."""
        if not is_main():
            return
        with writing(self.file), alone_with(self.file), self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"stage": self.stage, "update": update, **metrics}) + "\n")
        if self.events is not None:
            with writing(Path(self.events.log_dir)):
                for name, value in metrics.items():
                    if isinstance(value, int | float):
                        self.events.add_scalar(name, value, update)
        if self.mirror is not None:
            self.mirror.write(update, metrics)

    def close(self) -> None:
        """Close the TensorBoard events and the W&B run."""
        if self.events is not None:
            with writing(Path(self.events.log_dir)):
                self.events.close()
        if self.mirror is not None:
            self.mirror.close()
