"""Which unlabeled utterances an epoch visits: those the prior is surest of, and some at random."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from priormatch.matching.lpm import entropy

UNKNOWN, ALONE, NOTHING = -math.inf, 1e6, math.inf
"""Doubts that are no entropies: never chosen yet; a single survivor, above every entropy; and no survivor."""


def doubts_of(weights: Tensor) -> Tensor:
    """How unsure the prior is of each utterance: weights (B, k) -> (B,).

    That is the entropy of the local prior where it had a choice. With a single survivor an entropy of zero would be
    the filter's doing and tell nothing of the prior.
    """
    survivors = (weights > 0).sum(dim=-1)
    doubts = entropy(weights).masked_fill(survivors == 1, ALONE)
    return doubts.masked_fill(survivors == 0, NOTHING)


def select(doubts: np.ndarray, share: float, random_share: float, random: np.random.Generator) -> np.ndarray:
    """The utterances that an epoch visits, `share` of all and at least one: doubts (N,) -> indices, rising (M,).

    Those never chosen come first, so that the first epochs visit everything once. Of the places that are left
    `random_share` are drawn, and the others go to the least doubts. Among equals chance decides.
    """
    places = max(round(share * len(doubts)), 1)
    new = min(int((doubts == UNKNOWN).sum()), places)
    drawn = round(random_share * (places - new))
    order = random.permutation(len(doubts))
    ranked = order[np.argsort(doubts[order], kind="stable")]
    best, others = np.split(ranked, [places - drawn])
    return np.sort(np.concatenate([best, random.permutation(others)[:drawn]]))


class Selection:
    """Remembers how unsure the prior was of each utterance at its last visit, and chooses by it what an epoch visits.

    `choose` is for a BatchStream, which asks when the epoch before is over; `figures` tells of the choice. An
    utterance that was chosen and could not be read has no survivor.
    """

    def __init__(self, ids: Sequence[str], share: float, random_share: float, seed: int) -> None:
        self.rows = {name: row for row, name in enumerate(ids)}
        self.share, self.random_share, self.seed = share, random_share, seed
        self.doubts = np.full(len(ids), UNKNOWN, np.float32)
        self.epoch, self.chosen = -1, np.zeros(0, np.int64)
        self.figures: dict[str, float] = {}
        self._noted: list[tuple[list[int], Tensor]] = []

    def choose(self, epoch: int) -> np.ndarray:
        """The indices of the utterances that an epoch visits; of the current epoch, those chosen before."""
        if epoch != self.epoch:
            self._fetch()
            (random,) = np.random.default_rng([self.seed, epoch]).spawn(1)  # not that of the epoch's batches
            self.chosen = select(self.doubts, self.share, self.random_share, random)
            known = self.doubts[self.chosen]
            self.epoch, self.figures = epoch, _told(selected_entropy=known, unlabeled_entropy=self.doubts)
            self.doubts[self.chosen] = np.where(known == UNKNOWN, NOTHING, known)
        return self.chosen

    def note(self, ids: Sequence[str], weights: Tensor) -> None:
        """Take note of the weights (B, k) of a batch, its ids' rows first, without waiting for them."""
        self._noted.append(([self.rows[name] for name in ids], doubts_of(weights[: len(ids)])))

    def _fetch(self) -> None:
        """Wait for what was noted."""
        if self._noted:
            rows = [row for noted, _ in self._noted for row in noted]
            self.doubts[rows] = torch.cat([doubts for _, doubts in self._noted]).cpu().numpy()
            self._noted.clear()

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What a checkpoint keeps: the doubts, and the choice, which was made by older ones."""
        self._fetch()
        tensors = {"doubts": torch.from_numpy(self.doubts), "chosen": torch.from_numpy(self.chosen)}
        return tensors, {"epoch": self.epoch, "figures": self.figures}

    def restore(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        self.doubts, self.chosen = (tensors[name].numpy().copy() for name in ("doubts", "chosen"))
        self.epoch, self.figures = state["epoch"], state["figures"]


def _told(**doubts: np.ndarray) -> dict[str, float]:
    """The mean of those doubts that are entropies, under each name that has any."""
    entropies = {name: each[(each > UNKNOWN) & (each < ALONE)] for name, each in doubts.items()}
    return {name: float(each.mean()) for name, each in entropies.items() if len(each)}
