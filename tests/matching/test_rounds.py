"""Two rounds of matching: what each has of the settings."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from priormatch.config import Settings, load_settings
from priormatch.errors import UserError
from priormatch.matching.rounds import rounds_of


def with_second(share: float, *more: str) -> Settings:
    return load_settings(None, [f"matching.second_round={share}", *more])


def test_one_round_is_as_it_was() -> None:
    settings = load_settings(None, ["matching.hypotheses=asr_lm"])
    assert rounds_of(settings) == [settings]


def test_the_second_proposes_with_the_prior_and_stays() -> None:
    settings = with_second(0.4, "matching.start=A", "matching.beam_size=6", "training.keep.A.update=1")
    first, second = (each.matching for each in rounds_of(settings))
    assert first == replace(settings.matching, second_round=0, updates=960_000, optimizer=first.optimizer)
    assert (second.hypotheses, second.refresh, second.beam_size) == ("asr_lm", "never", 6)
    assert (second.prior_exponent, second.proposal_exponent) == (0, 1)
    assert (second.start, second.updates, second.second_round) == ("", 640_000, 0)
    assert [each.optimizer.decay_every for each in (first, second)] == [384_000, 256_000]


def test_the_second_does_not_ask_what_was_said_before() -> None:
    asked = ("matching.context=true", "prior.model.context=true")
    first, second = (each.matching for each in rounds_of(with_second(0.3, *asked)))
    assert (first.context, second.context) == (True, False)


@pytest.mark.parametrize(("count", "shares"), [(0, [0, 0]), (2, [2, 1]), (200, [180, 20])])
def test_each_rises_and_decays_over_its_own_updates(count: int, shares: list[int]) -> None:
    schedule = (f"matching.optimizer.{name}={count}" for name in ("decay_every", "warm_up"))
    rounds = rounds_of(with_second(0.1, "matching.updates=1000", *schedule))
    assert [each.matching.optimizer.decay_every for each in rounds] == shares
    assert [each.matching.optimizer.warm_up for each in rounds] == shares


def test_two_rounds_need_two_updates() -> None:
    with pytest.raises(UserError, match="a second round needs an update of its own"):
        with_second(0.4, "matching.updates=1")


@given(st.integers(2, 10**7), st.floats(0.001, 0.999))
def test_both_together_have_the_updates_of_one(updates: int, share: float) -> None:
    found = [each.matching.updates for each in rounds_of(with_second(share, f"matching.updates={updates}"))]
    assert min(found) >= 1
    assert sum(found) == updates
