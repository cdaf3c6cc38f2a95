"""Confidence intervals of error rates and their differences: bootstrap over utterances (Bisani and Ney, 2004).

Utterances are resampled with replacement. Several runs of a system (seeds) count as one: errors and lengths are
summed over the runs for each utterance, which stays the unit of resampling. If utterances of a speaker or of a
recording are correlated, resample those instead (Liu and Peng, 2020): `error_rates.grouped` makes them the unit.
Perplexities are resampled in the same way.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from priormatch.scoring.error_rates import ErrorCounts, summed

SAMPLES = 10_000
LEVEL = 0.95
DRAWS_AT_ONCE = 1 << 20

Runs = ErrorCounts | Sequence[ErrorCounts]
"""One run of a system, or several that count as one."""


@dataclass(frozen=True, eq=False)
class ScoredTexts:
    """log p_y and the number of pieces or words of each text, (texts,), both including the end of sentence."""

    log_p: np.ndarray
    pieces: np.ndarray

    @property
    def perplexity(self) -> float:
        """exp(-sum log p_y / sum (pieces + 1)); nan if there is no text."""
        pieces = int(self.pieces.sum())
        return math.exp(-float(self.log_p.sum()) / pieces) if pieces else math.nan


@dataclass(frozen=True)
class PairedTest:
    """System b compared with system a on the same utterances; all values but the p-value are in percent.

    difference = rate(a) - rate(b), so positive if b is better; relative_gain = 100 * difference / rate(a).
    """

    difference: float
    interval: tuple[float, float]
    p_value: float
    relative_gain: float
    relative_interval: tuple[float, float]


def p_in_words(p_value: float) -> str:
    """Format a p-value; one at the floor of the bootstrap, which no sample reached, as below 0.0001."""
    return "p < 0.0001" if p_value < 0.0001 else f"p = {p_value:.4f}"


def bootstrap_interval(
    counts: Runs, samples: int = SAMPLES, level: float = LEVEL, seed: int = 0
) -> tuple[float, float]:
    """Percentile interval of the error rate, in percent; nan if there is no reference."""
    return _interval(_resampled_rates(_one(counts), samples, seed), level)


def paired_bootstrap(a: Runs, b: Runs, samples: int = SAMPLES, seed: int = 0) -> PairedTest:
    """Compare two systems by resampling the same utterances for both.

    The two-sided p-value is (1 + #{|d* - d| >= |d|}) / (1 + samples), with d the difference and d* that of a
    sample: how often samples centered on no difference are at least as far from it as d. It is never 0.
    """
    a, b = _one(a), _one(b)
    _require_same_references(a, b)
    rates = _resampled_rates(a, samples, seed)
    differences = rates - _resampled_rates(b, samples, seed)
    difference = a.rate - b.rate
    nearer = np.abs(differences - difference) < abs(difference)  # false if undefined, which is conservative
    return PairedTest(
        difference=difference,
        interval=_interval(differences),
        p_value=(1 + samples - int(nearer.sum())) / (1 + samples),
        relative_gain=float(_percent(np.array(difference), np.array(a.rate))),
        relative_interval=_interval(_percent(differences, rates)),
    )


def recovered_interval(base: Runs, x: Runs, top: Runs) -> tuple[float, float]:
    """Percentile interval of the recovered word error rate, resampling the same utterances for all three systems."""
    base, x, top = _one(base), _one(x), _one(top)
    _require_same_references(base, x)
    _require_same_references(base, top)
    low, mid, high = (_resampled_rates(each, SAMPLES, 0) for each in (base, x, top))
    return _interval(_percent(low - mid, low - high))


def perplexity_interval(pairs: Sequence[tuple[ScoredTexts, ScoredTexts]]) -> tuple[float, float]:
    """Percentile interval of the perplexity of a minus that of b, averaged over pairs (a, b) of runs, such as seeds.

    The same utterances are resampled for all. Runs are averaged because each may have its own prior.
    """
    if len({len(each.pieces) for pair in pairs for each in pair}) > 1:
        raise ValueError("the systems were not scored on the same utterances")
    apart = [_resampled_perplexities(a) - _resampled_perplexities(b) for a, b in pairs]
    return _interval(np.mean(apart, axis=0))


def _one(counts: Runs) -> ErrorCounts:
    return counts if isinstance(counts, ErrorCounts) else summed(counts)


def _require_same_references(a: ErrorCounts, b: ErrorCounts) -> None:
    if len(a) != len(b) or not np.array_equal(a.lengths * b.lengths.sum(), b.lengths * a.lengths.sum()):
        raise ValueError("the systems were not scored on the same references in the same order")


def _resampled_rates(counts: ErrorCounts, samples: int, seed: int) -> np.ndarray:
    """The error rate of each sample of utterances, (samples,); with the same seed, all systems get the same samples."""
    both = counts.errors.astype(np.int64) << 32 | counts.lengths  # one lookup per draw instead of two
    sums = _resampled_sums(both.tobytes(), np.int64, samples, seed)
    return _percent(sums >> 32, sums & 0xFFFF_FFFF)


def _resampled_perplexities(texts: ScoredTexts) -> np.ndarray:
    """The perplexity of each sample of utterances, (samples,); the samples are those of the error rates."""
    columns = (texts.log_p.astype(np.float64), texts.pieces.astype(np.float64))
    log_p, pieces = (_resampled_sums(each.tobytes(), np.float64, SAMPLES, 0) for each in columns)
    return np.exp(-log_p / np.where(pieces == 0, np.nan, pieces))


@lru_cache(maxsize=64)
def _resampled_sums(column: bytes, dtype: type[np.generic], samples: int, seed: int) -> np.ndarray:
    """Sum a column over samples of utterances, (samples,); cached, because a system is often compared with several."""
    values = np.frombuffer(column, dtype)
    blocks = _draws(len(values), samples, seed)
    return np.concatenate([values.take(draws).sum(axis=1) for draws in blocks])


def _draws(utterances: int, samples: int, seed: int) -> Iterator[np.ndarray]:
    """Yield blocks of utterance numbers, (samples of the block, utterances), so that memory stays bounded."""
    generator = np.random.default_rng(seed)
    at_once = max(1, DRAWS_AT_ONCE // max(1, utterances))
    for start in range(0, samples, at_once):
        shape = (min(at_once, samples - start), utterances)
        yield generator.integers(utterances, size=shape) if utterances else np.zeros(shape, np.int64)


def _percent(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """100 * part / whole; nan where whole is 0."""
    return 100 * part / np.where(whole == 0, np.nan, whole)


def _interval(values: np.ndarray, level: float = LEVEL) -> tuple[float, float]:
    """Percentile interval over the samples for which the value is defined."""
    values = values[~np.isnan(values)]
    if not len(values):
        return float("nan"), float("nan")
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
