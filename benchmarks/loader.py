"""Reading audio: python benchmarks/loader.py [--hours 1] [--workers 16] [--json]

Makes a corpus of noise in a temporary folder, as FLAC and packed by `priormatch pack`, and tells how many seconds of
audio a second come out of each in batches of 600 s, beside the same utterances in memory, which are only padded. On a
GPU it also trains a recognizer of 17.6 M parameters from each, and from batches that lie in memory.

The peer is Lhotse: `load_audio` of each cut and its own collation, in the same batches and the same worker processes.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from lhotse import CutSet, MonoCut
from lhotse.dataset.collation import collate_audio
from measure import Table, describe, versions

from priormatch.config import AudioSettings, BatchSettings, ModelSettings, OptimizerSettings, TrainingSettings
from priormatch.data import SAMPLE_RATE
from priormatch.data.audio import open_recording
from priormatch.data.batches import Batch, BatchStream, UtteranceReader, collate, stack
from priormatch.data.corpus import Corpus, read_cuts
from priormatch.data.manifest import map_in_threads, utterance
from priormatch.data.pack import pack
from priormatch.data.plan import Request
from priormatch.data.waveforms import one_thread, read_samples
from priormatch.device import find_device
from priormatch.errors import UserError
from priormatch.progress import Meter, say
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.stopwatch import Stopwatch
from priormatch.training.loop import make_update
from priormatch.training.optimizer import make_optimizer
from priormatch.training.supervised_step import Supervised

FLAC, PACKED, PEER, MEMORY = "FLAC", "packed", "lhotse, FLAC", "memory"
MODEL = ModelSettings(channels=[10, 12, 12], blocks=[2, 2, 2])  # 17.65 M with 5,001 classes
PIECES_A_SECOND = 3.6
SHORTEST, LONGEST = 2.0, 16.0  # seconds
TURNS = 3


class Numbers:
    """Stands for a tokenizer of 5,001 classes; its text is the numbers of the classes."""

    eos, classes = 5000, 5001

    def encode(self, text: str, sampling: float = 0.0, random: object = None) -> list[int]:
        """The classes of a text."""
        return [int(word) for word in text.split()]


class InMemory(UtteranceReader):
    """Reads utterances that have been read before: what is left is padding them."""

    def __init__(self, corpus: Corpus, tokenizer: Any) -> None:
        super().__init__(corpus, tokenizer)
        self.samples = [read_samples(cut).copy() for cut in corpus.cuts]

    def __getitems__(self, request: Request) -> Batch:
        """One batch."""
        waves = [self.samples[visit.utterance] for visit in request.visits]
        count, lengths = len(waves), [len(wave) for wave in waves]
        batch = collate([""] * count, [""] * count, lengths, [[]] * count, self.tokenizer.eos, [])
        return replace(batch, waveforms=stack(waves))


class Peer(UtteranceReader):
    """Reads with Lhotse, as its recipes do."""

    def __getitems__(self, request: Request) -> Batch:
        """One batch."""
        cuts = CutSet.from_cuts(self.corpus.cuts[visit.utterance] for visit in request.visits)
        waveforms, samples = collate_audio(cuts)
        nothing = torch.zeros(len(samples), 0, dtype=torch.long)
        ids = [cut.id for cut in cuts]
        return Batch(ids, [None] * len(ids), waveforms, samples.long(), nothing, torch.zeros_like(samples))


class FromMemory:
    """A stream of batches that lie ready, again and again."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self.batches, self.position = cycle(batches), 0

    def take(self) -> Batch:
        """The next one."""
        return next(self.batches)


