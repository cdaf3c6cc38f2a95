"""Timing of the parts of a step."""

import time
from collections import defaultdict

import torch


class Stopwatch:
    """Lap timer on the host clock or, for asynchronous work on a GPU, with CUDA events."""

    def __init__(self, device: torch.device) -> None:
        self.on_gpu = device.type == "cuda"
        self.laps: list[tuple[str, float | torch.cuda.Event]] = [("", self._now())]

    def _now(self) -> float | torch.cuda.Event:
        if not self.on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def lap(self, name: str) -> None:
        """Count the time since the last lap toward `name`."""
        self.laps.append((name, self._now()))

    def shares(self) -> dict[str, float]:
        """Each name's share of the time since the last call."""
        seconds: dict[str, float] = defaultdict(float)
        last = self.laps[-1][1]
        if isinstance(last, torch.cuda.Event):
            last.synchronize()
        for (_, before), (name, after) in zip(self.laps, self.laps[1:], strict=False):
            seconds[name] += _between(before, after)
        self.laps = [("", self._now())]
        total = sum(seconds.values()) or 1.0
        return {name: value / total for name, value in seconds.items()}


def _between(before: float | torch.cuda.Event, after: float | torch.cuda.Event) -> float:
    """Seconds from one moment to another."""
    if isinstance(before, torch.cuda.Event) and isinstance(after, torch.cuda.Event):
        return before.elapsed_time(after) / 1000
    assert isinstance(before, float) and isinstance(after, float)
    return after - before
