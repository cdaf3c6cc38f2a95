"""The time and memory of updates on this machine, measured by a few of them on noise."""

import gc
import itertools
import math
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, cast

import numpy as np
import soundfile
import torch

from priormatch.config import Settings
from priormatch.data import SAMPLE_RATE
from priormatch.data.audio import open_recording
from priormatch.data.corpus import Corpus
from priormatch.data.manifest import utterance
from priormatch.data.sentences import Sentences
from priormatch.data.tokenizer import Tokenizer
from priormatch.device import find_device
from priormatch.matching.lpm import BeamTargets, Proposal, given_labels, is_paired, keep_all, paired_share
from priormatch.models.kneser_ney import estimate
from priormatch.pipeline.match import weighing_of
from priormatch.recognizers.decode import batch_seconds, validation_errors
from priormatch.recognizers.load import load_prior, load_recognizer
from priormatch.recognizers.ngram_prior import NgramPrior
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.protocols import Prior
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.stopwatch import Stopwatch
from priormatch.training.loop import Task, make_update
from priormatch.training.matching_step import Matching, share_of
from priormatch.training.optimizer import make_optimizer
from priormatch.training.prior_step import PriorTraining
from priormatch.training.supervised_step import Supervised

SECONDS, PIECES, CHARACTERS = 12.3, 43, 180  # mean of an utterance in LibriSpeech's training sets
LETTERS = 30  # different characters
WARM_UP, COUNTED = 6, 10  # updates; fewer if they are slow
ENOUGH = 2.0  # seconds for each of the two on a CPU; a GPU first compiles and records
MANY = 8  # batches of sentences, because sentences with context fill more than one
FEW = 6  # utterances that represent a batch on a CPU, where a batch takes as long as its parts together

Step = Literal["prior", "supervised", "further", "labels", "matching", "validation"]
"""An update of: a prior; a recognizer from scratch; a recognizer with matching's batch; a recognizer on transcripts and
fixed labels; matching. `validation` is decoding of one utterance.
"""


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

    def comparable(self, text: str) -> str:
        """The text as it is."""
        return text

    @property
    def of_text(self) -> range:
        """The classes that text is written with."""
        return range(self.eos)


@dataclass(frozen=True)
class Work:
    """Updates of one kind with some settings, or validations or decodings of `utterances` each."""

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


class Taken(NamedTuple):
    """What an update takes, or the decoding of an utterance: seconds, and the peak of a GPU's memory in bytes."""

    seconds: float
    memory: int


class Probe:
    """Measures updates on noise, each kind once, on the device in the settings, as one of `gpus` would make them."""

    def __init__(self, gpus: int = 1) -> None:
        self.gpus = gpus
        self.known: dict[str, Taken] = {}

    def __call__(self, work: Work) -> Taken:
        """What an update takes, or the decoding of an utterance, without communication."""
        settings = work.settings
        key: list[object] = [work.step, settings.pretrained]
        match work.step:
            case "prior":
                key += [settings.prior.model, settings.prior.batch_tokens]
            case "supervised":
                key += [settings.model, settings.training.batch]
            case "validation":
                key += [settings.model]
            case "further" | "labels" | "matching":
                key += [
                    settings.model,
                    settings.matching.batch,
                    settings.matching.mixing,
                    settings.prior.kind,
                    settings.prior.pretrained,
                ]
        if work.step == "matching":
            key += [settings.matching.beam_size, settings.matching.prior_exponent != 0]
            key += [settings.matching.hypotheses, settings.fusion.beam_size]
        name = str(key)
        if name not in self.known:
            self.known[name] = probe(work.step, with_share(settings, self.gpus))
        return self.known[name]


