"""`priormatch table --dry-run`: the data and updates that tables need, and their time by a short probe."""

import itertools
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, cast

import numpy as np
import soundfile
import torch
from rich.console import Console
from rich.table import Table

from priormatch.config import Settings
from priormatch.data import SAMPLE_RATE
from priormatch.data.audio import open_recording
from priormatch.data.corpus import Corpus
from priormatch.data.manifest import utterance
from priormatch.data.tokenizer import Tokenizer
from priormatch.device import find_device
from priormatch.experiments.measure import SHOWN
from priormatch.experiments.results_page import shared_models
from priormatch.experiments.scales import Request, light_files, missing_files, wanted_files
from priormatch.experiments.table import BEAMS, Kind, tables
from priormatch.matching.lpm import BeamTargets, Proposal, given_labels, is_paired, keep_all, paired_share
from priormatch.pipeline.match import weighing_of
from priormatch.progress import say, track
from priormatch.recognizers.decode import batch_seconds, validation_errors
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.stopwatch import Stopwatch
from priormatch.training.loop import Task, make_update
from priormatch.training.matching_step import Matching, share_of
from priormatch.training.optimizer import make_optimizer
from priormatch.training.prior_step import PriorTraining, Sentences
from priormatch.training.supervised_step import Supervised

SECONDS, PIECES = 12.3, 43  # mean of an utterance in LibriSpeech's training sets
WARM_UP, COUNTED = 6, 10  # updates; fewer if they are slow
ENOUGH = 2.0  # seconds for each of the two on a CPU; a GPU first compiles and records
MANY = 8  # batches of sentences, because sentences with context fill more than one
FEW = 6  # utterances that represent a batch on a CPU, where a batch takes as long as its parts together

DEV = {"demo": (150, 4.0), "small": (660, 4.2), "paper": (2783, 6.8)}
"""For each of a scale's two dev sets: the approximate number of utterances, and seconds per utterance."""

Step = Literal["prior", "supervised", "further", "labels", "matching", "validation"]
"""An update of: a prior; a recognizer from scratch; a recognizer with matching's batch; a recognizer on transcripts and
fixed labels; matching. `validation` is decoding of one utterance.
"""
STEPS: dict[Kind, Step] = {"supervised": "further", "pseudo_labels": "labels", "matched": "matching"}


@dataclass(frozen=True)
class Work:
    """Updates of one kind with some settings, or validations of `utterances` each."""

    name: str
    step: Step
    times: int
    settings: Settings
    utterances: float = 1.0

    @property
    def validations(self) -> int:
        """The number of validations during these updates; further training also validates before the first update."""
        match self.step:
            case "prior" | "validation":
                return 0
            case "supervised":
                return math.ceil(self.times / self.settings.training.validate_every)
            case _:
                return 1 + math.ceil(self.times / self.settings.matching.refresh_every)


def tell(request: Request) -> None:
    """Report what tables need, without running them: data, updates, and hours by a short probe on this machine."""
    device = find_device(request.places(request.seeds[0]).settings.device)
    if request.scale != "demo":
        tell_files(request)
    say(f"measuring the time of an update on {device}, with noise as input ...")
    shown = Table(
        title=f"{', '.join(tables()[each].title for each in request.tables)}: for each of {len(request.seeds)} seeds",
        title_justify="left",
    )
    for name in ("training", "updates", "seconds each", "hours"):
        shown.add_column(name, overflow="fold")
    hours, measured = 0.0, Probe()
    for work in track(work_of(request), "trainings measured"):
        seconds = work.utterances * measured.seconds(work)
        hours += (its := work.times * seconds / 3600)
        shown.add_row(work.name, f"{work.times:,}", f"{seconds:.3f}", f"{its:.2f}")
    Console(width=None if sys.stdout.isatty() else 160).print(shown)
    say(
        f"{hours * len(request.seeds):.2f} hours in total on {device}, one training at a time;"
        " tuning, decoding and the validation of priors are not counted"
    )


def tell_files(request: Request) -> None:
    """Report the required and optional files of the data folder, and which are missing."""
    folder = request.data

    def missing(names: list[str]) -> str:
        return f"missing: {', '.join(missing_files(names, folder)) or 'nothing'}"

    wanted, more = wanted_files(request.scale), light_files(request.scale)
    say(f"required: {', '.join(wanted)} in --data {folder or 'FOLDER'}; {missing(wanted)}")
    if more:
        say(f"required only for the rows of 60,000 hours: {', '.join(more)}; {missing(more)}")


