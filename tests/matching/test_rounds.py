"""Two rounds of matching: what each has of the settings."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from priormatch.config import Settings, load_settings
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


@given(st.integers(2, 10**7), st.floats(0.001, 0.999))
def test_both_together_have_the_updates_of_one(updates: int, share: float) -> None:
    found = [each.matching.updates for each in rounds_of(with_second(share, f"matching.updates={updates}"))]
    assert min(found) >= 1
    assert sum(found) == updates
