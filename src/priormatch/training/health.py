"""Non-finite gradients: their updates are skipped and reported, and too many of them stop the training."""

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from priormatch.distributed import from_all
from priormatch.errors import UserError
from priormatch.progress import say

MOST_BAD_UPDATES = 20
WINDOW = 1000
MOST_BAD_SHARE = 0.05
"""More than 5 % skipped updates are not an accident. At least 20 must be skipped, which tolerates a bad start."""
MOST_NAMES = 5


class Later:
    """A number on its way from the GPU; reading it waits only for GPU work that was queued before it."""

    def __init__(self, number: Tensor) -> None:
        self.number, self.ready = number, None
        if number.is_cuda:
            self.number = torch.empty((), dtype=number.dtype, pin_memory=True)
            self.number.copy_(number, non_blocking=True)
            self.ready = torch.cuda.Event()
            self.ready.record()

    def value(self) -> float:
        """Return the number, waiting for it if necessary."""
        if self.ready is not None:
            self.ready.synchronize()
        return float(self.number)


class Health:
    """Reports updates with a non-finite gradient, and stops training after too many in a row or too large a share.

    On a GPU each norm is checked one update late, so that the host need not wait for it. All processes see the same
    norms, so they decide the same.
    """

    def __init__(self, stage: str, bad: int, skipped: Sequence[int] = ()) -> None:
        self.stage, self.bad, self.skipped = stage, bad, list(skipped)
        self.waiting: list[tuple[int, Later, Sequence[str]]] = []

    def watch(self, update: int, norm: Tensor, ids: Sequence[str]) -> None:
        """Record the gradient norm of an update and the utterances of its batch."""
        self.waiting.append((update, Later(norm.detach()), ids))
        self._look(1 if norm.is_cuda else 0)

    def settle(self) -> dict[str, Any]:
        """Check all pending norms; return the state for a checkpoint: updates skipped in a row and recently."""
        self._look(0)
        return {"bad": self.bad, "skipped": self.skipped}

    def finish(self, updates: int) -> None:
        """Raise an error if most updates were skipped; this catches training too short for the other limits."""
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
            everyone = [name for each in from_all(list(ids)) for name in each]
            whose = f" (utterances {names(everyone)})" if everyone else ""
            say(f"{self.stage}: update {update} skipped: its gradient is not finite{whose}")
            recent = min(update + 1, WINDOW)
            if self.bad >= MOST_BAD_UPDATES:
                self._give_up(f"{self.bad} updates in a row", whose)
            if len(self.skipped) >= MOST_BAD_UPDATES and len(self.skipped) > MOST_BAD_SHARE * recent:
                self._give_up(f"{len(self.skipped)} of the last {recent} updates", whose)

    def _give_up(self, how_many: str, whose: str) -> NoReturn:
        look = (
            f", or check the audio and transcripts of the last update{whose} and of those reported above"
            if whose
            else ""
        )
        raise UserError(
            f"{self.stage}: {how_many} had a gradient that is not finite: lower the learning rate{look}"
        )


def names(ids: Sequence[str]) -> str:
    """List the first few utterances of a batch and the number of others."""
    more = len(ids) - MOST_NAMES
    return ", ".join(ids[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
