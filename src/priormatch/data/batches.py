"""Turn cuts into padded batches of waveforms, in an order that is a pure function of (seed, epoch)."""

import gc
import os
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from priormatch.config import AudioSettings, BatchSettings
from priormatch.data import SAMPLE_RATE
from priormatch.data.tokenizer import Tokenizer
from priormatch.data.waveforms import FULL_SCALE, as_float, read_samples, why_unreadable
from priormatch.errors import UserError
from priormatch.processes import begin_reader, explained_readers, stops_blocked
from priormatch.progress import say

if TYPE_CHECKING:  # lhotse is slow to import
    from lhotse.cut import Cut

HOST = torch.device("cpu")
FRAME = SAMPLE_RATE // 100
"""Samples in 10 ms; a transcript has at most one piece per 10 ms of audio."""
LONGEST_PIECE = 16  # letters, the most that SentencePiece puts in one
GONE = (ConnectionError, EOFError, FileNotFoundError)
"""Errors that torch raises when a batch's shared memory belongs to a killed reader."""
SMALL = ("samples", "labels", "label_lengths")  # tensors of a batch
ALTERNATIVES = "alternative_texts"
"""The custom field of a supervision with alternative target texts for its utterance."""

Request = list[tuple[int, tuple[int, int]]]
"""The utterances of a batch: the index of each, and the (seed, epoch) of the visit."""


@dataclass(frozen=True)
class Batch:
    """The input of one training or decoding step.

    texts: the transcript of each utterance, or None;
    waveforms (B, N): float32 in [-1, 1], zero-padded; int16 between a reader and a GPU, to halve the transfer, until
    `to` converts them to float32 on the GPU;
    samples (B,): the lengths of the waveforms;
    labels (B, U): pieces of the text or of one of its alternatives, terminated and padded with EOS;
    label_lengths (B,): lengths including the first EOS; 0 for an utterance without a transcript;
    bad: the cuts that could not be read, with the reason.
    """

    ids: list[str]
    texts: list[str | None]
    waveforms: Tensor
    samples: Tensor
    labels: Tensor
    label_lengths: Tensor
    bad: list[tuple[str, str]] = field(default_factory=list)

    @staticmethod
    def of_audio(waveforms: Tensor, samples: Tensor) -> "Batch":
        """A batch of speech without names and transcripts: waveforms (B, N), samples (B,)."""
        count = len(waveforms)
        nothing = torch.zeros_like(samples)
        return Batch([""] * count, [None] * count, waveforms, samples, nothing[:, None], nothing)

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
        """Return the batch with its tensors on a device, the waveforms as float32."""
        moved = self._each(lambda tensor: tensor.to(device, non_blocking=True))
        if moved.waveforms.is_floating_point():
            return moved
        return replace(moved, waveforms=moved.waveforms.float().mul_(1 / FULL_SCALE))

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
        )


def plan_batches(durations: np.ndarray, size: BatchSettings, seed: int, epoch: int) -> list[np.ndarray]:
    """Plan one epoch as batches of indices: similar durations within a batch, batches shuffled.

    Utterances are sorted by a slightly jittered duration and split into batches of at most `size.seconds` (including
    padding) or of `size.utterances`; then the batches are shuffled.
    """
    random = np.random.default_rng([seed, epoch])
    order = np.argsort(durations * random.uniform(0.9, 1.1, len(durations)), kind="stable")
    if size.utterances > 0:
        starts = list(range(0, len(order), size.utterances))
    else:
        starts = cut_by_seconds(durations[order], size.seconds)
    batches = np.split(order, starts[1:])
    return [batches[i] for i in random.permutation(len(batches))]


def cut_by_seconds(durations: np.ndarray, seconds: float) -> list[int]:
    """Return where batches begin, so that each has at most `seconds` including padding, or a single utterance."""
    starts, longest = [0], 0.0
    for position, duration in enumerate(durations.tolist()):
        longest = max(longest, duration)
        if position > starts[-1] and longest * (position - starts[-1] + 1) > seconds:
            starts.append(position)
            longest = duration
    return starts


class Corpus:
    """Cuts for training or decoding, with their durations; cuts that are too long or too short are left out."""

    def __init__(self, cuts: "Sequence[Cut]", audio: AudioSettings, name: str = "corpus") -> None:
        fits = [cut for cut in cuts if audio.shortest <= cut.duration <= audio.longest]
        self.skipped = len(cuts) - len(fits)
        if self.skipped:
            say(
                f"{name}: {self.skipped} of {len(cuts)} utterances skipped: shorter than {audio.shortest:g} s"
                f" (audio.shortest) or longer than {audio.longest:g} s (audio.longest)"
            )
        if not fits:
            raise UserError(f"{name} holds no utterance between {audio.shortest:g} and {audio.longest:g} s")
        self.name, self.cuts, self.audio = name, fits, audio
        self.durations = np.array([cut.duration for cut in fits])
        self.kept: list[Batch] = []  # batches that stay in memory, for sets that are decoded again and again

    @staticmethod
    def load(path: Path, audio: AudioSettings, transcribed: bool = False) -> "Corpus":
        """Read a manifest of cuts; `transcribed` leaves out cuts without text and requires at least one with text."""
        cuts = read_cuts(path)
        if transcribed:
            with_text = [cut for cut in cuts if cut_text(cut)]
            if not with_text:
                raise UserError(f"{path} holds no transcribed utterance: give cuts with text")
            if len(with_text) < len(cuts):
                say(
                    f"{path}: {len(cuts) - len(with_text)} of {len(cuts)} utterances have no transcript: skipped"
                )
            cuts = with_text
        return Corpus(cuts, audio, str(path))

    def __len__(self) -> int:
        return len(self.cuts)

    @property
    def longest(self) -> float:
        """Duration of the longest utterance in seconds."""
        return float(self.durations.max())

    @property
    def hours(self) -> float:
        """Total duration in hours."""
        return float(self.durations.sum()) / 3600


