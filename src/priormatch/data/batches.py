"""Turn cuts into padded batches of waveforms, in an order that is a pure function of (seed, epoch)."""

import gc
import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader

from priormatch.config import BatchSettings
from priormatch.data import SAMPLE_RATE
from priormatch.data.corpus import Corpus, cut_texts, one_of
from priormatch.data.decoded import DecodedAudio, Part
from priormatch.data.plan import Plan, Request, Visit, cut_by_seconds
from priormatch.data.speed import change_speed, changed_length
from priormatch.data.tokenizer import Tokenizer
from priormatch.data.waveforms import FULL_SCALE, as_float, read_samples, to_int16, why_unreadable
from priormatch.distributed import rank, ranks
from priormatch.errors import UserError
from priormatch.processes import begin_reader, explained_readers, stops_blocked
from priormatch.progress import Meter, say

if TYPE_CHECKING:  # lhotse is slow to import
    from lhotse.cut import Cut

HOST = torch.device("cpu")
FRAME = SAMPLE_RATE // 100
"""Samples in 10 ms; a transcript has at most one piece per 10 ms of audio."""
LONGEST_PIECE = 16  # letters, the most that SentencePiece puts in one
GONE = (ConnectionError, EOFError, FileNotFoundError)
"""Errors that torch raises when a batch's shared memory belongs to a killed reader."""
SMALL = ("samples", "labels", "label_lengths", "noise")  # tensors of a batch
DECODERS = 16  # processes that decode a whole corpus at most
DECODED_SECONDS = 120.0  # of audio that they return at a time


@dataclass(frozen=True)
class Batch:
    """The input of one training or decoding step.

    texts: the transcript of each utterance, or None;
    waveforms (B, N): float32 in [-1, 1], zero-padded; int16 as readers return them, before `to`;
    samples (B,): the lengths of the waveforms, after their change of speed;
    labels (B, U): pieces of the text or of one of its alternatives, terminated and padded with EOS;
    label_lengths (B,): lengths including the first EOS; 0 for an utterance without a transcript;
    noise (B, M): uniform in [0, 1), for augmentation;
    bad: the cuts that could not be read, with the reason;
    speeds, width: `to` changes the speeds, unless there are none, and pads to this width;
    rows: the number of rows that recorded steps pad it to; 0 leaves that to them;
    whole: the number of utterances in the update's batch, of which this may be a part.
    """

    ids: list[str]
    texts: list[str | None]
    waveforms: Tensor
    samples: Tensor
    labels: Tensor
    label_lengths: Tensor
    noise: Tensor
    bad: list[tuple[str, str]] = field(default_factory=list)
    speeds: list[float] = field(default_factory=list)
    width: int = 0
    rows: int = 0
    whole: int = 0

    @staticmethod
    def of_audio(waveforms: Tensor, samples: Tensor, noise: Tensor | None = None) -> "Batch":
        """A batch of speech without names and transcripts: waveforms (B, N), samples (B,), noise (B, M)."""
        count, nothing = len(waveforms), torch.zeros_like(samples)
        noise = waveforms[:, :0] if noise is None else noise
        return Batch([""] * count, [None] * count, waveforms, samples, nothing[:, None], nothing, noise)

    def __len__(self) -> int:
        return len(self.ids)

    def __getstate__(self) -> dict[str, Any]:
        # Only the waveforms are worth shared memory, which costs a handshake between processes per tensor.
        return {**self.__dict__, **{name: getattr(self, name).numpy() for name in SMALL}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {name: torch.from_numpy(state[name]) for name in SMALL})

    @property
    def seconds(self) -> float:
        """Seconds of audio in the batch, without padding."""
        return float(self.samples.sum()) / SAMPLE_RATE

    def to(self, device: torch.device) -> "Batch":
        """Return the batch with its tensors on a device, the waveforms as float32 at their speeds."""
        moved = self._each(lambda tensor: tensor.to(device, non_blocking=True))
        waveforms = moved.waveforms
        if not waveforms.is_floating_point():
            waveforms = waveforms.float().mul_(1 / FULL_SCALE)
        if self.speeds:
            waveforms = change_speed(waveforms, moved.samples, self.speeds, self.width)
        elif waveforms.shape[1] < self.width:
            waveforms = functional.pad(waveforms, (0, self.width - waveforms.shape[1]))
        return replace(moved, waveforms=waveforms, speeds=[])

    def pin_memory(self) -> "Batch":
        """Return the batch with its tensors in pinned memory; the DataLoader calls this."""
        return self._each(Tensor.pin_memory)

    def _each(self, function: Callable[[Tensor], Tensor]) -> "Batch":
        return replace(
            self,
            waveforms=function(self.waveforms),
            samples=function(self.samples),
            labels=function(self.labels),
            label_lengths=function(self.label_lengths),
            noise=function(self.noise),
        )


