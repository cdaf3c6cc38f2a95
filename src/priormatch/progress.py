"""Progress messages: a live bar on a terminal, occasional lines in a log."""

import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from priormatch.distributed import is_main
from priormatch.errors import CONTROL

Item = TypeVar("Item")

console = Console(stderr=True, soft_wrap=True)
SECONDS_BETWEEN_LINES = 20.0


def say(message: str, everywhere: bool = False) -> None:
    """Print one line for the user on standard error; of several processes the main one does, or all of them."""
    if not (everywhere or is_main()):
        return
    console.print(message.translate(CONTROL), markup=False, highlight=False)


def duration_text(seconds: float) -> str:
    """Format seconds: 42s, 3m10s, 2h05m."""
    seconds = max(0, round(seconds))
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"


def count_text(number: int, thing: str, things: str = "") -> str:
    """Format a count with its noun: 1 file, 1,200 files."""
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"


def rate_text(speed: float) -> str:
    """Format a rate per second: 0.25/s, 14.1/s, 1,410/s."""
    return f"{speed:,.0f}/s" if speed >= 100 else f"{speed:.3g}/s"


class Meter:
    """Counts work toward `total` and shows the progress, speed and time left.

    On a terminal this is a live bar; elsewhere, and inside another meter, it is a plain line at most every 20 seconds
    and one at the end.
    """

    live = False  # whether a bar is shown; rich 13 allows only one

    def __init__(self, description: str, total: int | None, done: int = 0) -> None:
        self.description, self.total, self.done = description, total, done
        self.began_at, self.began, self.last_line = done, time.monotonic(), time.monotonic()
        self.note = ""
        self.bar = (
            Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[speed]}"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}"),
                console=console,
            )
            if console.is_terminal and is_main()
            else None
        )

    def __enter__(self) -> "Meter":
        if Meter.live:
            self.bar = None
        if self.bar is not None:
            self.bar.start()
            Meter.live = True
            self.task = self.bar.add_task(
                self.description, total=self.total, completed=self.done, note="", speed=""
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()
            Meter.live = False
        elif self.done > self.began_at:
            self._line()

    def advance(self, amount: int = 1, note: str | None = None) -> None:
        """Add `amount` to the count; `note` replaces the text at the end of the line."""
        self.done += amount
        self.note = self.note if note is None else note
        if self.bar is not None:
            self.bar.update(self.task, completed=self.done, note=self.note, speed=rate_text(self._speed()))
        elif time.monotonic() - self.last_line >= SECONDS_BETWEEN_LINES:
            self._line()

    def _speed(self) -> float:
        return (self.done - self.began_at) / max(time.monotonic() - self.began, 1e-9)

    def _line(self) -> None:
        self.last_line = time.monotonic()
        speed = self._speed()
        left = ""
        if self.total is not None and speed > 0 and self.done < self.total:
            left = f", {duration_text((self.total - self.done) / speed)} left"
        of = "" if self.total is None else f"/{self.total}"
        note = f"  {self.note}" if self.note else ""
        say(f"{self.description}: {self.done}{of}, {rate_text(speed)}{left}{note}")


def track(items: Iterable[Item], description: str, total: int | None = None) -> Iterator[Item]:
    """Yield the items and show progress, speed and time left."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with Meter(description, total) as meter:
        for item in items:
            yield item
            meter.advance()
