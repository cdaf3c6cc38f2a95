"""Training steps: python benchmarks/step.py [--device auto|cpu|cuda] [--json | --profile]

The steps are those of `priormatch train` and `priormatch match`, gradient clipping and AdamW included, on batches that
lie ready on the device: random audio, the paper's sizes on a GPU, the demo's on a CPU. Beside each stands the same
step out of PyTorch's layers, one launch at a time, and what its matrix operations alone would take at the rate of one
large product on this device. Hypotheses part from the first of their beam at random places, as real ones do roughly;
where they share nothing, the prior has more to read. With --profile the kernels of the first case's steps are listed
instead, the costliest first.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from measure import Table, describe, fresh_medians, versions
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from priormatch.config import (
    AudioSettings,
    BatchSettings,
    ConvLMSettings,
    FusionSettings,
    MatchingSettings,
    ModelSettings,
    OptimizerSettings,
    TrainingSettings,
    load_settings,
)
from priormatch.data import SAMPLE_RATE
from priormatch.data.batches import Batch
from priormatch.decoding.beam import Beam
from priormatch.device import find_device, plainly
from priormatch.matching.lpm import BeamTargets, Proposal, Weighing
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.protocols import Proposes
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.stopwatch import Stopwatch
from priormatch.training.loop import Task, make_update
from priormatch.training.matching_step import Matching
from priormatch.training.optimizer import make_optimizer
from priormatch.training.supervised_step import Supervised, noise_of

RECIPE = Path(__file__).parents[1] / "recipes" / "own.yaml"
UPDATE = 10**6  # behind the soft window
BEAM_SIZE = 4
IN_A_ROW = 4  # steps, as a training makes them
PAPER = ModelSettings()
SMALLER = ModelSettings(channels=[8, 10, 12], blocks=[2, 2, 3])  # 17.4 M parameters with 5,001 classes
DEMO = ModelSettings(n_mels=40, channels=[6, 8, 10], blocks=[1, 1, 2], kernel=9, size=128, dropout=0.0)
DEMO_PRIOR = ConvLMSettings(embedding=128, width=128, bottlenecks=[[64, 128, 2]], head=128)


@dataclass(frozen=True)
class Sizes:
    """A batch: utterances of so many seconds and tokens."""

    utterances: int
    seconds: float = 12.5
    pieces: int = 45
    classes: int = 5001


@dataclass(frozen=True)
class Case:
    """A recognizer, its prior if matching is measured too, and the batches and settings that it is trained with."""

    model: ModelSettings
    prior: ConvLMSettings | None
    sizes: Sizes
    training: TrainingSettings = field(default_factory=TrainingSettings)


class Ready:
    """A stream that gives the batch it was last given."""

    position = 0
    batch: Batch

    @property
    def whole(self) -> int:
        """The number of utterances in the batch."""
        return len(self.batch)

    def take(self) -> list[Batch]:
        """That batch, in one part."""
        return [self.batch]


def fresh_batch(sizes: Sizes, device: torch.device, noise: int = 0) -> Batch:
    """Random audio and labels, and `noise` random numbers for each utterance's augmentation."""
    count, samples = sizes.utterances, int(sizes.seconds * SAMPLE_RATE)
    labels = torch.randint(sizes.classes - 1, (count, sizes.pieces), device=device)
    labels[:, -1] = sizes.classes - 1
    return Batch(
        ids=[str(number) for number in range(count)],
        texts=[None] * count,
        waveforms=0.1 * torch.randn(count, samples, device=device),
        samples=torch.full((count,), samples, device=device),
        labels=labels,
        label_lengths=torch.full((count,), sizes.pieces, device=device),
        noise=torch.rand(count, noise, device=device),
        whole=count,
    )


def batch_for(case: Case, device: torch.device) -> Batch:
    """A batch for a recognizer and its augmentation."""
    return fresh_batch(case.sizes, device, noise_of(case.training))


def recognizer(settings: ModelSettings, sizes: Sizes, device: torch.device) -> SpeechRecognizer:
    """A recognizer with random weights whose search never ends by itself."""
    settings = replace(settings, longest_output=sizes.pieces - 1)
    tokenizer: Any = SimpleNamespace(classes=sizes.classes, eos=sizes.classes - 1, comparable=str)
    model = SpeechRecognizer(settings, tokenizer)
    if model.decoder is not None:
        with torch.no_grad():
            model.decoder.output.bias[-1] = -30.0
    return model.to(device)