Asked = TypeVar("Asked", contravariant=True)
Read = TypeVar("Read", covariant=True)


class Reader(Protocol[Asked, Read]):
    """What the loader's worker processes run."""

    def __getitems__(self, request: Asked) -> Read:
        """Read what is requested."""


class UtteranceReader:
    """Reads a `Request` into a `Batch`; runs inside the loader's worker processes.

    Each visit draws its own text if a cut has several, its own segmentation into pieces, and `noise` numbers. They
    depend on the seed, the epoch and the utterance only, not on the batch or the process that it is in.
    """

    def __init__(
        self,
        corpus: Corpus,
        tokenizer: Tokenizer,
        piece_sampling: float = 0.0,
        speeds: Sequence[float] = (),
        noise: int = 0,
    ) -> None:
        self.corpus, self.tokenizer = corpus, tokenizer
        self.piece_sampling, self.speeds, self.noise = piece_sampling, [1.0, *speeds], noise

    def __getitems__(self, request: Request) -> Batch:
        """Read one batch; the loader asks for all its items at once."""
        cuts = self.cuts_of(request)
        read = [*map(samples_of, cuts)]
        kept, batch = self.without_audio(request, cuts, lengths_of(read))
        waves = [each for each in (read[row] for row in kept) if not isinstance(each, str)]
        return replace(batch, waveforms=stack(waves))

    def read_decoded(self, request: Request, audio: DecodedAudio) -> Batch:
        """Read one batch from audio that stays on the device."""
        indices = [visit.utterance for visit in request.visits]
        found = [audio.found[index] for index in indices]
        kept, batch = self.without_audio(request, self.cuts_of(request), found)
        return replace(batch, waveforms=audio.rows([indices[row] for row in kept]))

    def cuts_of(self, request: Request) -> "list[Cut]":
        """The cuts of a request, each of which is parsed anew if they are on disk."""
        return [self.corpus.cuts[visit.utterance] for visit in request.visits]

    def without_audio(
        self, request: Request, cuts: "Sequence[Cut]", found: Sequence[int | str]
    ) -> tuple[list[int], Batch]:
        """The usable rows of a request and their batch, apart from the waveforms.

        `found` has the number of samples of each utterance, or the reason why it cannot be read.
        """
        kept: list[int] = []
        texts, samples, labels, speeds, bad = [], [], [], [], []
        noise = np.zeros((len(request.visits), self.noise), np.float32)
        for row, (visit, cut, length) in enumerate(zip(request.visits, cuts, found, strict=True)):
            if isinstance(length, str):
                bad.append((cut.id, length))
                continue
            count = changed_length(length, visit.speed)
            random = np.random.default_rng([*visit.drawn, visit.utterance])
            choices, classes = self._classes(cut, count, random)
            if classes is None:
                longest, seconds = max(map(len, choices)), count / SAMPLE_RATE
                bad.append(
                    (cut.id, f"its transcript of {longest:,} characters is too long for {seconds:.2f} s")
                )
                continue
            noise[len(kept)] = random.random(self.noise, np.float32)
            kept.append(row)
            samples.append(count)
            speeds.append(visit.speed)
            texts.append(choices[0] if choices else None)
            labels.append(classes)
        batch = collate([cuts[row].id for row in kept], texts, samples, labels, self.tokenizer.eos, bad)
        changed = any(speed != 1.0 for speed in speeds)
        width, rows = max([round(request.shape.seconds * SAMPLE_RATE), *samples]), request.shape.rows
        return kept, replace(
            batch,
            noise=torch.from_numpy(noise[: len(kept)]),
            speeds=speeds if changed else [],
            width=width,
            rows=rows,
            whole=request.whole or len(request.visits),
        )

    def _classes(
        self, cut: "Cut", samples: int, random: np.random.Generator
    ) -> tuple[list[str], list[int] | None]:
        """The texts of a cut, and the classes of one of them; None if it is too long for the audio."""
        choices, frames = cut_texts(cut), samples // FRAME + 1
        longest = max(map(len, choices), default=0)
        if longest > LONGEST_PIECE * frames:  # too long in any segmentation
            return choices, None
        classes = self.tokenizer.encode(one_of(choices, random), self.piece_sampling, random)
        return choices, classes if len(classes) <= frames else None


def samples_of(cut: "Cut") -> np.ndarray | str:
    """The samples of a cut in 16 bits, or the reason why it cannot be read.

    All audio is rounded here, so that batches are the same whether it is decoded once or in every epoch. Audio above
    full scale becomes quieter instead of being clipped: features are normalized.
    """
    try:
        samples = read_samples(cut)
    except Exception as error:  # a damaged file raises whatever its decoder does
        return why_unreadable(cut, error)
    if samples.dtype != np.int16:
        samples = samples / max(1.0, np.abs(samples).max(initial=0.0))
    return to_int16(samples)[0]


