"""Choose the sentences of a text to be spoken, in passages of consecutive ones; the rest is for the prior."""

import random
import re
from array import array
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

PASSAGE = (5, 20)
"""Fewest and most sentences in a recording."""
SPEAKABLE = re.compile(r"[a-z']{1,30}( [a-z']{1,30})*")

Characters = npt.NDArray[np.uint32]


def survey(sentences: Iterable[str], shortest: int, longest: int) -> Characters:
    """Count the characters of every sentence that may be spoken, 0 for the others: (N,).

    A sentence may be spoken if it has `shortest` to `longest` words of plain letters and apostrophes and occurs only
    once. So no sentence is spoken twice, and no spoken sentence is in the rest of the text.
    """
    hashes, characters = array("q"), array("I")
    for sentence in sentences:
        fits = shortest <= sentence.count(" ") + 1 <= longest and SPEAKABLE.fullmatch(sentence)
        hashes.append(hash(sentence))  # 64 bits hardly ever collide
        characters.append(len(sentence) if fits else 0)
    return np.where(_occurs_once(np.array(hashes)), np.array(characters), 0).astype(np.uint32)


def _occurs_once(values: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Mark the values that occur only once: (N,) -> (N,)."""
    _, first, counts = np.unique(values, return_index=True, return_counts=True)
    once = np.zeros(len(values), np.bool_)
    once[first[counts == 1]] = True
    return once


def cut_passages(characters: Characters, rng: random.Random) -> list[range]:
    """Cut every run of sentences that may be spoken into passages of 5 to 20; return all, in random order.

    The end of a run is left out if it is too short for a passage.
    """
    inside = np.concatenate([[0], characters > 0, [0]])
    fewest, most = PASSAGE
    found = []
    for begin, end in np.flatnonzero(np.diff(inside)).reshape(-1, 2).tolist():
        while end - begin >= fewest:
            after = min(begin + rng.randint(fewest, most), end)
            found.append(range(begin, after))
            begin = after
    rng.shuffle(found)
    return found
