"""The length filter: hypotheses far from the estimated length are dropped (section 2.5 of the paper)."""

from dataclasses import dataclass

import torch
from torch import Tensor

SHORTEST = 2  # one piece and the end of sentence


@dataclass(frozen=True)
class LengthFilter:
    """Keeps y iff floor(r_lb · L) <= len(y) <= ceil(r_ub · L), bounds included, and y is not empty.

    Lengths are counted in pieces with the end of sentence, as the authors' code does. A reference length of 0
    stands for an utterance without one, of which nothing is kept.
    """

    lower: float = 0.95
    upper: float = 1.05

    def __call__(self, lengths: Tensor, reference: Tensor) -> Tensor:
        """lengths (B, k) of the hypotheses, reference L (B,) -> keep (B, k)."""
        # In float64, 1.05 · 20 is 21 and not a hair more, which float32 would round up to 22.
        least = torch.floor((self.lower * reference.double()).round(decimals=9)).long()[:, None]
        most = torch.ceil((self.upper * reference.double()).round(decimals=9)).long()[:, None]
        inside = (lengths >= least) & (lengths <= most)
        return inside & (lengths >= SHORTEST) & (reference > 0)[:, None]


def keep_all(lengths: Tensor, reference: Tensor) -> Tensor:
    """No filter: every hypothesis that exists, an empty one too."""
    return lengths > 0