def lengths_of(read: Sequence[np.ndarray | str]) -> list[int | str]:
    """The number of samples of each utterance, or the reason why it cannot be read."""
    return [each if isinstance(each, str) else len(each) for each in read]


def stack(waves: Sequence[np.ndarray]) -> Tensor:
    """Pad waveforms with zeros to the longest: (B, N), int16 if all of them are, else float32."""
    small = all(wave.dtype == np.int16 for wave in waves)
    waveforms = np.zeros((len(waves), max(map(len, waves), default=0)), np.int16 if small else np.float32)
    for row, wave in zip(waveforms, waves, strict=True):
        row[: len(wave)] = wave if small else as_float(wave)
    return torch.from_numpy(waveforms)


def collate(
    ids: list[str],
    texts: list[str | None],
    samples: list[int],
    labels: list[list[int]],
    eos: int,
    bad: list[tuple[str, str]],
) -> Batch:
    """A batch without its waveforms; labels are padded with EOS."""
    lengths = torch.tensor(
        [len(each) + 1 if text is not None else 0 for each, text in zip(labels, texts, strict=True)],
        dtype=torch.long,
    )
    targets = torch.full((len(labels), max((len(each) for each in labels), default=0) + 1), eos)
    for target, each in zip(targets, labels, strict=True):
        target[: len(each)] = torch.tensor(each, dtype=torch.long)
    counts = torch.tensor(samples, dtype=torch.long)
    empty = torch.zeros(len(ids), 0)
    return Batch(ids, texts, empty, counts, targets, lengths, empty, bad)


class BatchStream:
    """An endless stream of batches that can start anywhere.

    `position` counts the batches taken; a stream created with the same `position` resumes exactly here. A batch is
    split over the processes of a job, and there into `size.accumulate` parts. On a GPU, audio that fits stays in its
    memory. Every utterance counts as at least `least` seconds.
    """

    def __init__(
        self,
        reader: UtteranceReader,
        size: BatchSettings,
        seed: int,
        position: int = 0,
        *,
        workers: int = 0,
        device: torch.device = HOST,
        least: float = 0.0,
    ) -> None:
        self.reader, self.workers = reader, workers
        self.audio = decoded_audio(reader.corpus, device)  # now, because it shows its own progress
        self.plan = Plan(np.maximum(reader.corpus.durations, least), size, seed, reader.speeds)
        self.position, self.accumulate = position, size.accumulate
        self.bad: dict[str, str] = {}
        self.seen = self.whole = 0
        self._batches: Generator[Batch, None, None] | None = None

    def close(self) -> None:
        """Stop the workers and free the decoded audio now; `take` can still be called, and then reads files.

        Garbage collection would wait seconds for each worker. It would free the audio late, perhaps after the next
        stage has decoded its own, because a task and its recorded step refer to each other.
        """
        if self._batches is not None:
            self._batches.close()
            self._batches = None
        self.audio = self.reader.corpus.decoded = None

    def take(self) -> list[Batch]:
        """Return this process's parts of the next batch; `whole` is then its number of utterances in all processes."""
        if self._batches is None:
            self._batches = self._open()
        parts = [ready(each) for each in islice(self._batches, self.accumulate)]
        self.position, self.whole = self.position + 1, parts[0].whole
        for batch in parts:
            self.seen += len(batch) + len(batch.bad)
            self.count_bad(batch)
        return [batch for batch in parts if len(batch)]

    def _open(self) -> Generator[Batch, None, None]:
        count, first = ranks() * self.accumulate, rank() * self.accumulate
        mine = slice(first, first + self.accumulate)
        to_come = (part for each in self.plan.requests(self.position) for part in each.parts(count)[mine])
        if self.audio is None:
            return read_ahead(self.reader, to_come, self.workers)
        audio = self.audio
        return (self.reader.read_decoded(request, audio) for request in to_come)

    def count_bad(self, batch: Batch) -> None:
        """Report each unreadable cut once, and raise `UserError` if there are too many."""
        corpus = self.reader.corpus
        seen, most = min(self.seen, len(corpus)), corpus.audio.max_bad_share
        for cut, reason in batch.bad:
            if cut not in self.bad:
                self.bad[cut] = reason
                what = f"{cut} cannot be read and is skipped ({reason}), {len(self.bad)} of {seen} so far"
                say(f"{corpus.name}: {what}", everywhere=True)
        many = len(self.bad) > max(1, most * seen) and seen >= min(100, len(corpus))
        if many or len(self.bad) == len(corpus):
            raise UserError(
                f"{corpus.name}: {len(self.bad)} of {seen} utterances"
                f" cannot be read, the last because {next(reversed(self.bad.values()))}:"
                f" list them all with `priormatch check`, repair them or remove them, or raise"
                f" audio.max_bad_share (now {most:g})"
            )


