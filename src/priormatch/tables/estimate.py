"""What tables would take: the data they need, the updates they make, and their time by a short probe."""

import itertools
import math
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

import numpy as np
import soundfile
import torch
from rich.console import Console
from rich.table import Table

from priormatch.config import BatchSettings, Settings, to_yaml
from priormatch.data import SAMPLE_RATE
from priormatch.data.audio import open_recording
from priormatch.data.batches import Corpus
from priormatch.data.manifest import utterance
from priormatch.data.tokenizer import Tokenizer
from priormatch.device import find_device
from priormatch.matching.length_filter import keep_all
from priormatch.matching.mixing import is_paired, paired_share
from priormatch.matching.prior import Prior
from priormatch.matching.proposal import Proposal
from priormatch.matching.targets import BeamTargets, given_labels
from priormatch.models.recognizer import Recognizer
from priormatch.progress import say, track
from priormatch.search.fusion import fusion_of_hypotheses
from priormatch.stopwatch import Stopwatch
from priormatch.tables.corpora import ENSEMBLE, light_files, wanted_files
from priormatch.tables.hypotheses import SHOWN
from priormatch.tables.paper import BEAMS, TITLES
from priormatch.tables.request import Request
from priormatch.tables.study import Plan
from priormatch.tables.systems import System
from priormatch.training.loop import Task, make_update
from priormatch.training.matching import Matching, share_of
from priormatch.training.optimizer import make_optimizer
from priormatch.training.supervised import Supervised

SECONDS, PIECES = 12.3, 43  # of an utterance of LibriSpeech's training sets
WARM_UP, COUNTED = 6, 10  # updates, or fewer where they are slow
ENOUGH = 2.0  # seconds of either on a CPU; a GPU first compiles and records
FEW = 6  # utterances that tell enough of a batch on a CPU, where a batch takes as long as its parts

Step = Literal["supervised", "further", "labels", "matching"]
"""An update from scratch, one with matching's batch, one on fixed labels as well, and one of matching."""


@dataclass(frozen=True)
class Work:
    """Updates of one kind with some settings."""

    name: str
    step: Step
    updates: int
    settings: Settings


def tell(request: Request) -> None:
    """What tables would take, without doing it: data, updates, and hours by a short probe on this machine."""
    plan = request.plan(request.seeds[0])
    if request.scale != "demo":
        tell_files(request)
    works, device = work_of(request, plan), find_device(plan.settings.device)
    say(f"measuring what an update takes on {device}, on noise ...")
    shown = Table(
        title=f"{', '.join(TITLES[each] for each in request.tables)}: for each of {len(request.seeds)} seeds",
        title_justify="left",
    )
    for name in ("training", "updates", "seconds an update", "hours"):
        shown.add_column(name, overflow="fold")
    hours, measured = 0.0, Probe()
    for work in track(works, "trainings measured"):
        seconds = measured.seconds(work)
        hours += (its := work.updates * seconds / 3600)
        shown.add_row(work.name, f"{work.updates:,}", f"{seconds:.3f}", f"{its:.2f}")
    Console(width=None if sys.stdout.isatty() else 160).print(shown)
    say(
        f"{hours * len(request.seeds):.2f} hours in all on {device}, one after another;"
        f" priors ({plan.settings.prior.updates:,} updates), tuning, decoding and validation not counted"
    )


def tell_files(request: Request) -> None:
    """What the folder of data must hold, and what it may hold besides."""
    folder = request.data

    def missing(names: list[str]) -> str:
        lacking = [name for name in names if folder is None or not (folder / name).is_file()]
        return f"missing: {', '.join(lacking) or 'nothing'}"

    wanted, more = wanted_files(request.scale), light_files(request.scale)
    say(f"it needs {', '.join(wanted)} in --data {folder or 'FOLDER'}; {missing(wanted)}")
    if more:
        say(f"for the rows of 60,000 hours alone it needs {', '.join(more)} there too; {missing(more)}")


def work_of(request: Request, plan: Plan) -> list[Work]:
    """The trainings of all tables, each once: the recognisers that systems share, and the systems."""
    systems = {
        plan.name_of(line.system): line.system
        for table in request.tables
        for line in request.lines(table)
        if line.system is not None
    }
    if BEAMS in request.tables:
        systems.setdefault(plan.name_of(SHOWN), SHOWN)
    shared = {"shared: supervised": plan.settings}
    for system in systems.values():
        settings = plan.settings_of(system)
        if settings.model != plan.settings.model:
            shared["shared: supervised, the larger model"] = settings
        if system.ensemble:
            for number, member in enumerate(plan.members(ENSEMBLE[request.scale])[1:], 2):
                shared[f"shared: supervised, model {number} of an ensemble"] = member
    first = [Work(name, "supervised", each.training.updates, each) for name, each in shared.items()]
    return [*first, *(of_system(name, system, plan) for name, system in systems.items())]