def with_share(settings: Settings, parts: int) -> Settings:
    """The settings with one of so many parts of every batch."""
    training, matching, prior = settings.training, settings.matching, settings.prior
    return replace(
        settings,
        training=replace(training, batch=share_of(training.batch, 1 / parts)),
        matching=replace(matching, batch=share_of(matching.batch, 1 / parts)),
        prior=replace(prior, batch_tokens=max(prior.batch_tokens // parts, 1)),
    )


def probe(step: Step, settings: Settings) -> Taken:
    """Train on noise for a few updates, or decode it; return what an update or an utterance takes."""
    device = find_device(settings.device)
    settings = replace(
        settings,
        model=replace(settings.model, longest_output=tokens_of(settings)),
        audio=replace(settings.audio, workers=0 if device.type == "cpu" else settings.audio.workers),
    )
    if device.type == "cuda":
        gc.collect()  # models of the probe before may be in cycles
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        return Taken(probe_exactly(step, settings, device), torch.cuda.max_memory_reserved(device))
    parts = 1 if step == "validation" else max(utterances_of(step, settings) // FEW, 1)
    return Taken(parts * probe_exactly(step, with_share(settings, parts), device), 0)


def tokens_of(settings: Settings) -> int:
    """The tokens of a typical utterance."""
    return CHARACTERS if settings.tokenizer.kind == "characters" else PIECES


def utterances_of(step: Step, settings: Settings) -> int:
    """The number of utterances, or sentences, in a batch."""
    if step == "prior":
        return max(settings.prior.batch_tokens // (tokens_of(settings) + 1), 1)
    size = settings.training.batch if step == "supervised" else settings.matching.batch
    return max(size.utterances or round(size.seconds / SECONDS), 1)


def probe_exactly(step: Step, settings: Settings, device: torch.device) -> float:
    """The seconds per update with exactly the batch size in the settings, or per decoded utterance."""
    if step == "validation":
        return seconds_an_utterance(settings, device)
    utterances = utterances_of(step, settings)
    if step == "prior":
        tokenizer = numbers_for(settings)
        text = Sentences.of(random_texts(MANY * utterances, tokenizer, tokens_of(settings)), tokenizer)
        prior = ConvPrior(settings.prior.model, tokenizer).to(device)
        return seconds_an_update(PriorTraining(prior, text, text, settings.prior, 0), settings)
    model = recognizer_for(settings, device)
    with noise(utterances, model.tokenizer, settings) as corpus:
        return seconds_an_update(task_of(step, model, corpus, settings), settings)


def seconds_an_utterance(settings: Settings, device: torch.device) -> float:
    """Decode noise as in a validation; return the seconds per utterance."""
    utterances = FEW if device.type == "cpu" else round(batch_seconds(device) / SECONDS)
    model = endless(recognizer_for(settings, device).eval())
    with noise(utterances, model.tokenizer, settings) as corpus:
        return steady_seconds(lambda: validation_errors(model, {"noise": corpus}), device) / utterances


def recognizer_for(settings: Settings, device: torch.device) -> SpeechRecognizer:
    """The pretrained recognizer, or an untrained one of the size in the settings."""
    if settings.pretrained.recognizer:
        return load_recognizer(settings.pretrained.recognizer, device, settings.pretrained)
    return SpeechRecognizer(settings.model, numbers_for(settings)).to(device)


def task_of(step: Step, model: SpeechRecognizer, corpus: Corpus, settings: Settings) -> Task:
    """The task that makes the updates of a recognizer."""
    training, matching = settings.training, settings.matching
    if step in ("supervised", "further"):
        size = training.batch if step == "supervised" else matching.batch
        return Supervised(model, corpus, {}, training, size)
    if step == "labels":
        return Matching(model, corpus, corpus, {}, targets=given_labels, training=training, matching=matching)
    proposal = Proposal(endless(model), 0.0)
    weighing = replace(weighing_of(settings, {}, {}), keep=keep_all)
    judge = judge_for(model, settings)
    targets = BeamTargets(proposal, judge, matching.beam_size, weighing)
    return Matching(
        model, corpus, corpus, {}, targets=targets, proposal=proposal, training=training, matching=matching
    )


def judge_for(model: SpeechRecognizer, settings: Settings) -> Prior:
    """An untrained prior of the size in the settings, or one of the n-grams of random texts."""
    if settings.prior.pretrained:
        return load_prior(settings.prior.pretrained, model.device, settings.prior.text_form)
    if settings.prior.kind == "ngram":
        texts = random_texts(utterances_of("matching", settings), model.tokenizer, tokens_of(settings))
        return NgramPrior(estimate(texts, settings.prior.order)[0])
    judge = ConvPrior(settings.prior.model, model.tokenizer)
    judge.lm.fuse()
    return judge.to(model.device)


def endless(model: SpeechRecognizer) -> SpeechRecognizer:
    """The model with its end of sentence disabled, so that all hypotheses have the full length."""
    with torch.no_grad():
        if model.decoder is not None:
            model.decoder.output.bias[model.tokenizer.eos] = -30.0
    return model


def numbers_for(settings: Settings) -> Tokenizer:
    """A stand-in for a tokenizer with as many tokens as that of the settings."""
    characters = settings.tokenizer.kind == "characters"
    return cast(Tokenizer, Numbers(LETTERS if characters else max(settings.tokenizer.pieces - 2, 8)))


def random_texts(count: int, tokenizer: Tokenizer, tokens: int) -> list[str]:
    """Random texts of so many tokens."""
    drawn = np.random.default_rng(0).choice(tokenizer.of_text, (count, tokens))
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
            for number, text in enumerate(random_texts(utterances, tokenizer, tokens_of(settings)))
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
    """The mean time of repeated calls; on a CPU, stop early after `ENOUGH` seconds.

    On a CPU that other programs use too, it is the CPU time of all threads: at most what a free one takes times the
    threads.
    """
    enough = ENOUGH if device.type == "cpu" else math.inf
    made, began, used = 0, time.perf_counter(), time.process_time()
    while made < most and (not made or time.perf_counter() - began < enough):
        act()
        made += 1
    _wait(device)
    passed, used = time.perf_counter() - began, time.process_time() - used
    return (min(passed, used) if device.type == "cpu" else passed) / made


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
