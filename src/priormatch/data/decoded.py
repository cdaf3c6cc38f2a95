"""Decoded audio of a whole corpus in the memory of a device."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor


class Part(NamedTuple):
    """Some utterances, one after the other: their samples (S,), and the number of each, or why it cannot be read."""

    samples: Tensor
    found: list[int | str]


@dataclass(frozen=True)
class DecodedAudio:
    """16-bit samples (S,) of all utterances on a device, where each of them starts, and how long it is.

    `found` has the reason instead of the length for utterances that cannot be read.
    """

    samples: Tensor
    starts: list[int]
    found: list[int | str]

    @staticmethod
    def of(parts: Iterable[Part], most: int, device: torch.device) -> "DecodedAudio":
        """Put the parts of a corpus, about `most` samples, together on a device."""
        samples, end, found = torch.empty(most, dtype=torch.int16, device=device), 0, list[int | str]()
        for part in parts:  # into their place at once, since a second copy may not fit
            begin, end = end, end + len(part.samples)
            if end > len(samples):  # the manifest is inexact
                samples = torch.cat([samples, samples.new_empty(end - len(samples))])
            samples[begin:end].copy_(part.samples, non_blocking=True)
            found += part.found
        lengths = [0 if isinstance(each, str) else each for each in found]
        return DecodedAudio(samples[:end], [0, *accumulate(lengths)][:-1], found)

    def rows(self, indices: Sequence[int]) -> Tensor:
        """Utterances padded with zeros to the longest: (B, N)."""
        lengths = [length for index in indices if not isinstance(length := self.found[index], str)]
        width, device = max(lengths, default=0), self.samples.device
        first = [self.starts[index] for index in indices]
        where = torch.tensor([first, lengths], dtype=torch.long).view(2, -1, 1)
        starts, ends = (where.pin_memory() if device.type == "cuda" else where).to(device, non_blocking=True)
        columns = torch.arange(width, device=device)
        places = (starts + columns).clamp(max=max(len(self.samples) - 1, 0))
        return self.samples[places].masked_fill(columns >= ends, 0)