def of_system(name: str, system: System, plan: Plan) -> Work:
    """What a system takes beyond the models that it shares."""
    settings = plan.settings_of(system)
    updates = settings.matching.updates
    match system.kind:
        case "topline":
            return Work(name, "supervised", settings.training.updates + updates, settings)
        case "supervised":
            return Work(name, "further", updates, settings)
        case "pseudo_labels":
            return Work(name, "labels", updates, settings)
        case "matched":
            return Work(name, "matching", updates, settings)


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


class Probe:
    """Measures how long updates take, each kind once: on noise, with the device that the settings name."""

    def __init__(self) -> None:
        self.known: dict[str, float] = {}

    def seconds(self, work: Work) -> float:
        """The seconds of an update of some work."""
        settings = work.settings
        key = [work.step, to_yaml(settings.model), str(settings.training.batch)]
        if work.step != "supervised":
            key += [str(settings.matching.batch), str(settings.matching.mixing)]
        if work.step == "matching":
            key += [str(settings.matching.beam_size), str(settings.matching.prior_exponent != 0)]
            key += [settings.matching.hypotheses, str(settings.fusion.beam_size)]
        name = "\n".join(key)
        if name not in self.known:
            self.known[name] = probe(work.step, settings)
        return self.known[name]


def probe(step: Step, settings: Settings) -> float:
    """Train on noise for a few updates with these settings; the seconds of an update."""
    device = find_device(settings.device)
    utterances = largest(settings.training.batch, settings.matching.batch)
    parts = max(utterances // FEW, 1) if device.type == "cpu" else 1
    training = replace(settings.training, batch=share_of(settings.training.batch, 1 / parts))
    matching = replace(settings.matching, batch=share_of(settings.matching.batch, 1 / parts), selected=1.0)
    settings = replace(
        settings,
        model=replace(settings.model, longest_output=PIECES),
        audio=replace(settings.audio, workers=0 if device.type == "cpu" else settings.audio.workers),
        training=training,
        matching=matching,
    )
    return parts * probe_exactly(step, settings, device)


def probe_exactly(step: Step, settings: Settings, device: torch.device) -> float:
    """The same with the batches of the settings."""
    training, matching = settings.training, settings.matching
    tokenizer = cast(Tokenizer, Numbers(max(settings.tokenizer.pieces - 2, 8)))
    with tempfile.TemporaryDirectory() as folder:
        corpus = noise(Path(folder), largest(training.batch, matching.batch), tokenizer, settings)
        model = Recognizer(settings.model, tokenizer).to(device)
        if step in ("supervised", "further"):
            size = training.batch if step == "supervised" else matching.batch
            return seconds_an_update(Supervised(model, corpus, {}, training, size), settings)
        if step == "labels":
            task = Matching(model, corpus, corpus, {}, given_labels, None, training, matching)
            return seconds_an_update(task, settings)
        with torch.no_grad():
            model.decoder.output.bias[tokenizer.eos] = -30.0  # no hypothesis ends by itself
        judge = Prior(settings.prior.model, tokenizer)
        judge.lm.fuse()
        proposal = Proposal(model, 0.0)
        exponents = matching.prior_exponent, matching.proposal_exponent
        fusion = fusion_of_hypotheses(settings)
        targets = BeamTargets(
            proposal, judge.to(device), matching.beam_size, keep_all, {}, exponents=exponents, fusion=fusion
        )
        task = Matching(model, corpus, corpus, {}, targets, proposal, training, matching)
        return seconds_an_update(task, settings)


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
    parameters, clip = list(task.model.parameters()), settings.matching.optimizer.clip
    optimizer, watch = make_optimizer(parameters, settings.matching.optimizer), Stopwatch(device)

    enough = ENOUGH if device.type == "cpu" else math.inf

    def mean_seconds(update: int, most: int) -> float:
        """Make one update over and over."""
        made, began = 0, time.perf_counter()
        while made < most and (not made or time.perf_counter() - began < enough):
            make_update(task, optimizer, clip, update, watch)
            made += 1
        _wait(device)
        return (time.perf_counter() - began) / made

    mean = 0.0
    with closing(task):
        for share, update in kinds_of(task, settings):
            mean_seconds(update, WARM_UP)
            mean += share * mean_seconds(update, COUNTED)
    return mean


def kinds_of(task: Task, settings: Settings) -> list[tuple[float, int]]:
    """The kinds of updates that a task makes: the share of each, and the number of one behind the attention window."""
    first, mixing = settings.training.window_updates, settings.matching.mixing
    if isinstance(task, Supervised) or settings.matching.combine == "sum":
        return [(1.0, first)]
    share = paired_share(*mixing)
    return [
        (part, next(update for update in itertools.count(first) if is_paired(update, *mixing) == paired))
        for part, paired in ((share, True), (1 - share, False))
        if part
    ]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
