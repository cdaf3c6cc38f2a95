"""How often bootstrap intervals hold the truth: python benchmarks/coverage.py [--sets 2000] [--json]

Simulates test sets in which every speaker has an error rate of their own, and counts how many of the 95 % intervals of
their word error rates hold that of the population, which the simulation knows; the table of docs/scoring.md.
"""

import argparse
import json

import numpy as np

from priormatch.progress import track
from priormatch.scoring.bootstrap import bootstrap_interval
from priormatch.scoring.error_rates import ErrorCounts, grouped

SPEAKERS = (3, 5, 10, 20, 40)
UTTERANCES, WORDS = 20, 10  # of each speaker, of each utterance
BETA = (2.0, 8.0)  # of the speakers' error rates, whose mean is 20 %
DRAWS = 1000


def simulate(speakers: int, random: np.random.Generator) -> tuple[ErrorCounts, list[str]]:
    """The word errors of every utterance, and whose it is."""
    rates = random.beta(*BETA, speakers).repeat(UTTERANCES)
    names = [str(number) for number in np.arange(speakers).repeat(UTTERANCES)]
    return ErrorCounts(random.binomial(WORDS, rates), np.full(len(rates), WORDS)), names


def coverage(speakers: int, sets: int, seed: int = 0) -> dict[str, float]:
    """The percentage of intervals that hold the truth, by what the bootstrap draws."""
    random = np.random.default_rng([seed, speakers])
    truth = 100 * BETA[0] / sum(BETA)
    held = {"utterances": 0, "speakers": 0}
    for _ in track(range(sets), f"{speakers} speakers"):
        counts, names = simulate(speakers, random)
        for unit, drawn in (("utterances", counts), ("speakers", grouped(counts, names))):
            low, high = bootstrap_interval(drawn, DRAWS)
            held[unit] += low <= truth <= high
    return {unit: 100 * count / sets for unit, count in held.items()}


def main() -> None:
    """Simulate, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=2000, help="test sets of each size")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = {speakers: coverage(speakers, given.sets) for speakers in SPEAKERS}
    if given.json:
        print(json.dumps(found))
        return
    print(f"| speakers | {' | '.join(map(str, found))} |\n|---|{'---|' * len(found)}")
    for unit in ("utterances", "speakers"):
        print(f"| drawing {unit} | {' | '.join(f'{each[unit]:.0f} %' for each in found.values())} |")


if __name__ == "__main__":
    main()
