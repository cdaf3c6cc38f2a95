"""Which utterances make a batch, and in which order: a pure function of (seed, epoch)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import NamedTuple

import numpy as np

from priormatch.config import BatchSettings

GRID = 0.04  # seconds, to which the shapes of batches are rounded up
SPEEDS = 2  # third seed, after the seed and the epoch, of the draw of speeds
SAMPLED = 1_000_000  # durations from which shapes are computed, at most about, and that are sorted exactly
LEVELS = 65_535  # into which more durations are rounded to be sorted


class Visit(NamedTuple):
    """An utterance in a batch: its index in the corpus, the (seed, epoch) of its random choices, and its speed."""

    utterance: int
    drawn: tuple[int, int] = (0, 0)
    speed: float = 1.0


class Shape(NamedTuple):
    """The shape of a batch: seconds of each utterance including padding, and the number of utterances."""

    seconds: float = 0.0
    rows: int = 0


class Request(NamedTuple):
    """A batch to read: its utterances, and the shape that it is padded to; zeros leave it as large as they are.

    `whole` is the number of utterances in the batch that this is a part of; 0 if it is a whole one.
    """

    visits: list[Visit]
    shape: Shape = Shape()
    whole: int = 0

    def parts(self, count: int) -> "list[Request]":
        """Split the batch into parts of about the same size, which may be empty."""
        if count == 1:
            return [self]
        shape = self.shape._replace(rows=-(-self.shape.rows // count))
        return [Request(self.visits[part::count], shape, len(self.visits)) for part in range(count)]


@dataclass(frozen=True)
class Epoch(Sequence[Request]):
    """The batches of one epoch, as indices with a shape; requests are made when they are needed.

    An epoch of millions of utterances therefore costs eight bytes for each, and not an object.
    """

    batches: Sequence[tuple[np.ndarray, Shape]]
    drawn: tuple[int, int]
    speeds: np.ndarray

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: int) -> Request:  # type: ignore[override]
        """A batch; all utterances with the same speed are neighbors."""
        batch, shape = self.batches[number]
        visits = by_speed(batch, self.speeds[batch])
        return Request([Visit(int(i), self.drawn, float(self.speeds[i])) for i in visits], shape)


@dataclass(frozen=True)
class Plan:
    """The batches of all epochs: utterances of these durations in seconds, each at a random one of the speeds."""

    durations: np.ndarray
    size: BatchSettings
    seed: int
    speeds: Sequence[float] = (1.0,)

    def requests(self, skip: int) -> Iterator[Request]:
        """The batches of all epochs, without the first `skip`."""
        for number in count():
            epoch = self.epoch(number)
            yield from (epoch[batch] for batch in range(skip, len(epoch)))
            skip = max(0, skip - len(epoch))

    def epoch(self, epoch: int) -> Epoch:
        """The batches of one epoch."""
        speeds = np.asarray(self.speeds)[self._drawn(epoch)]
        durations = self.durations / speeds
        if self.size.buckets:
            planned = plan_shapes(durations, self.shapes, self.seed, epoch)
        else:
            planned = [(each, Shape()) for each in plan_batches(durations, self.size, self.seed, epoch)]
        return Epoch(planned, (self.seed, epoch), speeds)

    @cached_property
    def shapes(self) -> list[Shape]:
        """The shapes of the batches, which are the same in every epoch."""
        sample = sampled(self.durations)
        return shapes_of(np.concatenate([sample / speed for speed in dict.fromkeys(self.speeds)]), self.size)

    def _drawn(self, epoch: int) -> np.ndarray:
        if len(self.speeds) == 1:
            return np.zeros(len(self.durations), np.int8)
        random = np.random.default_rng([self.seed, epoch, SPEEDS])
        return random.integers(len(self.speeds), size=len(self.durations))


def by_speed(batch: np.ndarray, speeds: np.ndarray) -> np.ndarray:
    """Sort the utterances of a batch (B,) by their speeds (B,), otherwise in the given order."""
    return batch[np.argsort(speeds, kind="stable")]


def plan_batches(durations: np.ndarray, size: BatchSettings, seed: int, epoch: int) -> list[np.ndarray]:
    """Plan one epoch as batches of indices: similar durations within a batch, batches shuffled.

    Utterances are sorted by a slightly jittered duration and split into batches of at most `size.seconds` (including
    padding) or of `size.utterances`; then the batches are shuffled.
    """
    random = np.random.default_rng([seed, epoch])
    order = sorted_nearly(durations * random.uniform(0.9, 1.1, len(durations)))
    if size.utterances > 0:
        starts = list(range(0, len(order), size.utterances))
    else:
        starts = cut_by_seconds(durations[order], size.seconds)
    batches = np.split(order, starts[1:])
    return [batches[i] for i in random.permutation(len(batches))]


def sorted_nearly(durations: np.ndarray) -> np.ndarray:
    """The indices that sort durations (N,); very many are sorted to 1/65,535 of the longest, in a tenth of the time."""
    if len(durations) <= SAMPLED:
        return np.argsort(durations, kind="stable")
    levels = np.rint(durations * (LEVELS / durations.max())).astype(np.uint16)
    return np.argsort(levels, kind="stable")  # a radix sort


def cut_by_seconds(durations: np.ndarray, seconds: float) -> list[int]:
    """Return where batches begin, so that each has at most `seconds` including padding, or a single utterance."""
    starts = [0]
    while end := _first_beyond(durations[starts[-1] :], seconds):
        starts.append(starts[-1] + end)
    return starts


def _first_beyond(durations: np.ndarray, seconds: float) -> int:
    """The number of durations that fit into one batch; 0 if all do."""
    looked_at = 64
    while True:
        padded = np.maximum.accumulate(durations[:looked_at]) * np.arange(1, len(durations[:looked_at]) + 1)
        beyond = np.flatnonzero(padded[1:] > seconds)
        if len(beyond):
            return int(beyond[0]) + 1
        if looked_at >= len(durations):
            return 0
        looked_at *= 4


def sampled(durations: np.ndarray) -> np.ndarray:
    """Of many durations, every n-th and the longest."""
    if len(durations) <= SAMPLED:
        return durations
    return np.append(durations[:: -(-len(durations) // SAMPLED)], durations.max())


def shapes_of(durations: np.ndarray, size: BatchSettings) -> list[Shape]:
    """At most `size.buckets` shapes, shortest first; utterances between two of them have equal shares of the audio."""
    durations = np.sort(durations)
    audio = np.cumsum(durations)
    ends = np.searchsorted(audio, audio[-1] * np.arange(1, size.buckets + 1) / size.buckets)
    longest = durations[np.minimum(ends, len(durations) - 1)]
    rounded = dict.fromkeys((np.ceil((longest / GRID).round(6)) * GRID).tolist())
    return [Shape(each, size.utterances or max(int(size.seconds / each), 1)) for each in rounded]


def plan_shapes(
    durations: np.ndarray, shapes: Sequence[Shape], seed: int, epoch: int
) -> list[tuple[np.ndarray, Shape]]:
    """Plan one epoch as batches of few shapes, shuffled: the indices of each batch, and its shape.

    An utterance is padded to the next shape; those that fill no batch there are padded to the shape after it. Only the
    last batch of the longest shape can have fewer utterances than its shape.
    """
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(durations))
    groups = np.searchsorted([shape.seconds for shape in shapes], durations[order])
    planned, left = [], order[:0]
    for group, shape in enumerate(shapes):
        members = np.concatenate([left, order[groups == group]])
        whole = len(members) - len(members) % shape.rows
        planned += [(batch, shape) for batch in members[:whole].reshape(-1, shape.rows)]
        left = members[whole:]
    if len(left):
        planned.append((left, shapes[-1]))
    return [planned[i] for i in random.permutation(len(planned))]
