"""Gradients that are not finite: skipped, told, and not endured for ever."""

import math

from torch import Tensor

from priormatch.errors import UserError
from priormatch.progress import say

MOST_BAD_UPDATES = 20


class Health:
    """Counts updates in a row whose gradient was not finite, and gives up when that goes on.

    On a GPU a norm is looked at one update late, when it has been computed while the next was being prepared.
    """

    def __init__(self, stage: str, bad: int) -> None:
        self.stage, self.bad = stage, bad
        self.waiting: list[tuple[int, Tensor]] = []

    def watch(self, update: int, norm: Tensor) -> None:
        """Take note of an update's gradient norm."""
        late = 1 if norm.is_cuda else 0
        self.waiting.append((update, norm.detach()))
        self._look(late)

    def settle(self) -> int:
        """Look at all that are waiting; returns the count."""
        self._look(0)
        return self.bad

    def _look(self, leave: int) -> None:
        while len(self.waiting) > leave:
            update, norm = self.waiting.pop(0)
            self.bad = 0 if math.isfinite(float(norm)) else count_bad_update(self.bad, update, self.stage)


def count_bad_update(bad: int, update: int, stage: str) -> int:
    """Skip an update whose gradient is not finite, and give up when that goes on."""
    say(f"{stage}: update {update} skipped: its gradient is not finite")
    if bad + 1 >= MOST_BAD_UPDATES:
        raise UserError(
            f"{stage}: {MOST_BAD_UPDATES} updates in a row had a gradient that is not finite: lower the"
            " learning rate, or look for broken audio among the labelled utterances"
        )
    return bad + 1