def work_of(request: Request) -> list[Work]:
    """The trainings of all tables, each once: shared models and systems; then their validations."""
    places = request.places(request.seeds[0])
    systems = {
        places.name_of(row.system): row.system
        for table in request.tables
        for row in request.rows_of(table)
        if row.system is not None and not row.recorded
    }
    if BEAMS in request.tables:
        systems.setdefault(places.name_of(SHOWN), SHOWN)
    models = shared_models(places, list(systems.values()))
    if systems:
        models.setdefault(places.folder / "prior", places.settings)  # needed for all figures
    trainings = [of_model(path.relative_to(places.folder), settings) for path, settings in models.items()]
    trainings += [
        of_system(name, system.kind, places.settings_of(system)) for name, system in systems.items()
    ]
    return [*trainings, *validations_of(trainings, request.scale)]


def of_model(place: Path, settings: Settings) -> Work:
    """The training of a shared prior or supervised model."""
    name = f"shared: {place}"
    if place.name == "prior":
        return Work(name, "prior", settings.prior.updates, settings)
    return Work(name, "supervised", settings.training.updates, settings)


def validations_of(trainings: Sequence[Work], scale: str) -> list[Work]:
    """The validations of all trainings, grouped by the size of the recognizer."""
    found: dict[str, Work] = {}
    for training in trainings:
        if training.validations:
            settings = training.settings
            model = settings.model
            blocks = model.conformer.layers if model.encoder == "conformer" else sum(model.blocks)
            name = f"validations with {blocks} blocks"
            times = training.validations + (found[name].times if name in found else 0)
            found[name] = Work(name, "validation", times, settings, validated(scale, settings))
    return list(found.values())


def validated(scale: str, settings: Settings) -> float:
    """The size of a validation on both dev sets, counted in utterances of the training length."""
    there, seconds = DEV[scale]
    each = min(settings.training.validate_on or there, there)
    return 2 * each * seconds / SECONDS


def of_system(name: str, kind: Kind, settings: Settings) -> Work:
    """The training of a system, without the shared models."""
    updates = settings.matching.updates
    if kind == "topline":
        return Work(name, "supervised", settings.training.updates + updates, settings)
    return Work(name, STEPS[kind], updates, settings)


class Numbers:
    """A stand-in for a tokenizer; texts are class numbers."""

    def __init__(self, classes: int) -> None:
        self.classes, self.eos = classes, classes - 1

    def encode(self, text: str, *_: object) -> list[int]:
        """The classes of a text."""
        return [int(word) for word in text.split()]

    def decode(self, classes: Iterable[int]) -> str:
        """The text of classes."""
        return " ".join(map(str, classes))


class Probe:
    """Measures the time of updates on noise, each kind once, on the device in the settings."""

    def __init__(self) -> None:
        self.known: dict[str, float] = {}

    def seconds(self, work: Work) -> float:
        """The seconds per update, or per validated utterance."""
        settings = work.settings
        key: list[object] = [work.step]
        match work.step:
            case "prior":
                key += [settings.prior.model, settings.prior.batch_tokens]
            case "supervised":
                key += [settings.model, settings.training.batch]
            case "validation":
                key += [settings.model]
            case "further" | "labels" | "matching":
                key += [settings.model, settings.matching.batch, settings.matching.mixing]
        if work.step == "matching":
            key += [settings.matching.beam_size, settings.matching.prior_exponent != 0]
            key += [settings.matching.hypotheses, settings.fusion.beam_size]
        name = str(key)
        if name not in self.known:
            self.known[name] = probe(work.step, settings)
        return self.known[name]