def once(
    reader: UtteranceReader, seconds: float, workers: int = 0, groups: Iterable[np.ndarray] | None = None
) -> Iterator[Batch]:
    """Yield every utterance once, in batches of about `seconds`, the longest first.

    With groups of indices, yield those utterances, group by group, so that no batch has utterances of two groups.
    """
    durations = reader.corpus.durations
    requests = (
        request
        for group in ([np.arange(len(durations))] if groups is None else groups)
        for request in in_this_order(durations, group[np.argsort(-durations[group], kind="stable")], seconds)
    )
    yield from map(ready, read_ahead(reader, requests, workers))


def ready(batch: Batch) -> Batch:
    """The batch in float32 at its speeds, unless a GPU is there to do that."""
    return batch if torch.cuda.is_available() else batch.to(HOST)


def in_this_order(durations: np.ndarray, order: np.ndarray, seconds: float) -> Iterator[Request]:
    """Requests for all utterances in a given order, of about `seconds` each."""
    for batch in np.split(order, cut_by_seconds(durations[order], seconds)[1:]):
        yield Request([Visit(int(index)) for index in batch])


def decoded_audio(corpus: Corpus, device: torch.device) -> DecodedAudio | None:
    """All audio of a corpus on a GPU, decoded now or before; None elsewhere, or if it exceeds `audio.gpu_share`."""
    if device.type != "cuda":
        return None
    if corpus.decoded is None:
        free, _ = torch.cuda.mem_get_info(device)  # other processes may share the GPU
        if 2 * most_samples(corpus) <= corpus.audio.gpu_share * free:
            corpus.decoded = decode_corpus(corpus, device)
    return corpus.decoded


def most_samples(corpus: Corpus) -> int:
    """The number of samples in a corpus, each utterance rounded up."""
    return int(np.ceil(corpus.durations * SAMPLE_RATE).sum())


def decode_corpus(corpus: Corpus, device: torch.device) -> DecodedAudio:
    """Decode all audio of a corpus once, with many processes, into the memory of a device."""
    workers = min(os.cpu_count() or 1, DECODERS) if corpus.audio.workers else 0
    requests = in_this_order(corpus.durations, np.arange(len(corpus)), DECODED_SECONDS)

    def parts() -> Iterator[Part]:
        with Meter(f"decoding {corpus.name}", len(corpus)) as meter:
            for part in read_ahead(CorpusReader(corpus), requests, workers):
                yield part
                meter.advance(len(part.found))

    return DecodedAudio.of(parts(), most_samples(corpus), device)


class CorpusReader:
    """Decodes utterances without their transcripts; runs inside the loader's worker processes."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus

    def __getitems__(self, request: Request) -> Part:
        """The 16-bit samples of the utterances."""
        read = [samples_of(self.corpus.cuts[visit.utterance]) for visit in request.visits]
        waves = [each for each in read if not isinstance(each, str)]
        samples = np.concatenate([np.zeros(0, np.int16), *waves])
        return Part(torch.from_numpy(samples), lengths_of(read))


# Not a method of the stream: a reference cycle would keep the loader's workers from ending in time.
def read_ahead(
    reader: Reader[Asked, Read], requests: Iterator[Asked], workers: int, pin: bool = True
) -> Generator[Read, None, None]:
    """Read what is requested in order; with workers, ahead of its use, and pinned for a GPU if there is one."""
    if workers == 0:
        yield from (reader.__getitems__(request) for request in requests)
        return
    start_method = "fork" if sys.platform == "linux" else None  # even in a process that was spawned
    loader: DataLoader[Read] = DataLoader(
        reader,  # type: ignore[arg-type]
        batch_sampler=_Requests(requests),
        num_workers=workers,
        collate_fn=_as_it_is,
        multiprocessing_context=start_method,
        pin_memory=pin and torch.cuda.is_available(),
        generator=torch.Generator(),  # else each start would draw from the training's generator
        worker_init_fn=partial(begin_reader, os.getpid()),
    )
    with explained_readers(*GONE):
        gc.freeze()  # a worker that collects inherited garbage could free GPU memory and crash
        try:
            with stops_blocked():
                batches = iter(loader)
        finally:
            gc.unfreeze()
        yield from batches


class _Requests:
    """A batch sampler over requests, which can be iterated once."""

    def __init__(self, requests: Iterator[Any]) -> None:
        self.requests = requests

    def __iter__(self) -> Iterator[Any]:
        return self.requests


def _as_it_is(batch: Any) -> Any:
    return batch
