import math
from collections.abc import Iterator

import numpy as np
import pytest

from priormatch.scoring import bootstrap
from priormatch.scoring.bootstrap import (
    SAMPLES,
    ScoredTexts,
    bootstrap_interval,
    p_in_words,
    paired_bootstrap,
    perplexity_interval,
    recovered_interval,
)
from priormatch.scoring.error_rates import ErrorCounts, grouped, summed


def simulated(generator: np.random.Generator, rate: float, utterances: int = 150) -> ErrorCounts:
    lengths = np.full(utterances, 10)
    return ErrorCounts(generator.binomial(lengths, rate), lengths)


def test_interval_by_hand() -> None:
    assert bootstrap_interval(ErrorCounts(np.array([1, 1, 1]), np.array([4, 4, 4]))) == (25.0, 25.0)
    # Of two utterances, one all wrong: the draws give 0, 50 and 100 % with probabilities 1/4, 1/2 and 1/4.
    counts = ErrorCounts(np.array([0, 8]), np.array([8, 8]))
    assert bootstrap_interval(counts) == (0.0, 100.0)
    assert bootstrap_interval(counts, level=0.4) == (50.0, 50.0)


def test_rates_of_draws_weigh_utterances_by_length() -> None:
    # Draws give 1/1, 1/10 or 0/9 as 100, 10 and 0 %; the outer two fall outside a 40 % interval.
    counts = ErrorCounts(np.array([1, 0]), np.array([1, 9]))
    assert bootstrap_interval(counts, level=0.4) == (10.0, 10.0)