def judge(settings: ConvLMSettings, model: SpeechRecognizer, device: torch.device) -> ConvPrior:
    """A prior with random weights."""
    prior = ConvPrior(settings, model.tokenizer)
    prior.lm.fuse()
    return prior.to(device)


class Parting:
    """A proposal that searches and then answers with random hypotheses, which begin alike or share nothing."""

    def __init__(self, proposer: Proposes, classes: int, alike: bool) -> None:
        self.proposer, self.classes, self.alike = proposer, classes, alike

    def propose(self, batch: Batch, k: int) -> Beam:
        """The beam with other labels."""
        beam = self.proposer.propose(batch, k)
        shape, device = beam.classes.shape, batch.waveforms.device
        labels = torch.randint(self.classes - 1, shape, device=device)
        if self.alike:
            place = torch.randint(shape[2], (*shape[:2], 1), device=device)
            labels = torch.where(torch.arange(shape[2], device=device) < place, labels[:, :1], labels)
        return Beam(labels, beam.lengths, beam.scores, beam.ended)


NOTHING: Any = SimpleNamespace(
    audio=AudioSettings(workers=0, gpu_share=0.0),
    cuts=[],
    decoded=None,
    durations=np.ones(1),
    longest=0.0,
    name="none",
)


def supervised(model: SpeechRecognizer, stream: Ready, training: TrainingSettings) -> Supervised:
    """Supervised training on ready batches."""
    task = Supervised(model, NOTHING, {}, training, BatchSettings(utterances=1))
    task.stream = stream  # type: ignore[assignment]
    return task


def matching(
    model: SpeechRecognizer,
    prior: ConvPrior,
    stream: Ready,
    training: TrainingSettings,
    *,
    beam_size: int = BEAM_SIZE,
    alike: bool = True,
    fusion: FusionSettings | None = None,
) -> Matching:
    """Local prior matching on ready batches, none of them paired; with `fusion` the prior searches too."""
    proposal = Proposal(model, 0.0)
    targets = BeamTargets(proposal, prior, beam_size, Weighing(fusion=fusion))
    targets.proposer = Parting(targets.proposer, model.tokenizer.classes, alike)
    settings = MatchingSettings(mixing=[0, 1])
    task = Matching(
        model,
        NOTHING,
        NOTHING,
        {},
        targets=targets,
        proposal=proposal,
        training=training,
        matching=settings,
    )
    task.streams["unpaired"] = stream  # type: ignore[assignment]
    return task


def step_of(task: Task, stream: Ready) -> Callable[[Batch], None]:
    """One update, as the training loop makes it."""
    optimizer = make_optimizer(task.model.parameters(), OptimizerSettings("adamw", 1e-4))

    def step(batch: Batch) -> None:
        stream.batch = batch
        make_update(task, optimizer, 15.0, UPDATE, Stopwatch(batch.waveforms.device))

    return step


def plain(step: Callable[[Batch], None]) -> Callable[[Batch], None]:
    """The step without kernels and recordings."""

    def work(batch: Batch) -> None:
        with plainly():
            step(batch)

    return work


def make_steps(case: Case, device: torch.device) -> dict[str, Callable[[Batch], None]]:
    """The supervised step and, given a prior, those of local prior matching."""
    model, stream, training = recognizer(case.model, case.sizes, device), Ready(), case.training
    tasks: dict[str, Task] = {"supervised": supervised(model, stream, training)}
    if case.prior is not None:
        judged = judge(case.prior, model, device)
        tasks["lpm"] = matching(model, judged, stream, training)
        tasks["lpm, nothing shared"] = matching(model, judged, stream, training, alike=False)
        if model.decoder is not None:
            tasks["lpm, the prior searches too"] = matching(
                model, judged, stream, training, fusion=FusionSettings()
            )
    return {name: step_of(task, stream) for name, task in tasks.items()}


def profile(case: Case, device: torch.device) -> None:
    """List what each step consists of, the costliest first."""
    for name, step in make_steps(case, device).items():
        for _ in range(3):
            step(batch_for(case, device))
        batch = batch_for(case, device)
        list_parts(name, lambda step=step, batch=batch: step(batch), device)


def list_parts(name: str, work: Callable[[], object], device: torch.device) -> None:
    """List the kernels of a piece of work, or on a CPU its operators, the costliest first."""
    gpu = device.type == "cuda"
    activity = torch.profiler.ProfilerActivity.CUDA if gpu else torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[activity]) as profiler:
        work()
    parts = [
        ((each.self_device_time_total if gpu else each.self_cpu_time_total) / 1000, each)
        for each in profiler.key_averages()
    ]
    table = Table(f"{name}: {sum(milliseconds for milliseconds, _ in parts):.1f} ms")
    for milliseconds, each in sorted(parts, key=lambda part: -part[0])[:25]:
        table.add(each.key, milliseconds, f"{each.count} calls")
    table.show()


