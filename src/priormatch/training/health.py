"""Gradients that are not finite: skipped, reported, and a reason to stop when there are many."""

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from priormatch.errors import UserError
from priormatch.progress import say

MOST_BAD_UPDATES = 20
WINDOW = 1000
MOST_BAD_SHARE = 0.05
"""More than one update in twenty lost is no accident. At least 20 must be lost, so that a bad start is forgiven."""
MOST_NAMES = 5


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
    """Names updates whose gradient was not finite, and gives up when there are many: in a row, or a share of the last.

    On a GPU a norm is looked at one update late, when it has been computed while the next was being prepared.
    """

    def __init__(self, stage: str, bad: int, skipped: Sequence[int] = ()) -> None:
        self.stage, self.bad, self.skipped = stage, bad, list(skipped)
        self.waiting: list[tuple[int, Later, Sequence[str]]] = []

    def watch(self, update: int, norm: Tensor, ids: Sequence[str]) -> None:
        """Take note of an update's gradient norm, and of the utterances of its batch."""
        self.waiting.append((update, Later(norm.detach()), ids))
        self._look(1 if norm.is_cuda else 0)

    def settle(self) -> dict[str, Any]:
        """Look at all that are waiting; what a checkpoint keeps: those skipped in a row, and the latest skipped."""
        self._look(0)
        return {"bad": self.bad, "skipped": self.skipped}

    def finish(self, updates: int) -> None:
        """Give up at the end of a training too short for the other limits, if it skipped most of its updates."""
        self._look(0)
        recent = min(updates, WINDOW)
        if 2 * len(self.skipped) > recent:
            self._give_up(f"{len(self.skipped)} of the last {recent} updates", "")

    def _look(self, leave: int) -> None:
        while len(self.waiting) > leave:
            update, norm, ids = self.waiting.pop(0)
            if math.isfinite(norm.value()):
                self.bad = 0
                continue
            self.bad += 1
            self.skipped = [each for each in self.skipped if each > update - WINDOW] + [update]
            whose = f" (utterances {names(ids)})" if ids else ""
            say(f"{self.stage}: update {update} skipped: its gradient is not finite{whose}")
            recent = min(update + 1, WINDOW)
            if self.bad >= MOST_BAD_UPDATES:
                self._give_up(f"{self.bad} updates in a row", whose)
            if len(self.skipped) >= MOST_BAD_UPDATES and len(self.skipped) > MOST_BAD_SHARE * recent:
                self._give_up(f"{len(self.skipped)} of the last {recent} updates", whose)

    def _give_up(self, how_many: str, whose: str) -> NoReturn:
        look = (
            f", or check the audio and the transcripts of the last one{whose} and of those above"
            if whose
            else ""
        )
        raise UserError(
            f"{self.stage}: {how_many} had a gradient that is not finite: lower the learning rate{look}"
        )


def names(ids: Sequence[str]) -> str:
    """The first few of a batch's utterances, and how many more there are."""
    more = len(ids) - MOST_NAMES
    return ", ".join(ids[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
