"""What a run tells while it trains: one JSON line a report, the same as TensorBoard events, and to W&B if wanted."""

import fcntl
import json
import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from priormatch.files import open_regular, replace_text, set_aside, writing
from priormatch.json_text import parse_json
from priormatch.progress import say
from priormatch.training.wandb_log import WandbLog

_writing = threading.Lock()
"""For the threads of this process, which record locks do not keep apart."""


def parse_entry(text: str) -> dict[str, Any] | None:
    """A line of `metrics.jsonl`, or None where it is none."""
    try:
        entry = parse_json(text)
    except ValueError:
        return None
    known = isinstance(entry, dict) and isinstance(entry.get("stage"), str)
    return entry if known and type(entry.get("update")) in (int, float) else None


class MetricsLog:
    """Appends to `metrics.jsonl` of a run; lines of this stage after `update` are taken back first.

    Those are the lines of updates that a kill has undone and that will be made again. From update 0 all lines of
    the stage are taken back, and kept in `metrics.old.jsonl`. Stages of a run may be trained side by side. `values`
    has what another log had gathered for its next report, as `settle` gives it.
    """

    def __init__(
        self,
        folder: Path,
        stage: str,
        update: int,
        mirror: WandbLog | None = None,
        values: Mapping[str, list[float]] | None = None,
    ) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.file, self.stage, self.mirror = folder / "metrics.jsonl", stage, mirror
        folder.mkdir(parents=True, exist_ok=True)
        with self._alone():
            if self.file.exists():
                self._take_back(update)
        self.events = SummaryWriter(
            str(folder / "tensorboard" / stage), purge_step=update + 1 if update else 0
        )
        self.values = {name: list(each) for name, each in (values or {}).items()}
        self.gathered: list[tuple[list[str], Tensor | None, dict[str, float]]] = []

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait until no other stage is at the file."""
        with _writing, self.file.with_suffix(".lock").open("w") as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX)  # which a forked reader does not inherit
            yield

    def _take_back(self, update: int) -> None:
        with open_regular(
            self.file
        ) as file:  # a byte that is no text stays as it is, and damages its line alone
            lines = file.read().decode(errors="surrogateescape").splitlines()
        undone = [line for line in lines if self._undone(line, update)]
        if undone and update == 0:  # the stage is made anew, perhaps with other settings
            kept = self.file.with_name("metrics.old.jsonl")
            with writing(kept), kept.open("a", encoding="utf-8", errors="surrogateescape") as old:
                old.writelines(f"{line}\n" for line in undone)
        left = [line for line in lines if not self._undone(line, update)]
        damaged = sum(parse_entry(line) is None for line in lines[:-1])  # a kill may cut off the last
        if damaged:
            aside = set_aside(self.file)
            say(
                f"{self.file.name}: {damaged} damaged lines are left out; the file as it was is kept as {aside}"
            )
        replace_text(self.file, "".join(f"{line}\n" for line in left))

    def _undone(self, line: str, update: int) -> bool:
        entry = parse_entry(line)
        if entry is None:
            return True  # cut off by a kill, or damaged
        return bool(entry["stage"] == self.stage and (entry["update"] > update or update == 0))

    def add(self, metrics: Mapping[str, Tensor | float]) -> None:
        """Gather the figures of one update for the next report's means, without waiting for them."""
        on_device = {name: value for name, value in metrics.items() if isinstance(value, Tensor)}
        stacked = torch.stack([value.detach().float() for value in on_device.values()]) if on_device else None
        others = {name: value for name, value in metrics.items() if not isinstance(value, Tensor)}
        self.gathered.append((list(on_device), stacked, others))

    def settle(self) -> dict[str, list[float]]:
        """The finite values since the last report, by name, which a checkpoint keeps; waits for those on a device."""
        for names, stacked, others in self.gathered:
            found = dict(zip(names, [] if stacked is None else stacked.tolist(), strict=True))
            for name, value in (found | others).items():
                if math.isfinite(value):
                    self.values.setdefault(name, []).append(value)
        self.gathered.clear()
        return self.values

    def means(self) -> dict[str, float]:
        """Means since the last report, of the values that are finite."""
        values, self.values = self.settle(), {}
        return {name: sum(each) / len(each) for name, each in values.items()}

    def write(self, update: int, metrics: dict[str, Any]) -> None:
        """Write one line, and the numbers among it as events."""
        with writing(self.file), self._alone(), self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"stage": self.stage, "update": update, **metrics}) + "\n")
        with writing(Path(self.events.log_dir)):
            for name, value in metrics.items():
                if isinstance(value, int | float):
                    self.events.add_scalar(name, value, update)
        if self.mirror is not None:
            self.mirror.write(update, metrics)

    def close(self) -> None:
        """Flush the events."""
        with writing(Path(self.events.log_dir)):
            self.events.close()
        if self.mirror is not None:
            self.mirror.close()
