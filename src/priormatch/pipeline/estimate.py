"""What work takes on GPUs: measured by a few updates on this machine, and with modeled communication."""

import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from priormatch.config import OptimizerSettings, Settings
from priormatch.device import find_device
from priormatch.pipeline.probe import Probe, Step, Work, numbers_for
from priormatch.progress import count_text, say, track
from priormatch.recognizers.hf_folder import pretrained, stored_elements
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer

GB = 1e9
IN_MACHINE = 150 * GB  # bytes per second between the GPUs of one machine
DELAY = 120e-6  # seconds of a message between two processes: 20 µs through NCCL, and 100 µs through the hosts
NUMBER = 4  # bytes of a weight, a gradient or a number in the optimizer


@dataclass(frozen=True)
class Cluster:
    """GPUs to plan for, how many a machine has, and gigabytes per second that a machine sends to the others.

    Where updates are measured on a CPU, such CPUs take the place of GPUs.
    """

    gpus: int = 1
    per_machine: int = 8
    bandwidth: float = 12.5
    unit: str = "GPU"

    @property
    def machines(self) -> int:
        """The number of machines."""
        return math.ceil(self.gpus / self.per_machine)

    def seconds_to_sum(self, weights: int) -> float:
        """The modeled time of an update's all-reduce of gradients, and of its decision whether to go on."""
        if self.gpus == 1:
            return 0.0
        sent = 2 * (self.gpus - 1) / self.gpus * NUMBER * weights
        speed = IN_MACHINE if self.machines == 1 else min(self.bandwidth * GB, IN_MACHINE)
        return sent / speed + 2 * math.ceil(math.log2(self.gpus)) * DELAY

    def __str__(self) -> str:
        machines = f" in {self.machines} machines" if self.machines > 1 else ""
        return f"{count_text(self.gpus, self.unit)}{machines}"


@dataclass(frozen=True)
class Line:
    """What one kind of work takes: how often, seconds each time, those of them to communicate, and a GPU's memory."""

    name: str
    times: int
    seconds: float
    communication: float
    memory: int

    @property
    def hours(self) -> float:
        """The hours that all of it takes."""
        return self.times * self.seconds / 3600

    @property
    def share(self) -> float:
        """The share of the time that communication takes."""
        return self.communication / self.seconds if self.seconds else 0.0

    def as_json(self, gpus: int) -> dict[str, Any]:
        """The line for scripts."""
        return {
            "stage": self.name,
            "times": self.times,
            "seconds_each": self.seconds,
            "communication_share_modeled": self.share,
            "hours": self.hours,
            "gpu_hours": gpus * self.hours,
            "gpu_memory_gb": self.memory / GB,
        }


def lines_of(works: Sequence[Work], cluster: Cluster) -> list[Line]:
    """Measure what each work takes, as one of the GPUs would do it, and add the time to communicate."""
    probe = Probe(cluster.gpus)
    if not works:
        return []
    with free_threads(find_device(works[0].settings.device)):
        return [line_of(work, probe, cluster) for work in track(works, "stages measured")]


def line_of(work: Work, probe: Probe, cluster: Cluster) -> Line:
    """What one work takes; decoding is shared without communication."""
    seconds, memory = probe(work)
    if work.step == "validation":
        return Line(work.name, work.times, work.utterances * seconds / cluster.gpus, 0.0, memory)
    summing = cluster.seconds_to_sum(weights_of(work.step, work.settings))
    return Line(work.name, work.times, seconds + summing, summing, memory)


@contextmanager
def free_threads(device: torch.device) -> Iterator[None]:
    """On a CPU, compute with the threads that other programs leave inside the context, and report if some are missing.

    Threads that have to wait for each other take many times as long where other programs use their cores.
    """
    wanted, load, cores = torch.get_num_threads(), os.getloadavg()[0], os.cpu_count() or 1
    free = max(min(wanted, cores - round(load)), 1)
    if device.type != "cpu" or free == wanted:
        yield
        return
    say(
        f"other programs use this machine (load {load:.1f} on {cores} cores): measured in CPU time with"
        f" {count_text(free, 'thread')} instead of {wanted}; while they run, it takes longer than shown"
    )
    torch.set_num_threads(free)
    try:
        yield
    finally:
        torch.set_num_threads(wanted)


def weights_of(step: Step, settings: Settings) -> int:
    """The number of weights of the model that a step trains."""
    if step != "prior" and settings.pretrained.recognizer:
        return stored_elements(pretrained(settings.pretrained.recognizer))
    tokenizer = numbers_for(settings)
    with torch.device("meta"):
        model = (
            ConvPrior(settings.prior.model, tokenizer)
            if step == "prior"
            else SpeechRecognizer(settings.model, tokenizer)
        )
    return sum(each.numel() for each in model.parameters())


def bytes_kept(work: Work) -> int:
    """The bytes that a training leaves on disk: two checkpoints, the best model, and the copies that it keeps."""
    if work.step == "validation":
        return 0
    settings = work.settings
    optimizer = {"prior": settings.prior.optimizer, "supervised": settings.training.optimizer}.get(
        work.step, settings.matching.optimizer
    )
    kept = {"prior": settings.prior.keep, "supervised": settings.training.keep}.get(work.step, {})
    proposal = int(work.step == "matching")
    copies = 2 * (1 + numbers_in(optimizer) + proposal) + 1 + proposal + len(kept)
    return copies * NUMBER * weights_of(work.step, settings)


def numbers_in(optimizer: OptimizerSettings) -> int:
    """How many numbers an optimizer keeps for each weight."""
    return 2 if optimizer.kind == "adamw" else int(optimizer.momentum > 0)


def show_lines(title: str, lines: Sequence[Line], cluster: Cluster) -> None:
    """Print what each kind of work takes, and the sum."""
    table = Table(title=title, title_justify="left")
    table.add_column("stage", overflow="fold")
    for name in ("times", "seconds each", "communication", "hours", f"{cluster.unit}-hours"):
        table.add_column(name, justify="right")
    for each in lines:
        share = f"{100 * each.share:.0f} %"
        hours = (f"{each.hours:,.2f}", f"{cluster.gpus * each.hours:,.2f}")
        table.add_row(each.name, f"{each.times:,}", f"{each.seconds:.3f}", share, *hours)
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def name_of(device: torch.device) -> str:
    """The name of a device, as one buys it."""
    return (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"this machine's {device.type.upper()}"
    )


def unit_of(device: torch.device) -> str:
    """What a process computes on."""
    return "GPU" if device.type == "cuda" else "CPU"
