"""Gradients that are not finite: skipped, told, and not endured for ever."""

import math

import torch
from torch import Tensor

from priormatch.errors import UserError
from priormatch.progress import say

MOST_BAD_UPDATES = 20


class Later:
    """A number on its way from a GPU; asking for it waits for the work before it, and for none behind it."""

    def __init__(self, number: Tensor) -> None:
        self.number, self.ready = number, None
        if number.is_cuda:
            self.number = torch.empty((), dtype=number.dtype, pin_memory=True)
            self.number.copy_(number, non_blocking=True)
            self.ready = torch.cuda.Event()
            self.ready.record()

    def value(self) -> float:
        """The number."""
        if self.ready is not None:
            self.ready.synchronize()
        return float(self.number)


class Health:
    """Counts updates in a row whose gradient was not finite, and gives up when that goes on.

    On a GPU a norm is looked at one update late, when it has been computed while the next was being prepared.
    """

    def __init__(self, stage: str, bad: int) -> None:
        self.stage, self.bad = stage, bad
        self.waiting: list[tuple[int, Later]] = []

    def watch(self, update: int, norm: Tensor) -> None:
        """Take note of an update's gradient norm."""
        self.waiting.append((update, Later(norm.detach())))
        self._look(1 if norm.is_cuda else 0)

    def settle(self) -> int:
        """Look at all that are waiting; returns the count."""
        self._look(0)
        return self.bad

    def _look(self, leave: int) -> None:
        while len(self.waiting) > leave:
            update, norm = self.waiting.pop(0)
            if math.isfinite(norm.value()):
                self.bad = 0
                continue
            self.bad += 1
            say(f"{self.stage}: update {update} skipped: its gradient is not finite")
            if self.bad >= MOST_BAD_UPDATES:
                raise UserError(
                    f"{self.stage}: {MOST_BAD_UPDATES} updates in a row had a gradient that is not finite: lower the"
                    " learning rate, or look for broken audio among the labelled utterances"
                )
