"""The proposal gives way to a strictly better online model, and to nothing else."""

import json

import pytest
import torch
from narrowing import of_type

from priormatch.errors import UserError
from priormatch.matching.lpm import Policy, Proposal, require_fit
from priormatch.recognizers.protocols import Recognizer
from priormatch.recognizers.recognizer import SpeechRecognizer


def same_weights(one: Recognizer, other: Recognizer) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def train(model: SpeechRecognizer) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)


def test_it_is_a_frozen_copy_that_does_not_follow_the_online_model(tiny_recognizer: SpeechRecognizer) -> None:
    online = tiny_recognizer.train()
    proposal = Proposal(online, cer=20.0)
    assert same_weights(proposal.model, online)
    train(online)
    assert not same_weights(proposal.model, online)
    assert not any(module.training for module in of_type(SpeechRecognizer, proposal.model).modules())
    assert not any(each.requires_grad for each in proposal.model.parameters())
    assert online.training
    assert all(each.requires_grad for each in online.parameters())


@pytest.mark.parametrize(
    ("cer", "taken"), [(19.99, True), (20.0, False), (20.01, False), (float("nan"), False)]
)
def test_only_a_strictly_lower_error_is_better(
    tiny_recognizer: SpeechRecognizer, cer: float, taken: bool
) -> None:
    proposal = Proposal(tiny_recognizer, cer=20.0)
    train(tiny_recognizer)
    assert proposal.refresh(tiny_recognizer, cer, update=7) is taken
    assert same_weights(proposal.model, tiny_recognizer) is taken
    assert proposal.cer == (cer if taken else 20.0)
    assert not proposal.model.training


def test_the_bar_only_falls(tiny_recognizer: SpeechRecognizer) -> None:
    proposal = Proposal(tiny_recognizer, cer=20.0)
    taken = [
        proposal.refresh(tiny_recognizer, cer, update)
        for update, cer in enumerate([18, 19, 18, 17, 25, 16.5])
    ]
    assert taken == [True, False, False, True, False, True]
    assert [each.proposal_cer for each in proposal.history] == [20.0, 18, 18, 18, 17, 17]
    assert [each.update for each in proposal.history] == list(range(6))


@pytest.mark.parametrize(
    ("policy", "cers", "taken"),
    [("always", [30.0, 10.0], [True, True]), ("never", [30.0, 10.0], [False, False])],
)
def test_policies_that_do_not_look_at_the_error(
    tiny_recognizer: SpeechRecognizer, policy: Policy, cers: list[float], taken: list[bool]
) -> None:
    proposal = Proposal(tiny_recognizer, 20.0, policy)
    for cer, expected in zip(cers, taken, strict=True):
        train(tiny_recognizer)
        proposal.follow(tiny_recognizer)
        assert not same_weights(proposal.model, tiny_recognizer), "not before a validation"
        assert proposal.refresh(tiny_recognizer, cer, 1) is expected
        assert same_weights(proposal.model, tiny_recognizer) is expected


def test_on_policy_the_proposal_is_the_online_model_without_dropout(
    tiny_recognizer: SpeechRecognizer,
) -> None:
    proposal = Proposal(tiny_recognizer.train(), 20.0, "on_policy")
    train(tiny_recognizer)
    proposal.follow(tiny_recognizer)
    assert same_weights(proposal.model, tiny_recognizer)
    assert not proposal.model.training
    assert not any(each.requires_grad for each in proposal.model.parameters())


def test_its_state_survives_json(tiny_recognizer: SpeechRecognizer) -> None:
    proposal = Proposal(tiny_recognizer, cer=20.0)
    proposal.refresh(tiny_recognizer, 18.5, 10)
    proposal.refresh(tiny_recognizer, 19.0, 20)
    again = Proposal(tiny_recognizer, cer=99.0)
    again.restore(json.loads(json.dumps(proposal.state())))
    assert (again.cer, again.history) == (18.5, proposal.history)


def test_a_hopeless_proposal_is_refused() -> None:
    require_fit(60.0, 60.0)
    with pytest.raises(UserError, match=r"CER is 89\.8 %, above matching\.max_proposal_cer=60"):
        require_fit(89.8, 60.0)


def test_a_proposal_whose_error_is_unknown_is_refused() -> None:
    with pytest.raises(UserError, match="max_proposal_cer"):
        require_fit(float("nan"), 60.0)
