"""The proposal model r: a frozen copy of the best online model so far."""

import copy
from dataclasses import asdict, dataclass
from typing import Any

from priormatch.errors import UserError
from priormatch.models.recognizer import Recognizer


@dataclass(frozen=True)
class Refresh:
    """One decision of whether the online model takes the proposal's place."""

    update: int
    online_cer: float
    proposal_cer: float
    taken: bool


class Proposal:
    """Lists hypotheses, without dropout and without gradients, until the online model is better.

    "Better" means a strictly lower mean validation CER than the proposal had when it was taken.
    """

    def __init__(self, online: Recognizer, cer: float) -> None:
        self.model = copy.deepcopy(online).eval().requires_grad_(False)
        self.cer = cer
        self.history: list[Refresh] = []

    def refresh(self, online: Recognizer, online_cer: float, update: int) -> bool:
        """r <- q if q is better; tells whether it was."""
        taken = online_cer < self.cer
        self.history.append(Refresh(update, online_cer, self.cer, taken))
        if taken:
            self.model.load_state_dict(online.state_dict())
            self.cer = online_cer
        return taken

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps beside the weights."""
        return {"cer": self.cer, "history": [asdict(each) for each in self.history]}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        self.cer = state["cer"]
        self.history = [Refresh(**each) for each in state["history"]]


def require_fit(cer: float, most: float) -> None:
    """Refuse a proposal so bad that matching would teach nonsense."""
    if not cer <= most:  # a CER that is no number is refused too
        raise UserError(
            f"the proposal model's validation CER is {cer:.1f} %, above matching.max_proposal_cer={most:g}: its"
            " hypotheses would teach nonsense; train it for longer or on more speech, or raise the setting"
        )