def main() -> None:
    """Measure, and print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--hours", type=float, default=1.0, help="the size of the corpus")
    parser.add_argument("--workers", type=int, default=min(16, os.cpu_count() or 1))
    parser.add_argument("--seconds", type=float, default=600.0, help="of audio in a batch")
    parser.add_argument("--batches", type=int, default=20, help="to read or to train on, each time")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    device, size = find_device(options.device), BatchSettings(seconds=options.seconds)
    with tempfile.TemporaryDirectory() as folder:
        corpora = make_corpora(Path(folder), options.hours)
        rows = reading(corpora, size, options.workers, options.batches)
        trained = (
            training(corpora, size, options.workers, options.batches, device) if device.type == "cuda" else {}
        )
    ours, peer = (rows[f"{name}, {options.workers} workers"] for name in (FLAC, PEER))
    result = {
        "ours_ms": 1000 * options.seconds / ours,
        "peer_ms": 1000 * options.seconds / peer,
        "ratio": ours / peer,
        "peer": "lhotse: load_audio of each cut and collate_audio, FLAC",
        "reading_seconds_a_second": rows,
        "training_seconds_a_second": trained,
        "training_shares": {name: speed / trained[MEMORY] for name, speed in trained.items()},
        "device": describe(device),
        "cores": os.cpu_count(),
        "sizes": {"hours": options.hours, "workers": options.workers, "seconds": options.seconds},
        "versions": versions("torch", "lhotse", "soundfile", "numpy"),
    }
    if options.json:
        print(json.dumps(result))
        return
    table = Table(f"Batches of {options.seconds:g} s on {describe(device)}, {os.cpu_count()} cores")
    for name, speed in rows.items():
        table.add(f"read: {name}", 1000 * options.seconds / speed, f"{speed:,.0f} s/s, {speed / ours:.2f} x")
    for name, speed in trained.items():
        share = f"{speed:,.0f} s/s, {speed / trained[MEMORY]:.0%} of memory"
        table.add(f"train: {name}", 1000 * options.seconds / speed, share)
    table.show()


def make_corpora(folder: Path, hours: float) -> dict[str, Corpus]:
    """Utterances of 2 to 16 s of noise that FLAC halves, as it does speech: files of their own, and packed."""
    random = np.random.default_rng(0)
    lengths: list[int] = []
    while sum(lengths) < hours * 3600 * SAMPLE_RATE:
        lengths.append(int(random.uniform(SHORTEST, LONGEST) * SAMPLE_RATE))

    def write(number: int) -> MonoCut:
        random = np.random.default_rng(number)
        path, length = folder / f"{number}.flac", lengths[number]
        smooth = np.convolve(random.normal(0, 1, length), np.hanning(12), "same")
        loudness = 0.002 + 0.03 * np.abs(np.sin(np.arange(length) * (2 * np.pi * 2 / SAMPLE_RATE)))
        soundfile.write(path, smooth * loudness, SAMPLE_RATE)
        classes = random.integers(0, Numbers.eos, int(length / SAMPLE_RATE * PIECES_A_SECOND))
        return utterance(
            str(number), open_recording(path, str(number), False), " ".join(map(str, classes)), None
        )

    say(f"making {hours:g} hours of noise")
    cuts = list(map_in_threads(write, range(len(lengths))))
    packed = read_cuts(pack(cuts, folder / "packed", "noise"))
    audio = AudioSettings(gpu_share=0.0)  # else a GPU's memory would hold them
    return {FLAC: Corpus(cuts, audio, FLAC), PACKED: Corpus(packed, audio, PACKED)}


def reading(corpora: dict[str, Corpus], size: BatchSettings, workers: int, batches: int) -> dict[str, float]:
    """Seconds of audio that are read a second, each way: medians of several turns."""
    tokenizer: Any = Numbers()
    ways: dict[str, tuple[UtteranceReader, int]] = {MEMORY: (InMemory(corpora[PACKED], tokenizer), 0)}
    for count in sorted({0, workers}):
        for name, corpus in corpora.items():
            ways[f"{name}, {count} workers"] = UtteranceReader(corpus, tokenizer), count
        ways[f"{PEER}, {count} workers"] = Peer(corpora[FLAC], tokenizer), count
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    with one_thread(), Meter("reading", TURNS * len(ways)) as meter:  # as a worker has one
        for _ in range(TURNS):
            for name, (reader, count) in ways.items():
                speeds[name].append(reading_speed(BatchStream(reader, size, 0, workers=count), batches))
                meter.advance(note=name)
    return {name: statistics.median(each) for name, each in speeds.items()}


def reading_speed(stream: BatchStream, batches: int) -> float:
    """Seconds of audio a second once all that was read ahead has been taken."""
    for _ in range(2 + 2 * stream.workers):
        stream.take()
    begun = time.perf_counter()
    seconds = sum(stream.take()[0].seconds for _ in range(max(batches, 4 * stream.workers)))
    return seconds / (time.perf_counter() - begun)


def training(
    corpora: dict[str, Corpus], size: BatchSettings, workers: int, batches: int, device: torch.device
) -> dict[str, float]:
    """Seconds of audio a second that a recognizer is trained on, from memory, from FLAC and from packed audio."""
    tokenizer: Any = Numbers()
    settings = TrainingSettings(optimizer=OptimizerSettings(kind="adamw", learning_rate=1e-4))
    torch.manual_seed(0)
    task = Supervised(SpeechRecognizer(MODEL, tokenizer).to(device), corpora[PACKED], {}, settings, size)
    trainer = Trainer(task, settings)
    before, counted = 2 + 2 * workers, max(batches, 4 * workers)

    def stream(name: str) -> BatchStream:
        return BatchStream(UtteranceReader(corpora[name], tokenizer), size, 0, workers=workers)

    kept = take(stream(PACKED), before + counted)
    task.stream = FromMemory(kept)  # type: ignore[assignment]
    for _ in range(2):
        trainer.speed(len(kept))  # each shape of a batch has now been met
    speeds = {}
    for name in (MEMORY, FLAC, PACKED, MEMORY):
        task.stream = FromMemory(kept) if name == MEMORY else stream(name)  # type: ignore[assignment]
        trainer.speed(before)
        speeds[name] = max(trainer.speed(counted), speeds.get(name, 0.0))
    return speeds


def take(stream: BatchStream, count: int) -> list[Batch]:
    """So many batches; the stream's workers then end."""
    return [stream.take()[0] for _ in range(count)]


class Trainer:
    """Makes the updates of `priormatch train`, without its reports and checkpoints."""

    def __init__(self, task: Supervised, settings: TrainingSettings) -> None:
        self.task, self.optimizer = task, make_optimizer(task.model.parameters(), settings.optimizer)
        say(f"training {sum(each.numel() for each in task.model.parameters()) / 1e6:.1f} M parameters")

    def speed(self, updates: int) -> float:
        """Seconds of audio a second over so many updates."""
        watch = Stopwatch(self.task.model.device)
        seconds = 0.0
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for update in range(updates):
            _, _, figures = make_update(self.task, self.optimizer, 1.0, update, watch)
            seconds += float(figures["audio_seconds"])
        torch.cuda.synchronize()
        return seconds / (time.perf_counter() - begun)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(str(error))
