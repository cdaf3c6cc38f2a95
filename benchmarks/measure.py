"""What the benchmarks share: timing in turns, what was measured on, and a short table."""

import platform
import statistics
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

import rich.table
import torch
from rich.console import Console

from priormatch.progress import Meter

Inputs = TypeVar("Inputs")


def elapsed_ms(work: Callable[[], object], device: torch.device) -> float:
    """The milliseconds that one call takes: by events on a GPU, by the clock elsewhere."""
    if device.type == "cuda":
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize(device)
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize(device)
        return begin.elapsed_time(end)
    begun = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - begun)


def fresh_medians(
    works: Mapping[str, Callable[[Inputs], object]],
    fresh_inputs: Callable[[], Inputs],
    device: torch.device,
    repetitions: int,
    warm_up: int = 1,
    in_a_row: int = 1,
) -> dict[str, float]:
    """The median milliseconds of each piece of work.

    They take turns, so that a machine that slows down slows them all, and each turn's inputs are new and the same
    for all of them; with `in_a_row` a turn is so many calls, one right after the other. The first `warm_up` turns are
    not counted.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    with Meter("measuring", (warm_up + repetitions) * len(works)) as meter:
        for turn in range(warm_up + repetitions):
            inputs = [fresh_inputs() for _ in range(in_a_row)]
            for name, work in works.items():
                milliseconds = elapsed_ms(lambda work=work, inputs=inputs: [*map(work, inputs)], device)
                if turn >= warm_up:
                    times[name].append(milliseconds / in_a_row)
                meter.advance(note=name)
    return {name: statistics.median(each) for name, each in times.items()}


def describe(device: torch.device) -> str:
    """The device in words: the GPU's name, or the processor's and the number of threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{_processor()}, {threads} thread{'s' if threads > 1 else ''}"


def _processor() -> str:
    """The processor's name where the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def versions(*packages: str) -> dict[str, str]:
    """The versions of Python and of those of the packages that are installed."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


class Table:
    """A short table of what was measured: what, milliseconds, a remark."""

    def __init__(self, title: str) -> None:
        self.table = rich.table.Table("", "ms", "", title=title, title_justify="left")
        self.table.columns[1].justify = "right"

    def add(self, what: str, milliseconds: float | None, remark: str = "") -> None:
        """One more row; what was skipped has no milliseconds."""
        shown = "" if milliseconds is None else f"{milliseconds:.{1 if milliseconds >= 10 else 3}f}"
        self.table.add_row(what, shown, remark)

    def show(self) -> None:
        """Print it."""
        Console().print(self.table)
