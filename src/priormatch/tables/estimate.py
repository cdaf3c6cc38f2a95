"""What a table would take: the data it needs, the updates it makes, and their time by a short probe."""

import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import soundfile
import torch
from rich.console import Console
from rich.table import Table

from priormatch.config import BatchSettings, Settings, changed, load_settings
from priormatch.data import SAMPLE_RATE
from priormatch.data.audio import open_recording
from priormatch.data.batches import Corpus
from priormatch.data.manifest import utterance
from priormatch.data.tokenizer import Tokenizer
from priormatch.device import find_device
from priormatch.matching.length_filter import keep_all
from priormatch.matching.prior import Prior
from priormatch.matching.proposal import Proposal
from priormatch.matching.targets import BeamTargets
from priormatch.models.recognizer import Recognizer
from priormatch.progress import say
from priormatch.stopwatch import Stopwatch
from priormatch.tables.paper import TITLES
from priormatch.tables.request import Request
from priormatch.tables.study import LONGER, wanted_files
from priormatch.tables.systems import System
from priormatch.training.loop import Task, make_update
from priormatch.training.matching import Matching
from priormatch.training.optimizer import make_optimizer
from priormatch.training.supervised import Supervised

SECONDS, PIECES = 12.3, 43  # of an utterance of LibriSpeech's training sets
WARM_UP, COUNTED = 6, 10  # updates


def tell(request: Request) -> None:
    """What a table would take, without doing it: data, updates, and hours by a short probe on this machine."""
    settings = load_settings(request.recipe, list(request.overrides))
    if request.scale != "demo":
        folder = request.data
        wanted = wanted_files(request.scale)
        missing = [name for name in wanted if folder is None or not (folder / name).is_file()]
        say(
            f"it needs {', '.join(wanted)} in --data {folder or 'FOLDER'}; missing: {', '.join(missing) or 'nothing'}"
        )
    systems = dict.fromkeys(system for _, system in request.chosen() if system is not None)
    speed = probe(settings)
    say(
        f"an update takes {speed.supervised:.3f} s of supervised training and {speed.matched:.3f} s of matching on"
        f" {find_device(settings.device)}"
    )
    shown = Table(
        title=f"{TITLES[request.table]}: for each of {len(request.seeds)} seeds", title_justify="left"
    )
    for name in ("system", "supervised updates", "matching updates", "hours"):
        shown.add_column(name, overflow="fold")
    rows = {"shared: supervised": (settings.training.updates, 0)}
    rows |= {described(system): updates_of(system, settings, request.scale) for system in systems}
    hours = {name: (s * speed.supervised + m * speed.matched) / 3600 for name, (s, m) in rows.items()}
    for name, (supervised, matching) in rows.items():
        shown.add_row(name, f"{supervised:,}", f"{matching:,}", f"{hours[name]:.2f}")
    Console(width=None if sys.stdout.isatty() else 160).print(shown)
    say(
        f"{sum(hours.values()) * len(request.seeds):.2f} hours in all, the prior ({settings.prior.updates:,} updates),"
        " decoding and validation not counted"
    )


class Numbers:
    """Stands for a tokenizer: a text is the numbers of its classes."""

    def __init__(self, classes: int) -> None:
        self.classes, self.eos = classes, classes - 1

    def encode(self, text: str, *_: object) -> list[int]:
        """The classes of a text."""
        return [int(word) for word in text.split()]

    def decode(self, classes: Iterable[int]) -> str:
        """The text of classes."""
        return " ".join(map(str, classes))


@dataclass(frozen=True)
class Speed:
    """Seconds of an update of supervised training and of matching."""

    supervised: float
    matched: float


def described(system: System) -> str:
    """A system in words."""
    changes = ", ".join(each.removeprefix("matching.") for each in system.settings)
    words = [system.kind, system.unlabelled, *system.labels, system.labeller, changes]
    scale = f"loss x {system.loss_scale:g}" if system.loss_scale != 1 else ""
    return " ".join(word for word in (*words, scale) if word)


def updates_of(system: System, settings: Settings, scale: str) -> tuple[int, int]:
    """Updates of supervised training and of matching that a system takes beyond the shared models."""
    longer = LONGER.get(scale, {}).get(system.unlabelled, []) if system.main else []
    updates = changed(settings, [*longer, *system.settings]).matching.updates
    if system.kind == "topline":
        return settings.training.updates + updates, 0
    return (updates, 0) if system.kind in ("supervised", "pseudo_labels") else (0, updates)


def probe(settings: Settings) -> Speed:
    """Train on noise for a few updates with these settings, on the device they name."""
    device = find_device(settings.device)
    settings = replace(
        settings,
        model=replace(settings.model, longest_output=PIECES),
        matching=replace(settings.matching, selected=1.0),  # the noise is one batch
    )
    tokenizer = cast(Tokenizer, Numbers(max(settings.tokenizer.pieces - 2, 8)))
    with tempfile.TemporaryDirectory() as folder:
        corpus = noise(
            Path(folder), largest(settings.training.batch, settings.matching.batch), tokenizer, settings
        )
        model = Recognizer(settings.model, tokenizer).to(device)
        with torch.no_grad():
            model.decoder.output.bias[tokenizer.eos] = -30.0  # no hypothesis ends by itself
        judge = Prior(settings.prior.model, tokenizer)
        judge.lm.fuse()
        proposal = Proposal(model, 0.0)
        exponents = settings.matching.prior_exponent, settings.matching.proposal_exponent
        beam_size = settings.matching.beam_size
        targets = BeamTargets(proposal, judge.to(device), beam_size, keep_all, {}, exponents=exponents)
        training = settings.training
        supervised = Supervised(model, corpus, {}, training, training.batch)
        matched = Matching(model, corpus, corpus, {}, targets, proposal, training, settings.matching)
        return Speed(seconds_an_update(supervised, settings), seconds_an_update(matched, settings))


def largest(*sizes: BatchSettings) -> int:
    """The utterances of the largest batch."""
    return max(size.utterances or round(size.seconds / SECONDS) for size in sizes)


def noise(folder: Path, utterances: int, tokenizer: Tokenizer, settings: Settings) -> Corpus:
    """So many utterances of noise, with random classes as their texts."""
    random = np.random.default_rng(0)
    file = folder / "noise.wav"
    soundfile.write(file, random.normal(0, 0.05, round(SECONDS * SAMPLE_RATE)), SAMPLE_RATE)
    cuts = []
    for number in range(utterances):
        text = " ".join(map(str, random.integers(0, tokenizer.eos, PIECES)))
        cuts.append(utterance(str(number), open_recording(file, str(number), False), text, None))
    return Corpus(cuts, settings.audio, "noise")


def seconds_an_update(task: Task, settings: Settings) -> float:
    """The mean time of an update once everything has been met before; of matching, over its mixing."""
    device = next(task.model.parameters()).device
    optimizer, watch = (
        make_optimizer(list(task.model.parameters()), settings.matching.optimizer),
        Stopwatch(device),
    )
    first = settings.training.window_updates
    for update in range(WARM_UP + COUNTED):
        if update == WARM_UP:
            _wait(device)
            began = time.perf_counter()
        make_update(task, optimizer, settings.matching.optimizer.clip, first + update, watch)
    _wait(device)
    return (time.perf_counter() - began) / COUNTED


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
