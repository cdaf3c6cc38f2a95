"""Jobs for tests of several processes: `start` runs one of them in some processes, which write what they found."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from tiny_language import sentences

from priormatch import distributed
from priormatch.config import (
    AudioSettings,
    AugmentSettings,
    BatchSettings,
    ConvLMSettings,
    MatchingSettings,
    ModelSettings,
    OptimizerSettings,
    PriorSettings,
    TrainingSettings,
)
from priormatch.data.corpus import Corpus
from priormatch.data.sentences import Sentences
from priormatch.data.tokenizer import Tokenizer
from priormatch.matching.lpm import BeamTargets, LengthFilter, Proposal, Weighing
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.stopwatch import Stopwatch
from priormatch.training.loop import Schedule, Task, fit
from priormatch.training.matching_step import Matching
from priormatch.training.prior_step import PriorTraining
from priormatch.training.supervised_step import Supervised

ROOT = Path(__file__).parent
MODEL = ModelSettings(
    n_mels=20,
    channels=[2, 3],
    blocks=[1, 1],
    kernel=5,
    size=16,
    dropout=0.0,
    kind="hybrid",
    longest_output=12,
)
PRIOR = ConvLMSettings(embedding=12, width=8, bottlenecks=[[4, 8, 1]], head=10, kernel=3, dropout=0.0)
TRAINING = TrainingSettings(
    seed=3,
    window_updates=0,
    ctc_weight=0.5,
    label_smoothing=0.0,
    input_sampling=0.0,
    piece_sampling=0.3,
    augment=AugmentSettings(1, 4, 1, 10, speeds=[0.9]),
)
FIVE = BatchSettings(utterances=5)
WAITED = 240.0  # seconds that a job may take


def corpus(folder: Path, name: str) -> Corpus:
    """The corpus with this name that a test has made in the folder."""
    return Corpus.load(folder / f"{name}.jsonl.gz", AudioSettings(workers=0, max_bad_share=0.5))


def tokenizer_in(folder: Path) -> Tokenizer:
    """The tokenizer that a test has saved in the folder."""
    return Tokenizer.load(folder / "tokenizer")


def recognizer(folder: Path) -> SpeechRecognizer:
    """A recognizer in float64 that is the same in all processes; its features are of float32."""
    torch.manual_seed(1)
    model = SpeechRecognizer(MODEL, tokenizer_in(folder)).double()
    model.features.float().register_forward_hook(lambda _, given, found: (found[0].double(), found[1]))
    return model


def prior(folder: Path) -> ConvPrior:
    """A prior that is the same in all processes."""
    torch.manual_seed(2)
    return ConvPrior(PRIOR, tokenizer_in(folder)).double()


def supervised(folder: Path, size: BatchSettings = FIVE) -> Supervised:
    """Supervised training on `labeled`."""
    labeled = corpus(folder, "labeled")
    return Supervised(recognizer(folder), labeled, {"dev": labeled}, TRAINING, size)


def prior_training(folder: Path, size: BatchSettings = FIVE) -> PriorTraining:
    """Training of the prior on sentences of the tiny language."""
    text, held_out = (Sentences.of(sentences(30, seed=seed), tokenizer_in(folder)) for seed in (1, 2))
    return PriorTraining(prior(folder), text, held_out, PriorSettings(batch_tokens=60), seed=3)


def matching(folder: Path, size: BatchSettings = FIVE) -> Matching:
    """Local prior matching on `labeled` and `unlabeled`."""
    online, labeled, unlabeled = recognizer(folder), corpus(folder, "labeled"), corpus(folder, "unlabeled")
    proposal = Proposal(online, 1000.0)
    lengths = {cut.id: 4 for cut in unlabeled.cuts}
    weighing = Weighing(LengthFilter(0.2, 3.0), lengths)
    return Matching(
        online,
        labeled,
        unlabeled,
        {"dev": labeled},
        targets=BeamTargets(proposal, prior(folder), 3, weighing),
        training=TRAINING,
        matching=MatchingSettings(batch=size, mixing=[1, 1], combine="sum"),
        proposal=proposal,
    )


TASKS: dict[str, Callable[[Path, BatchSettings], Task]] = {
    "supervised": supervised,
    "prior": prior_training,
    "matching": matching,
}


def gradients(folder: Path, accumulate: int = 1) -> dict[str, torch.Tensor]:
    """The loss and the gradient of one update of each kind, summed over all processes."""
    found = {}
    for kind, make in TASKS.items():
        task = make(folder, replace(FIVE, accumulate=accumulate))
        with closing(task):
            task.model.train()
            loss, _ = task.backward(0, Stopwatch(torch.device("cpu")))
            found[f"{kind}/loss"] = distributed.sum_gradients(task.model.parameters(), loss).double()
        found |= {
            f"{kind}/{name}": each.grad
            for name, each in task.model.named_parameters()
            if each.grad is not None
        }
    return found


def learn(folder: Path, out: str = "learned", updates: int = 50) -> None:
    """Match for some updates, with a validation and perhaps a refresh at every fifth, and the faults asked for.

    KILL_AFTER="1 0.8": process 1 is killed after 0.8 seconds of training.
    """
    task = matching(folder)
    backward = task.backward

    def faulty(update: int, watch: Stopwatch) -> tuple[torch.Tensor, Mapping[str, torch.Tensor | float]]:
        fail(update + 1, folder)
        return backward(update, watch)

    task.backward = faulty  # type: ignore[method-assign]
    schedule = Schedule(
        updates,
        OptimizerSettings("adamw", 0.01, clip=5.0, warm_up=2),
        seed=3,
        validate_every=5,
        validate_first=True,
        report_every=5,
    )
    rank, seconds = (float(word) for word in os.environ.get("KILL_AFTER", "-1 0").split())
    if rank == distributed.rank():
        threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
    began = time.monotonic()
    fit(task, schedule, folder / out, folder / out)
    if distributed.is_main():
        (folder / "seconds").write_text(f"{time.monotonic() - began}")


def fail(update: int, folder: Path) -> None:
    """Fail at the start of an update if a variable asks for it.

    KILL="1 12": process 1 is killed in update 12; torchrun's second attempt is left alone. KILL_AGENT="8": the process
    and the torchrun that started it are killed in update 8. PAUSE="12": a process that is alone says so in the pipe
    `alone` in update 12, and waits for a signal.
    """
    again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    if os.environ.get("KILL") == f"{distributed.rank()} {update}" and not again:
        os.kill(os.getpid(), signal.SIGKILL)
    if os.environ.get("KILL_AGENT") == str(update):
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    if os.environ.get("PAUSE") == str(update) and distributed.ranks() == 1:
        (folder / "alone").write_text("alone")
        signal.pause()


def learn_the_unlearnable(folder: Path) -> None:
    """Train until too many updates had no finite gradient, because one weight has none."""
    task = supervised(folder)
    with torch.no_grad():
        next(task.model.parameters()).fill_(torch.nan)
    schedule = Schedule(50, OptimizerSettings("adamw", 0.01), seed=3, validate_every=50)
    fit(task, schedule, folder / "unlearnable", folder / "unlearnable")


def write_gradients(folder: Path) -> None:
    """Write the gradients of the main process, which are those of all."""
    found = gradients(folder)
    assert all(
        torch.equal(each["matching/loss"], found["matching/loss"]) for each in distributed.from_all(found)
    )
    if distributed.is_main():
        save_file({name: each.contiguous() for name, each in found.items()}, folder / "gradients.safetensors")


def learn_briefly(folder: Path) -> None:
    """Match for 20 updates."""
    learn(folder, updates=20)


JOBS = {
    "gradients": write_gradients,
    "learn": learn,
    "learn-briefly": learn_briefly,
    "unlearnable": learn_the_unlearnable,
}


def free_port() -> int:
    """A port that nothing uses."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def start(count: int, words: Sequence[str], folder: Path, **more: str) -> list[subprocess.Popen[str]]:
    """Start processes of one job, as torchrun would; `words` are what Python runs."""
    common = os.environ | {
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "PYTHONPATH": os.pathsep.join([str(ROOT.parent / "src"), str(ROOT)]),
        **more,
    }
    return [
        subprocess.Popen(
            [sys.executable, *words],
            cwd=folder,
            env=common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(count)
    ]


def ends(processes: Sequence[subprocess.Popen[str]], longest: float = WAITED) -> list[tuple[int, str]]:
    """Wait for processes; the exit code and the output of each."""
    outputs = [process.communicate(timeout=longest)[0] for process in processes]
    return [(process.returncode, output) for process, output in zip(processes, outputs, strict=True)]


if __name__ == "__main__":
    torch.set_num_threads(1)
    with distributed.joined():
        JOBS[sys.argv[1]](Path(sys.argv[2]))