def read_cuts(path: Path) -> "list[Cut]":
    """Read all cuts of a manifest; raise `UserError` with the line of a cut whose audio is not in files."""
    from lhotse import MonoCut

    from priormatch.data.cuts import Refused, read_items

    if not path.is_file():
        raise UserError(f"no cuts at {path}: make them with `priormatch prepare`")
    if ".jsonl" not in path.suffixes:
        raise UserError(f"{path} is not a manifest of cuts: give a .jsonl or .jsonl.gz")
    cuts: list[Cut] = []
    try:
        for number, item in read_items(path):
            if isinstance(item, Refused):
                raise UserError(f"line {number}: {item.id} is not used: {item}")
            if not isinstance(item, MonoCut):
                raise UserError(f"line {number} is a {type(item).__name__}: prepare it first")
            cuts.append(item)
    except UserError as error:
        what = str(error).removeprefix(f"{path}").removeprefix(",").lstrip()
        raise UserError(f"{path} is not a usable manifest of cuts: {what}") from error
    if not cuts:
        raise UserError(f"{path} holds no cuts: prepare it again")
    return cuts


def cut_text(cut: "Cut") -> str | None:
    """Return the transcript of a cut, or None."""
    texts = [each.text for each in cut.supervisions if each.text]
    return " ".join(texts) if texts else None


def cut_texts(cut: "Cut") -> list[str]:
    """List the target texts of a cut: its transcript, then the alternatives; empty without a transcript."""
    text = cut_text(cut)
    others = [each.custom.get(ALTERNATIVES, []) for each in cut.supervisions if each.custom]
    return [] if text is None else [text, *chain.from_iterable(others)]


def one_of(texts: list[str], random: np.random.Generator) -> str:
    """Draw one of the texts uniformly, "" if there are none; with fewer than two texts, `random` is not used."""
    return texts[random.integers(len(texts))] if len(texts) > 1 else "".join(texts)


class UtteranceReader:
    """Reads lists of (index, visit seed) into a `Batch`; runs inside the loader's worker processes.

    Each visit draws its own speed, its own text if a cut has several, and its own segmentation into pieces.
    """

    def __init__(
        self, corpus: Corpus, tokenizer: Tokenizer, piece_sampling: float = 0.0, speeds: Sequence[float] = ()
    ) -> None:
        self.corpus, self.tokenizer = corpus, tokenizer
        self.piece_sampling, self.speeds = piece_sampling, [1.0, *speeds]

    def __getitems__(self, requests: Request) -> Batch:
        """Read one batch; the loader asks for all its items at once."""
        ids, texts, waves, labels, bad = [], [], [], [], []
        for index, visit in requests:
            cut = self.corpus.cuts[index]
            random = np.random.default_rng([*visit, index])
            try:
                waves.append(read_samples(cut, self.speeds[random.integers(len(self.speeds))]))
            except Exception as error:  # a damaged file raises whatever its decoder does
                bad.append((cut.id, why_unreadable(cut, error)))
                continue
            choices, frames = cut_texts(cut), len(waves[-1]) // FRAME + 1
            longest = max(map(len, choices), default=0)
            classes = []
            if longest <= LONGEST_PIECE * frames:  # else it is too long in any segmentation
                classes = self.tokenizer.encode(one_of(choices, random), self.piece_sampling, random)
            if longest > LONGEST_PIECE * frames or len(classes) > frames:
                seconds = len(waves.pop()) / SAMPLE_RATE
                bad.append(
                    (cut.id, f"its transcript of {longest:,} characters is too long for {seconds:.2f} s")
                )
                continue
            ids.append(cut.id)
            texts.append(choices[0] if choices else None)
            labels.append(classes)
        return collate(ids, texts, waves, labels, self.tokenizer.eos, bad)


