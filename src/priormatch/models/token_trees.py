"""Token sequences with shared beginnings, as trees in which each distinct beginning is one node."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Scored(NamedTuple):
    """Tokens of a text, from the begin token on; those from `start` on are scored, the others are context."""

    tokens: tuple[int, ...]
    start: int


@dataclass
class TokenTree:
    """A tree of sequences: for each node its token, its parent (-1 for none) and its depth.

    `sequences` are numbers of sequences; `nodes` has, for each, the node before each of its scored tokens.
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)
    nodes: list[list[int]] = field(default_factory=list)
    last: list[int] = field(default_factory=list)  # the path of the sequence added last

    def add(self, number: int, sequence: Scored, shared: int) -> None:
        """Add a sequence whose first `shared` tokens are those of the last one; its last token needs no node."""
        path = self.last[:shared]
        for depth, token in enumerate(sequence.tokens[shared:-1], shared):
            self.parents.append(path[-1] if path else -1)
            self.depths.append(depth)
            path.append(len(self.tokens))
            self.tokens.append(token)
        self.sequences.append(number)
        self.nodes.append(path[sequence.start - 1 :])
        self.last = path

    @property
    def first(self) -> int:
        """The first node that a score needs; those before it are context."""
        return min(min(each) for each in self.nodes)

    def sees(self) -> Tensor:
        """Whether a node sees another one, which is itself or above it: (L, L)."""
        seen = np.eye(len(self.tokens), dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                seen[node, :node] = seen[parent, :node]  # a parent comes before its children
        return torch.from_numpy(seen)


def trees_of(sequences: Sequence[Scored], most: int) -> list[TokenTree]:
    """Trees of at most `most` nodes, or one tree for each longer sequence; those without scored tokens are left out.

    Sequences with the same beginning come into the same tree, whatever their order.
    """
    trees: list[TokenTree] = []
    before: tuple[int, ...] = ()
    numbers = [number for number, each in enumerate(sequences) if each.start < len(each.tokens)]
    for number in sorted(numbers, key=lambda each: sequences[each].tokens):
        sequence = sequences[number]
        inputs = sequence.tokens[:-1]
        shared = common(before, inputs)
        if not trees or len(trees[-1].tokens) + len(inputs) - shared > most:
            trees.append(TokenTree())
            shared = 0
        trees[-1].add(number, sequence, shared)
        before = inputs
    return trees


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """The number of tokens with which two sequences begin alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
