"""Word n-gram models with backoff as sorted arrays, scored at all positions of many texts at once."""

from collections.abc import Sequence
from itertools import chain

import numpy as np

UNKNOWN, BEGIN, END = 0, 1, 2
SPECIAL = ("<unk>", "<s>", "</s>")
"""The first words of every vocabulary: any unknown word, and the beginning and the end of a sentence."""
MOST_ORDER = 10
MOST_LOG, MOST_BACKOFF = 1e6, 10.0  # bounds of log10 p, downward, and of log10 backoff
NEVER = -99.0  # log10 p of the beginning of a sentence, which is never predicted
LN_10 = float(np.log(10))


def find(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The index of each wanted key among sorted keys: (T,) -> (T,), -1 for those that are missing or negative."""
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, places, -1)


class NgramModel:
    """p(w | h) from n-grams of orders 1 to N over V words.

    p(w | h) is that of the n-gram hw if there is one, else backoff(h) · p(w | h without its first word), where
    backoff(h) is 1 if there is no n-gram h.

    keys     N arrays (of int64): the index of an n-gram's first n - 1 words among those of order n - 1, times V, plus
             the number of its last word; strictly increasing. Those of order 1 are 0 to V - 1.
    log_p    N arrays (of float32): log10 p of the last word given the others.
    backoff  N - 1 arrays (of float32): log10 backoff of each n-gram as a context.
    """

    def __init__(
        self,
        words: Sequence[str],
        keys: Sequence[np.ndarray],
        log_p: Sequence[np.ndarray],
        backoff: Sequence[np.ndarray],
    ) -> None:
        self.words, self.keys, self.log_p, self.backoff = words, keys, log_p, backoff
        self.numbers = {word: number for number, word in enumerate(words)}
        self.numbers |= dict.fromkeys(SPECIAL, UNKNOWN)  # a text cannot spell the marks
        self.expected = [np.full(len(each), np.nan) for each in backoff]  # of log10 p, filled when needed

    @property
    def order(self) -> int:
        """N, the number of words of the longest n-grams."""
        return len(self.keys)

    @property
    def ngrams(self) -> int:
        """The number of n-grams of all orders."""
        return sum(map(len, self.keys))

    def score(self, texts: Sequence[tuple[str, str]], centered: bool = False) -> np.ndarray:
        """log p of sentences, each after the text before it, "" for none: (S,) -> (S,).

        The last N - 1 words of that text, and the beginning of the sentence if it has fewer, come before the first
        word. If `centered`, the expectation of log p is subtracted at each word and at the end.
        """
        if not texts:
            return np.zeros(0)
        before, own = zip(*map(self._numbered, texts), strict=True)
        tokens = np.fromiter(
            chain.from_iterable(chain.from_iterable(zip(before, own, strict=True))), np.int64
        )
        sizes = np.array([[len(first), len(rest)] for first, rest in zip(before, own, strict=True)])
        starts = np.cumsum(sizes.sum(axis=1)) - sizes.sum(axis=1)
        counted = np.repeat(np.tile([False, True], len(texts)), sizes.ravel())
        found, contexts = self.walk(tokens, starts)
        log_p = self.backed_off(found, contexts)
        if centered:
            log_p = log_p - self.expectations(contexts)
        return LN_10 * np.add.reduceat(np.where(counted, log_p, 0.0), starts)

    def _numbered(self, text: tuple[str, str]) -> tuple[list[int], list[int]]:
        """The numbers of the words that are read before a sentence, and of those of the sentence with its end."""
        before, own = ([self.numbers.get(word, UNKNOWN) for word in each.split()] for each in text)
        return [BEGIN, *before][-max(self.order - 1, 1) :], [*own, END]

    def walk(self, tokens: np.ndarray, starts: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The n-grams of each order at each token: tokens (T,), starts of the texts (S,) -> N and N - 1 arrays (T,).

        The first arrays are indices of the n-grams that end with the token, the others of those that end before it;
        -1 if the model has none, or it would begin before the text.
        """
        found, contexts = [tokens], list[np.ndarray]()
        for order in range(2, self.order + 1):
            before = np.concatenate([[-1], found[-1][:-1]])
            before[starts] = -1
            contexts.append(before)
            found.append(self.find(order, before, tokens))
        return found, contexts

    def find(self, order: int, contexts: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Indices of n-grams from those of their first n - 1 words, -1 for none, and their last words; -1 for none."""
        return find(self.keys[order - 1], contexts * len(self.words) + words)

    def backed_off(self, found: Sequence[np.ndarray], contexts: Sequence[np.ndarray]) -> np.ndarray:
        """log10 p of words after contexts of up to n words: n + 1 and n arrays (T,) as from `walk` -> (T,)."""
        log_p = self.log_p[0][found[0]].astype(np.float64)
        for order, context in enumerate(contexts, 1):
            shorter = log_p + np.where(context >= 0, self.backoff[order - 1][context], 0.0)
            log_p = np.where(found[order] >= 0, self.log_p[order][found[order]], shorter)
        return log_p

    def expectations(self, contexts: Sequence[np.ndarray]) -> np.ndarray:
        """Σ_w p(w | h) log10 p(w | h) after the contexts at each position: N - 1 arrays (T,) as from `walk` -> (T,).

        Each context's value is computed from that of the next shorter one, once.
        """
        unigrams = self.log_p[0].astype(np.float64)
        value: np.ndarray = np.asarray((10**unigrams * unigrams).sum())
        for order, context in enumerate(contexts, 1):
            known = self.expected[order - 1]
            value = np.broadcast_to(value, context.shape)
            places = np.flatnonzero((context >= 0) & np.isnan(known[context]))
            new, first = np.unique(context[places], return_index=True)
            places = places[first]
            shorter = [each[places] for each in contexts[: order - 1]]
            known[new] = self._expectation_after(order, new, shorter, value[places])
            value = np.where(context >= 0, known[context], value)
        return value

    def _expectation_after(
        self, order: int, contexts: np.ndarray, shorter: Sequence[np.ndarray], value: np.ndarray
    ) -> np.ndarray:
        """The expectations after contexts (C,) of `order` words, given those after the next shorter ones (C,).

        With q = p(w | shorter context): Σ p log p over the words seen after the context, and b (Σ q log q + log b Σ q)
        over all others, where b is the backoff.
        """
        size, keys = len(self.words), self.keys[order]
        begin, end = (np.searchsorted(keys, edge * size) for edge in (contexts, contexts + 1))
        owner = np.repeat(np.arange(len(contexts)), end - begin)
        seen = np.arange(len(owner)) + np.repeat(begin - np.cumsum(end - begin) + (end - begin), end - begin)
        after, found = [each[owner] for each in shorter], [keys[seen] % size]
        for number, each in enumerate(after, 2):
            found.append(self.find(number, each, found[0]))
        log_p, log_q = self.log_p[order][seen].astype(np.float64), self.backed_off(found, after)
        direct, covered, replaced = (
            np.bincount(owner, weights, len(contexts))
            for weights in (10**log_p * log_p, 10**log_q, 10**log_q * log_q)
        )
        backoff = self.backoff[order - 1][contexts].astype(np.float64)
        return direct + 10**backoff * (value - replaced + backoff * (1 - covered))