def collate(
    ids: list[str],
    texts: list[str | None],
    waves: list[np.ndarray],
    labels: list[list[int]],
    eos: int,
    bad: list[tuple[str, str]],
) -> Batch:
    """Pad waveforms with zeros and labels with EOS; the waveforms stay int16 if all of them are."""
    samples = torch.tensor([len(wave) for wave in waves], dtype=torch.long)
    small = all(wave.dtype == np.int16 for wave in waves)
    longest = max(map(len, waves), default=0)
    waveforms = np.zeros((len(waves), longest), np.int16 if small else np.float32)
    for row, wave in zip(waveforms, waves, strict=True):
        row[: len(wave)] = wave if small else as_float(wave)
    lengths = torch.tensor(
        [len(each) + 1 if text is not None else 0 for each, text in zip(labels, texts, strict=True)],
        dtype=torch.long,
    )
    targets = torch.full((len(labels), max((len(each) for each in labels), default=0) + 1), eos)
    for target, each in zip(targets, labels, strict=True):
        target[: len(each)] = torch.tensor(each, dtype=torch.long)
    return Batch(ids, texts, torch.from_numpy(waveforms), samples, targets, lengths, bad)


class BatchStream:
    """An endless stream of batches that can start anywhere.

    `position` counts the batches taken; a stream created with the same `position` resumes exactly here.
    """

    def __init__(
        self,
        reader: UtteranceReader,
        size: BatchSettings,
        seed: int,
        position: int = 0,
        workers: int = 0,
    ) -> None:
        self.reader, self.size, self.seed, self.workers = reader, size, seed, workers
        self.position = position
        self.bad: dict[str, str] = {}
        self.seen = 0
        self._batches: Generator[Batch, None, None] | None = None

    def close(self) -> None:
        """Stop the workers now: garbage collection would wait seconds for each; `take` can still be called."""
        if self._batches is not None:
            self._batches.close()
            self._batches = None

    def take(self) -> Batch:
        """Return the next batch with at least one readable utterance."""
        while True:
            if self._batches is None:
                durations = self.reader.corpus.durations
                to_come = _endless_requests(durations, self.size, self.seed, self.position)
                self._batches = _loader(self.reader, to_come, self.workers)
            batch = next(self._batches)
            self.position += 1
            self.seen += len(batch) + len(batch.bad)
            self.count_bad(batch)
            if len(batch):
                return batch

    def count_bad(self, batch: Batch) -> None:
        """Report each unreadable cut once, and raise `UserError` if there are too many."""
        corpus = self.reader.corpus
        for cut, reason in batch.bad:
            if cut not in self.bad:
                self.bad[cut] = reason
                say(f"{corpus.name}: {cut} cannot be read and is skipped ({reason})")
        seen, most = min(self.seen, len(corpus)), corpus.audio.max_bad_share
        many = len(self.bad) > max(1, most * seen) and seen >= min(100, len(corpus))
        if many or len(self.bad) == len(corpus):
            raise UserError(
                f"{corpus.name}: {len(self.bad)} of {seen} utterances"
                f" cannot be read, the last because {next(reversed(self.bad.values()))}:"
                f" repair them, or raise audio.max_bad_share (now {most:g})"
            )


# Not methods of the stream: a reference cycle would keep the loader's workers from ending in time.
def _endless_requests(durations: np.ndarray, size: BatchSettings, seed: int, skip: int) -> Iterator[Request]:
    """Yield the batches of all epochs, without the first `skip`."""
    for epoch in count():
        plan = plan_batches(durations, size, seed, epoch)
        yield from _requests_of(plan[skip:], seed, epoch)
        skip = max(0, skip - len(plan))


def _requests_of(plan: Sequence[np.ndarray], seed: int, epoch: int) -> Iterator[Request]:
    """Yield the batches of one epoch."""
    for batch in plan:
        yield [(int(index), (seed, epoch)) for index in batch]


def once(reader: UtteranceReader, seconds: float, workers: int = 0) -> Iterator[Batch]:
    """Yield every utterance once, in batches of about `seconds`, the longest first."""
    order = np.argsort(-reader.corpus.durations, kind="stable")
    starts = cut_by_seconds(reader.corpus.durations[order], seconds)
    yield from _loader(reader, _requests_of(np.split(order, starts[1:]), 0, 0), workers)


def _loader(
    reader: UtteranceReader, requests: Iterator[Request], workers: int
) -> Generator[Batch, None, None]:
    """Read the requested batches in order; with workers, ahead of their use."""
    if workers == 0:
        yield from (reader.__getitems__(request).to(HOST) for request in requests)
        return
    gpu = torch.cuda.is_available()
    start_method = "fork" if sys.platform == "linux" else None  # even in a process that was spawned
    loader: DataLoader[Batch] = DataLoader(
        reader,  # type: ignore[arg-type]
        batch_sampler=_Requests(requests),
        num_workers=workers,
        collate_fn=_as_it_is,
        multiprocessing_context=start_method,
        pin_memory=gpu,
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
        yield from batches if gpu else (batch.to(HOST) for batch in batches)


class _Requests:
    """A batch sampler over requests, which can be iterated once."""

    def __init__(self, requests: Iterator[Request]) -> None:
        self.requests = requests

    def __iter__(self) -> Iterator[Request]:
        return self.requests


def _as_it_is(batch: Any) -> Any:
    return batch
