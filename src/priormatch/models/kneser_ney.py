"""Modified Kneser-Ney smoothing (Chen and Goodman, 1998): an interpolated n-gram model of a text, as KenLM makes it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import count, islice
from typing import NamedTuple

import numpy as np

from priormatch.errors import UserError
from priormatch.models.ngram import BEGIN, END, NEVER, SPECIAL, UNKNOWN, NgramModel

SENTENCES_AT_ONCE = 50_000
BEFORE, AFTER = " ", ""  # stand for the marks of a sentence, as no word is one of these
FALLBACK = (0.5, 1.0, 1.5)
"""Discounts of counts 1, 2 and more where a text is too small or too regular to estimate them; as in KenLM."""
MOST_KEYS = np.iinfo(np.int64).max


class Counted(NamedTuple):
    """The n-grams of one order in a text.

    keys (U,) as in `NgramModel`; counts (U,) in the text; suffixes (U,), the index of the last n - 1 words of each
    among the n-grams of order n - 1; places (T,), the index of the n-gram that ends at each token, -1 for none.
    """

    keys: np.ndarray
    counts: np.ndarray
    suffixes: np.ndarray
    places: np.ndarray


def estimate(sentences: Iterable[str], order: int) -> tuple[NgramModel, list[int]]:
    """An n-gram model of sentences, and the orders whose discounts could not be estimated and are `FALLBACK`.

    For a context h with counts a(hw), the discount D of a count, and h' = h without its first word:

        p(w | h) = (a(hw) - D(a(hw))) / Σ_v a(hv) + backoff(h) · p(w | h'),  backoff(h) = Σ_v D(a(hv)) / Σ_v a(hv)

    a is the count in the text for the highest order and for n-grams that begin a sentence, otherwise the number of
    different words before the n-gram. Probabilities of single words are interpolated with a uniform one over all words
    and `<unk>`. The order is lower if no sentence is that long.
    """
    words, tokens = numbered(sentences)
    levels = counted(tokens, len(words), order)
    p: list[np.ndarray] = []
    backoff: list[np.ndarray] = []
    fallen_back = []
    for place, level in enumerate(levels):
        longer = levels[place + 1].suffixes if place + 1 < len(levels) else None
        adjusted = adjusted_counts(level, longer)
        if not place:
            adjusted[BEGIN] = 0
        discounts = discounts_of(adjusted)
        if discounts is None:
            fallen_back.append(place + 1)
        parents = level.keys // len(words)
        contexts = len(levels[place - 1].keys) if place else 1
        own, rest = discounted(adjusted, parents, contexts, discounts or FALLBACK)
        shorter = p[-1][level.suffixes] if place else np.full(len(words), 1 / (len(words) - 1))
        p.append(own + rest[parents] * shorter)
        backoff.append(rest)
    log_p = [np.log10(each).astype(np.float32) for each in p]
    log_p[0][BEGIN] = NEVER
    log_backoff = [np.log10(each).astype(np.float32) for each in backoff[1:]]
    return NgramModel(words, [each.keys for each in levels], log_p, log_backoff), fallen_back


def numbered(sentences: Iterable[str]) -> tuple[list[str], np.ndarray]:
    """The vocabulary, and the numbers of all words with the marks of each sentence: -> (T,)."""
    numbers: defaultdict[str, int] = defaultdict(count(len(SPECIAL)).__next__)
    numbers |= dict.fromkeys(SPECIAL, UNKNOWN) | {BEFORE: BEGIN, AFTER: END}
    tokens = np.concatenate([np.zeros(0, np.int32), *_tokens(sentences, numbers)])
    words = [*SPECIAL, *islice(numbers, len(SPECIAL) + 2, None)]
    if len(words) == len(SPECIAL):
        raise UserError("the text for the n-gram prior contains no words: provide a text file with sentences")
    return words, tokens


def _tokens(sentences: Iterable[str], numbers: dict[str, int]) -> Iterator[np.ndarray]:
    given = iter(sentences)
    while some := [*islice(given, SENTENCES_AT_ONCE)]:
        words = (numbers[word] for text in some for word in (BEFORE, *text.split(), AFTER))
        yield np.fromiter(words, np.int32)


def counted(tokens: np.ndarray, size: int, order: int) -> list[Counted]:
    """Count the n-grams of orders 1 to `order`, of which none reaches over the beginning of a sentence.

    Only the places of the highest order are kept.
    """
    counts = np.bincount(tokens, minlength=size)
    levels = [Counted(np.arange(size), counts, np.zeros(size, np.int64), tokens)]
    for _ in range(1, order):
        longer = _one_longer(levels[-1], tokens, size)
        levels[-1] = levels[-1]._replace(places=tokens[:0])
        if not len(longer.keys):
            break
        levels.append(longer)
    return levels


def _one_longer(level: Counted, tokens: np.ndarray, size: int) -> Counted:
    """The n-grams that are one word longer."""
    if len(level.keys) > MOST_KEYS // size:
        raise UserError(
            f"{len(level.keys):,} n-grams of {size:,} words are too many: provide less text, or lower prior.order"
        )
    ends = 1 + np.flatnonzero((level.places[:-1] >= 0) & (tokens[1:] != BEGIN))
    wanted = level.places[ends - 1].astype(np.int64) * size + tokens[ends]
    keys, which, counts = np.unique(wanted, return_inverse=True, return_counts=True)
    del wanted
    places = np.full(len(tokens), -1, np.int32 if len(keys) < 1 << 31 else np.int64)
    places[ends] = which
    suffixes = np.zeros(len(keys), level.places.dtype)
    suffixes[which] = level.places[ends]
    return Counted(keys, counts, suffixes, places)


def adjusted_counts(level: Counted, longer: np.ndarray | None) -> np.ndarray:
    """The counts a of n-grams: (U,); `longer` are the suffixes of the n-grams that are one word longer, if any.

    Only n-grams that begin a sentence have no word before them.
    """
    if longer is None:
        return level.counts
    different = np.bincount(longer, minlength=len(level.counts))
    return np.where(different > 0, different, level.counts)


def discounts_of(counts: np.ndarray) -> tuple[float, float, float] | None:
    """D(1), D(2) and D(3) of 3 and more, from how many n-grams have counts of 1 to 4; None if they have none.

    D(k) = k - (k + 1) Y t_{k+1} / t_k with Y = t_1 / (t_1 + 2 t_2).
    """
    _, *times = np.bincount(np.minimum(counts, 5), minlength=6)[:5].tolist()
    if 0 in times[:3]:
        return None
    share = times[0] / (times[0] + 2 * times[1])
    one, two, three = (k - (k + 1) * share * times[k] / times[k - 1] for k in (1, 2, 3))
    sound = (
        0 < one <= 1 and 0 < two <= 2 and 0 < three <= 3
    )  # with 0, no probability would be left to back off
    return (one, two, three) if sound else None


def discounted(
    counts: np.ndarray, parents: np.ndarray, contexts: int, discounts: tuple[float, float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Discounted relative counts of n-grams after their contexts, and what is left for shorter contexts.

    counts (U,) and the contexts (U,) they follow -> (U,), (contexts,); all is left where nothing follows.
    """
    taken = np.array([0.0, *discounts])[np.minimum(counts, 3)]
    totals = np.bincount(parents, counts, contexts)
    totals[totals == 0] = np.nan
    rest = np.bincount(parents, taken, contexts) / totals
    return (counts - taken) / totals[parents], np.where(np.isnan(totals), 1.0, rest)