def probe(step: Step, settings: Settings) -> float:
    """Train on noise for a few updates, or decode it; return the seconds per update or utterance."""
    device = find_device(settings.device)
    settings = replace(
        settings,
        model=replace(settings.model, longest_output=PIECES),
        audio=replace(settings.audio, workers=0 if device.type == "cpu" else settings.audio.workers),
    )
    if step == "validation":
        return seconds_an_utterance(settings, device)
    parts = max(utterances_of(step, settings) // FEW, 1) if device.type == "cpu" else 1
    training, matching, prior = settings.training, settings.matching, settings.prior
    smaller = replace(
        settings,
        training=replace(training, batch=share_of(training.batch, 1 / parts)),
        matching=replace(matching, batch=share_of(matching.batch, 1 / parts)),
        prior=replace(prior, batch_tokens=prior.batch_tokens // parts),
    )
    return parts * probe_exactly(step, smaller, device)


def utterances_of(step: Step, settings: Settings) -> int:
    """The number of utterances, or sentences, in a batch."""
    if step == "prior":
        return max(settings.prior.batch_tokens // (PIECES + 1), 1)
    size = settings.training.batch if step == "supervised" else settings.matching.batch
    return max(size.utterances or round(size.seconds / SECONDS), 1)


def probe_exactly(step: Step, settings: Settings, device: torch.device) -> float:
    """The seconds per update with exactly the batch size in the settings."""
    tokenizer, utterances = numbers_for(settings), utterances_of(step, settings)
    if step == "prior":
        text = Sentences(random_texts(MANY * utterances, tokenizer), tokenizer)
        prior = ConvPrior(settings.prior.model, tokenizer).to(device)
        return seconds_an_update(PriorTraining(prior, text, text, settings.prior, 0), settings)
    with noise(utterances, tokenizer, settings) as corpus:
        model = SpeechRecognizer(settings.model, tokenizer).to(device)
        return seconds_an_update(task_of(step, model, corpus, settings), settings)


def seconds_an_utterance(settings: Settings, device: torch.device) -> float:
    """Decode noise as in a validation; return the seconds per utterance."""
    utterances = FEW if device.type == "cpu" else round(batch_seconds(device) / SECONDS)
    tokenizer = numbers_for(settings)
    with noise(utterances, tokenizer, settings) as corpus:
        model = endless(SpeechRecognizer(settings.model, tokenizer).to(device).eval())
        return steady_seconds(lambda: validation_errors(model, {"noise": corpus}), device) / utterances


def task_of(step: Step, model: SpeechRecognizer, corpus: Corpus, settings: Settings) -> Task:
    """The task that makes the updates of a recognizer."""
    training, matching = settings.training, settings.matching
    if step in ("supervised", "further"):
        size = training.batch if step == "supervised" else matching.batch
        return Supervised(model, corpus, {}, training, size)
    if step == "labels":
        return Matching(model, corpus, corpus, {}, targets=given_labels, training=training, matching=matching)
    judge = ConvPrior(settings.prior.model, model.tokenizer)
    judge.lm.fuse()
    proposal = Proposal(endless(model), 0.0)
    weighing = replace(weighing_of(settings, {}, {}), keep=keep_all)
    targets = BeamTargets(proposal, judge.to(model.device), matching.beam_size, weighing)
    return Matching(
        model, corpus, corpus, {}, targets=targets, proposal=proposal, training=training, matching=matching
    )


def endless(model: SpeechRecognizer) -> SpeechRecognizer:
    """The model with its end of sentence disabled, so that all hypotheses have the full length."""
    with torch.no_grad():
        if model.decoder is not None:
            model.decoder.output.bias[model.tokenizer.eos] = -30.0
    return model


def numbers_for(settings: Settings) -> Tokenizer:
    """A stand-in for a tokenizer with the number of pieces in the settings."""
    return cast(Tokenizer, Numbers(max(settings.tokenizer.pieces - 2, 8)))


def random_texts(count: int, tokenizer: Tokenizer) -> list[str]:
    """Random texts with the number of pieces of a typical utterance."""
    drawn = np.random.default_rng(0).integers(0, tokenizer.eos, (count, PIECES))
    return [tokenizer.decode(row) for row in drawn.tolist()]


@contextmanager
def noise(utterances: int, tokenizer: Tokenizer, settings: Settings) -> Iterator[Corpus]:
    """A temporary corpus of noise, with random classes as texts."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "noise.wav"
        samples = np.random.default_rng(0).normal(0, 0.05, round(SECONDS * SAMPLE_RATE))
        soundfile.write(file, samples, SAMPLE_RATE)
        cuts = [
            utterance(str(number), open_recording(file, str(number), False), text, None)
            for number, text in enumerate(random_texts(utterances, tokenizer))
        ]
        yield Corpus(cuts, settings.audio, "noise")


def seconds_an_update(task: Task, settings: Settings) -> float:
    """The mean time of an update after warm-up; for matching, averaged over its mixing."""
    parameters = list(task.model.parameters())
    chosen = (settings.prior if isinstance(task, PriorTraining) else settings.matching).optimizer
    device, optimizer = parameters[0].device, make_optimizer(parameters, chosen)
    watch = Stopwatch(device)
    with closing(task):
        return sum(
            share * steady_seconds(partial(make_update, task, optimizer, chosen.clip, update, watch), device)
            for share, update in kinds_of(task, settings)
        )


def steady_seconds(act: Callable[[], object], device: torch.device) -> float:
    """The mean time of a call after warm-up; if the warm-up is slow on a CPU, its own mean time."""
    first = mean_seconds(act, WARM_UP, device)
    return first if device.type == "cpu" and first > ENOUGH else mean_seconds(act, COUNTED, device)


def mean_seconds(act: Callable[[], object], most: int, device: torch.device) -> float:
    """The mean time of repeated calls; on a CPU, stop early after `ENOUGH` seconds."""
    enough = ENOUGH if device.type == "cpu" else math.inf
    made, began = 0, time.perf_counter()
    while made < most and (not made or time.perf_counter() - began < enough):
        act()
        made += 1
    _wait(device)
    return (time.perf_counter() - began) / made


def kinds_of(task: Task, settings: Settings) -> list[tuple[float, int]]:
    """The kinds of updates of a task: the share of each, and the number of one such update after the window."""
    first, mixing = settings.training.window_updates, settings.matching.mixing
    if isinstance(task, Supervised | PriorTraining) or settings.matching.combine == "sum":
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