@pytest.mark.parametrize("at_once", [1, 100, 1 << 20])
def test_same_as_a_slow_loop_whatever_the_block(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(bootstrap, "DRAWS_AT_ONCE", at_once)
    bootstrap._resampled_sums.cache_clear()
    a = ErrorCounts(np.array([3, 0, 2, 1, 5]), np.array([9, 4, 7, 3, 8]))
    b = ErrorCounts(np.array([2, 1, 1, 1, 2]), a.lengths)
    generator = np.random.default_rng(7)
    rates, differences, gains = [], [], []
    for _ in range(500):
        drawn = [int(generator.integers(5)) for _ in range(5)]
        length = sum(int(a.lengths[i]) for i in drawn)
        rate_a = 100 * sum(int(a.errors[i]) for i in drawn) / length
        rate_b = 100 * sum(int(b.errors[i]) for i in drawn) / length
        rates.append(rate_a)
        differences.append(rate_a - rate_b)
        if rate_a:
            gains.append(100 * (rate_a - rate_b) / rate_a)
    difference = 100 * 11 / 31 - 100 * 7 / 31
    further = sum(abs(drawn - difference) >= difference for drawn in differences)
    test = paired_bootstrap(a, b, samples=500, seed=7)
    assert test.difference == pytest.approx(difference)
    assert test.interval == pytest.approx(tuple(np.quantile(differences, [0.025, 0.975])))
    assert test.p_value == pytest.approx((1 + further) / 501)
    assert test.relative_gain == pytest.approx(100 * 4 / 11)
    assert test.relative_interval == pytest.approx(tuple(np.quantile(gains, [0.025, 0.975])))
    assert bootstrap_interval(a, 500, seed=7) == pytest.approx(tuple(np.quantile(rates, [0.025, 0.975])))


def test_a_system_is_drawn_once_however_often_it_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[tuple[int, ...]] = []
    draws = bootstrap._draws

    def noted(*shape: int) -> Iterator[np.ndarray]:
        passes.append(shape)
        return draws(*shape)

    monkeypatch.setattr(bootstrap, "_draws", noted)
    generator = np.random.default_rng(3)
    a, b, top = (simulated(generator, rate) for rate in (0.2, 0.1, 0.05))
    bootstrap_interval(a)
    paired_bootstrap(a, b)
    recovered_interval(a, b, ErrorCounts(top.errors, top.lengths))
    bootstrap_interval(ErrorCounts(top.errors.copy(), top.lengths.copy()))
    assert len(passes) == 3
    bootstrap_interval(a, seed=1)
    bootstrap_interval(ErrorCounts(a.errors, a.lengths + 1))
    assert len(passes) == 5, "other draws, or other figures"


def test_interval_covers_the_truth_as_often_as_it_says() -> None:
    generator = np.random.default_rng(1)
    covered = 0
    for trial in range(300):
        low, high = bootstrap_interval(simulated(generator, 0.2), samples=500, seed=trial)
        covered += low <= 20.0 <= high
    assert 0.91 <= covered / 300 <= 0.98


def test_where_speakers_differ_only_draws_of_speakers_cover_the_truth() -> None:
    """Thirty speakers of twenty utterances, each with an error rate of their own around 20 %."""
    generator = np.random.default_rng(8)
    speakers, lengths = np.arange(30).repeat(20).astype(str).tolist(), np.full(600, 10)
    by_utterance = by_speaker = 0
    for trial in range(200):
        counts = ErrorCounts(generator.binomial(lengths, generator.beta(2, 8, 30).repeat(20)), lengths)
        low, high = bootstrap_interval(counts, samples=300, seed=trial)
        by_utterance += low <= 20.0 <= high
        low, high = bootstrap_interval(grouped(counts, speakers), samples=300, seed=trial)
        by_speaker += low <= 20.0 <= high
    assert by_speaker / 200 > 0.88
    assert by_utterance / 200 < 0.6


def test_p_values_are_small_by_chance_only_as_often_as_they_say() -> None:
    generator = np.random.default_rng(2)
    p_values = [
        paired_bootstrap(simulated(generator, 0.2), simulated(generator, 0.2), 500, seed=trial).p_value
        for trial in range(300)
    ]
    assert 0.02 <= np.mean(np.array(p_values) < 0.05) <= 0.09
    assert 0.4 <= np.mean(p_values) <= 0.6


def test_a_clear_gain_is_seen_and_the_roles_are_symmetric() -> None:
    generator = np.random.default_rng(3)
    a, b = simulated(generator, 0.3), simulated(generator, 0.2)
    forth, back = paired_bootstrap(a, b, 2000), paired_bootstrap(b, a, 2000)
    assert forth.p_value == back.p_value == 1 / 2001
    assert 0 < forth.interval[0] < forth.difference < forth.interval[1]
    assert back.interval == pytest.approx((-forth.interval[1], -forth.interval[0]))
    assert forth.relative_interval[0] < forth.relative_gain < forth.relative_interval[1]


def test_pairing_removes_what_the_utterances_have_in_common() -> None:
    generator = np.random.default_rng(4)
    lengths = np.full(200, 20)
    hard = generator.integers(0, 15, 200)
    a, b = ErrorCounts(hard + generator.integers(0, 3, 200), lengths), ErrorCounts(hard, lengths)
    low, high = paired_bootstrap(a, b, 1000).interval
    wide_low, wide_high = bootstrap_interval(a, 1000)
    assert high - low < 0.5 * (wide_high - wide_low)


def test_a_system_against_itself_is_no_different() -> None:
    counts = simulated(np.random.default_rng(5), 0.1)
    test = paired_bootstrap(counts, counts, 200)
    assert (test.difference, test.interval, test.p_value) == (0.0, (0.0, 0.0), 1.0)


def test_seeds_are_summed_for_each_utterance() -> None:
    generator = np.random.default_rng(6)
    a, b = [simulated(generator, 0.3) for _ in range(3)], [simulated(generator, 0.27) for _ in range(2)]
    assert paired_bootstrap(a, b, 300) == paired_bootstrap(summed(a), summed(b), 300)
    assert bootstrap_interval(a, 300) == bootstrap_interval(summed(a), 300)
    assert paired_bootstrap(a, b, 300).difference == pytest.approx(summed(a).rate - summed(b).rate)


def test_different_references_are_refused() -> None:
    a = ErrorCounts(np.array([1, 2]), np.array([4, 6]))
    for other in (
        ErrorCounts(np.array([1, 2]), np.array([6, 4])),
        ErrorCounts(np.array([1]), np.array([10])),
    ):
        with pytest.raises(ValueError, match="same references"):
            paired_bootstrap(a, other)
        with pytest.raises(ValueError, match="same references"):
            recovered_interval(a, a, other)


def test_empty_references() -> None:
    none = ErrorCounts(np.zeros(0, int), np.zeros(0, int))
    assert all(map(math.isnan, bootstrap_interval(none)))
    assert paired_bootstrap(none, none).p_value == 1.0
    # Draws of the first utterance alone have no reference and are left out.
    assert bootstrap_interval(ErrorCounts(np.array([0, 1]), np.array([0, 4]))) == (25.0, 25.0)
    perfect = ErrorCounts(np.array([0, 0]), np.array([3, 4]))
    assert math.isnan(paired_bootstrap(perfect, perfect).relative_gain)


def test_what_is_recovered_by_hand() -> None:
    lengths = np.full(2, 10)
    base, top = ErrorCounts(np.array([4, 4]), lengths), ErrorCounts(np.array([0, 0]), lengths)
    # Of two utterances one recovers all and one nothing: draws give 0, 50 and 100 % of the gap.
    assert recovered_interval(base, ErrorCounts(np.array([0, 4]), lengths), top) == (0.0, 100.0)
    assert recovered_interval(base, ErrorCounts(np.array([1, 1]), lengths), top) == (75.0, 75.0)
    assert recovered_interval([base, base], [base, top], [top, top]) == (50.0, 50.0), "seeds count as one"
    assert all(map(math.isnan, recovered_interval(base, top, base))), "no gap"


def test_the_share_recovered_is_surer_than_its_parts_are_apart() -> None:
    """Utterances that are hard for all systems alike do not widen the interval."""
    generator = np.random.default_rng(7)
    lengths, hard = np.full(400, 20), generator.integers(4, 16, 400)
    base, x, top = (ErrorCounts(hard - less, lengths) for less in (0, 3, 4))
    assert recovered_interval(base, x, top) == pytest.approx((75.0, 75.0))


def scored(perplexities: list[float], pieces: list[int]) -> ScoredTexts:
    """Texts of so many pieces, each of them of that perplexity."""
    counts = np.array(pieces)
    return ScoredTexts(-counts * np.log(perplexities), counts)


def test_a_difference_of_perplexities_by_hand() -> None:
    # Of two utterances one is at 2 and one at 8, of as many pieces: draws give 2, 4 and 8; the other row is 3 always.
    a, b = scored([2, 8], [5, 5]), scored([3, 3], [4, 6])
    assert perplexity_interval([(a, b)]) == pytest.approx((-1, 5))
    assert perplexity_interval([(b, a)]) == pytest.approx((-5, 1))
    # Drawn alike in both, what is hard is hard for both: 4 - 2, or 16 - 8.
    assert perplexity_interval([(scored([4, 16], [5, 5]), a)]) == pytest.approx((2, 8))
    assert perplexity_interval([(a, b), (scored([4, 4], [2, 2]), b)]) == pytest.approx((0, 3)), (
        "the mean of seeds"
    )


def test_perplexities_of_draws_weigh_utterances_by_their_pieces() -> None:
    a, b = scored([2, 3, 5], [9, 2, 4]), scored([2, 2, 7], [3, 8, 1])
    generator, differences = np.random.default_rng(0), []
    for _ in range(bootstrap.SAMPLES):
        drawn = generator.integers(3, size=3)
        rates = [math.exp(-each.log_p[drawn].sum() / each.pieces[drawn].sum()) for each in (a, b)]
        differences.append(rates[0] - rates[1])
    assert perplexity_interval([(a, b)]) == pytest.approx(tuple(np.quantile(differences, [0.025, 0.975])))


def test_perplexities_of_other_utterances_are_refused() -> None:
    with pytest.raises(ValueError, match="same utterances"):
        perplexity_interval([(scored([2, 2], [3, 3]), scored([2], [3]))])


def test_a_p_value_at_the_floor_of_the_bootstrap_is_below_it() -> None:
    assert p_in_words(1 / (1 + SAMPLES)) == "p < 0.0001"
    assert p_in_words(2 / (1 + SAMPLES)) == "p = 0.0002"
    assert p_in_words(1.0) == "p = 1.0000"