def measure(case: Case, device: torch.device, repetitions: int, peak: float) -> dict[str, float]:
    """Medians of the supervised step and, given a prior, of local prior matching; on a GPU also of plain ones.

    Behind them what their matrix operations would take at `peak` operations a second.
    """
    works = make_steps(case, device)
    plain_works = {name: plain(work) for name, work in works.items()}
    if device.type == "cuda":
        works |= {f"plain {name}": work for name, work in plain_works.items()}
    found = fresh_medians(works, lambda: batch_for(case, device), device, repetitions, 3, IN_A_ROW)
    for name, work in plain_works.items():
        found[f"matrix operations of {name}"] = operations(work, batch_for(case, device)) / peak * 1000
    return found


def operations(work: Callable[[Batch], None], batch: Batch) -> int:
    """Floating-point operations of the products, convolutions and attentions; those of the GRU are not counted."""
    with FlopCounterMode(display=False) as counter:
        work(batch)
    return int(counter.get_total_flops())


def peak_rate(device: torch.device) -> float:
    """Operations a second in one large product, in the precision of the steps."""
    size, dtype = (8192, torch.bfloat16) if device.type == "cuda" else (1024, torch.float32)

    def matrices() -> tuple[Tensor, Tensor]:
        return torch.randn(size, size, device=device, dtype=dtype), torch.randn(
            size, size, device=device, dtype=dtype
        )

    times = fresh_medians({"product": lambda pair: pair[0] @ pair[1]}, matrices, device, 9, warm_up=3)
    return 2 * size**3 / times["product"] * 1000


def main() -> None:
    """Measure, and print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--case", help="measure only the cases whose names contain this")
    parser.add_argument(
        "--profile", action="store_true", help="list what the steps of the first case consist of"
    )
    options = parser.parse_args()
    device = find_device(options.device)
    cases = {name: case for name, case in cases_for(device).items() if (options.case or "") in name}
    if options.profile:
        profile(next(iter(cases.values())), device)
        return
    peak = peak_rate(device)
    found = {name: measure(case, device, options.repetitions, peak) for name, case in cases.items()}
    show(found, {name: case.sizes for name, case in cases.items()}, device, peak, options.json)


def cases_for(device: torch.device) -> dict[str, Case]:
    """What is measured on a device."""
    if device.type == "cpu":
        return {"demo's model, 12 utterances": Case(DEMO, DEMO_PRIOR, Sizes(12, 4.0, 16, 230))}
    own = load_settings(RECIPE)
    characters = Sizes(40, pieces=188, classes=29)
    return {
        "paper's model, 128 utterances": Case(PAPER, ConvLMSettings(), Sizes(128)),
        "paper's model, 16 utterances": Case(PAPER, ConvLMSettings(), Sizes(16)),
        "17.4 M parameters, 600 s": Case(SMALLER, None, Sizes(48)),
        "recipe own, 500 s": Case(own.model, own.prior.model, characters, own.training),
    }


def show(
    found: dict[str, dict[str, float]],
    sizes: dict[str, Sizes],
    device: torch.device,
    peak: float,
    as_json: bool,
) -> None:
    """Print what was found."""
    first = next(iter(found.values()))
    ours = first.get("lpm", first["supervised"])
    peer = first.get("plain lpm")
    if as_json:
        report = {
            "ours_ms": ours,
            "peer_ms": peer,
            "ratio": peer / ours if peer else None,
            "steps_ms": found,
            "peak_tflops": peak / 1e12,
            "sizes": {name: asdict(each) for name, each in sizes.items()},
            "device": describe(device),
            "versions": versions("torch", "triton", "priormatch"),
        }
        print(json.dumps(report))
        return
    table = Table(f"Training steps on {describe(device)}")
    for case, times in found.items():
        audio = sizes[case].utterances * sizes[case].seconds
        for name, milliseconds in times.items():
            remark = f"{audio / milliseconds * 1000:,.0f} s of audio a second"
            if name.startswith("lpm"):
                remark += f", {milliseconds / times['supervised']:.2f} x supervised"
            table.add(f"{case}: {name}", milliseconds, remark)
    table.show()


if __name__ == "__main__":
    main()
