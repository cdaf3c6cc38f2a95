"""n-gram models with dictionaries: modified Kneser-Ney and backoff, a word at a time, for tests."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

Gram = tuple[str, ...]
FALLBACK = [0.0, 0.5, 1.0, 1.5]


def grams_of(sentences: Sequence[str], order: int) -> Counter[Gram]:
    """Count the n-grams of one order."""
    found: Counter[Gram] = Counter()
    for sentence in sentences:
        words = ["<s>", *sentence.split(), "</s>"]
        found.update(tuple(words[at : at + order]) for at in range(len(words) - order + 1))
    return found


def adjusted_counts(sentences: Sequence[str], order: int, highest: int) -> dict[Gram, int]:
    """Counts in the text for the highest order and beginnings, otherwise of different words before."""
    counts = grams_of(sentences, order)
    if order == highest:
        return {gram: count for gram, count in counts.items() if gram != ("<s>",)}
    before: defaultdict[Gram, set[str]] = defaultdict(set)
    for longer in grams_of(sentences, order + 1):
        before[longer[1:]].add(longer[0])
    found = {gram: len(before[gram]) if gram[0] != "<s>" else count for gram, count in counts.items()}
    return {gram: count for gram, count in found.items() if gram != ("<s>",)}


def discounts_of(counts: Mapping[Gram, int]) -> list[float]:
    """Discounts of counts 0, 1, 2, and 3 or more."""
    times = Counter(counts.values())
    if not all(times[k] for k in (1, 2, 3)):
        return FALLBACK
    share = times[1] / (times[1] + 2 * times[2])
    found = [0.0] + [k - (k + 1) * share * times[k + 1] / times[k] for k in (1, 2, 3)]
    return found if all(0 < d <= k for k, d in enumerate(found[1:], 1)) else FALLBACK


def kneser_ney(sentences: Sequence[str], order: int) -> tuple[dict[Gram, float], dict[Gram, float]]:
    """p of every n-gram, and the backoff of every context."""
    vocabulary = {word for sentence in sentences for word in sentence.split()} | {"</s>", "<unk>"}
    p: dict[Gram, float] = {}
    backoff: dict[Gram, float] = {}
    for n in range(1, order + 1):
        counts = adjusted_counts(sentences, n, order)
        discounts = discounts_of(counts)
        after: defaultdict[Gram, list[int]] = defaultdict(list)
        for gram, count in counts.items():
            after[gram[:-1]].append(count)
        for context, seen in after.items():
            backoff[context] = sum(discounts[min(count, 3)] for count in seen) / sum(seen)
        for gram, count in counts.items():
            shorter = p[gram[1:]] if n > 1 else 1 / len(vocabulary)
            own = (count - discounts[min(count, 3)]) / sum(after[gram[:-1]])
            p[gram] = own + backoff[gram[:-1]] * shorter
    p.setdefault(("<unk>",), backoff[()] / len(vocabulary))
    return p, {context: value for context, value in backoff.items() if context}


def probability(p: Mapping[Gram, float], backoff: Mapping[Gram, float], context: Gram, word: str) -> float:
    """p(word | context) with backoff."""
    if (*context, word) in p:
        return p[(*context, word)]
    if not context:
        return p[("<unk>",)]
    return backoff.get(context, 1.0) * probability(p, backoff, context[1:], word)


def log_p(
    p: Mapping[Gram, float], backoff: Mapping[Gram, float], order: int, text: str, before: str = ""
) -> float:
    """The natural logarithm of the probability of a sentence, after the text before it."""
    known = {gram[0] for gram in p if len(gram) == 1}
    words = ["<s>", *(word if word in known else "<unk>" for word in before.split())]
    total = 0.0
    for word in [*text.split(), "</s>"]:
        word = word if word in known else "<unk>"
        context = tuple(words[max(len(words) - order + 1, 0) :])
        total += math.log(probability(p, backoff, context, word))
        words.append(word)
    return total
