"""The proposal model r: by default a frozen copy of the best online model so far."""

import copy
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from priormatch.errors import UserError
from priormatch.models.recognizer import Recognizer

Policy = Literal["better", "always", "never", "on_policy", "average"]


@dataclass(frozen=True)
class Refresh:
    """One decision of whether the online model takes the proposal's place."""

    update: int
    online_cer: float
    proposal_cer: float
    taken: bool


class Proposal:
    """Lists hypotheses, without dropout and without gradients, and is updated from the online model by a policy.

    better: replaced at a validation where the online model's mean CER is strictly lower than the proposal's was when
    it was taken; always: replaced at every validation; never: stays as it is; on_policy: is the online model, at every
    update; average: moves towards the online model at every update, r <- d·r + (1 - d)·q.
    """

    def __init__(
        self, model: Recognizer, cer: float, policy: Policy = "better", decay: float = 0.999
    ) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.cer, self.policy, self.decay = cer, policy, decay
        self.history: list[Refresh] = []

    @torch.no_grad()
    def follow(self, online: Recognizer) -> None:
        """What the policy wants at every update, before hypotheses are listed."""
        share = {"on_policy": 1.0, "average": 1 - self.decay}.get(self.policy, 0.0)
        if share > 0:
            own: list[Tensor] = list(self.model.parameters())
            torch._foreach_lerp_(own, list[Tensor](online.parameters()), share)

    def refresh(self, online: Recognizer, online_cer: float, update: int) -> bool:
        """What the policy wants at a validation; tells whether the online model took the proposal's place."""
        taken = self.policy in ("always", "on_policy") or (self.policy == "better" and online_cer < self.cer)
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
