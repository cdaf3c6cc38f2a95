"""Training steps: python benchmarks/step.py [--device auto|cpu|cuda] [--json]

The steps are those of `priormatch train` and `priormatch match`, gradient clipping and AdamW included, on batches that
lie ready on the device: random audio, the paper's sizes on a GPU, the demo's on a CPU. Beside each stands the same
step out of PyTorch's layers, one launch at a time. Local prior matching is measured with hypotheses that share
nothing, so that the prior has to read every one of them; real ones begin alike, and cost less.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from measure import Table, describe, fresh_medians, versions
from torch import Tensor

from priormatch.config import (
    AudioSettings,
    BatchSettings,
    ConvLMSettings,
    MatchingSettings,
    ModelSettings,
    OptimizerSettings,
    TrainingSettings,
)
from priormatch.data import SAMPLE_RATE
from priormatch.data.batches import Batch
from priormatch.device import find_device, plainly
from priormatch.matching.length_filter import keep_all
from priormatch.matching.prior import Prior
from priormatch.matching.proposal import Proposal
from priormatch.matching.targets import LocalPriorTargets
from priormatch.models.recognizer import Recognizer
from priormatch.search.beam import Beam
from priormatch.stopwatch import Stopwatch
from priormatch.training.loop import Task, make_update
from priormatch.training.matching import Matching
from priormatch.training.optimizer import make_optimizer
from priormatch.training.supervised import Supervised

UPDATE = 10**6  # behind the soft window
BEAM_SIZE = 4
PAPER = ModelSettings()
SMALLER = ModelSettings(channels=[8, 10, 12], blocks=[2, 2, 3])  # 17.4 M parameters with 5,001 classes
DEMO = ModelSettings(n_mels=40, channels=[6, 8, 10], blocks=[1, 1, 2], kernel=9, size=128, dropout=0.0)
DEMO_PRIOR = ConvLMSettings(embedding=128, width=128, bottlenecks=[[64, 128, 2]], head=128)


@dataclass(frozen=True)
class Sizes:
    """A batch: utterances of so many seconds and pieces."""

    utterances: int
    seconds: float = 12.5
    pieces: int = 45
    classes: int = 5001


class Ready:
    """A stream that gives the batch it was last given."""

    position = 0
    batch: Batch

    def take(self) -> Batch:
        """That batch."""
        return self.batch


def fresh_batch(sizes: Sizes, device: torch.device) -> Batch:
    """Random audio and labels."""
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
    )


def recognizer(settings: ModelSettings, sizes: Sizes, device: torch.device) -> Recognizer:
    """A recogniser with random weights whose search never ends by itself."""
    settings = replace(settings, longest_output=sizes.pieces - 1)
    tokenizer: Any = SimpleNamespace(classes=sizes.classes, eos=sizes.classes - 1)
    model = Recognizer(settings, tokenizer)
    with torch.no_grad():
        model.decoder.output.bias[-1] = -30.0
    return model.to(device)


def judge(settings: ConvLMSettings, model: Recognizer, device: torch.device) -> Prior:
    """A prior with random weights."""
    prior = Prior(settings, model.tokenizer)
    prior.lm.fuse()
    return prior.to(device)


class Apart:
    """A proposal that searches and then answers with hypotheses that have nothing in common."""

    def __init__(self, propose: Callable[[Tensor, Tensor], Beam], classes: int) -> None:
        self.propose, self.classes = propose, classes

    def __call__(self, waveforms: Tensor, samples: Tensor) -> Beam:
        """The beam with other labels."""
        beam = self.propose(waveforms, samples)
        others = torch.randint(self.classes - 1, beam.classes.shape, device=waveforms.device)
        return Beam(others, beam.lengths, beam.scores, beam.ended)


NOTHING: Any = SimpleNamespace(audio=AudioSettings(workers=0), cuts=[], durations=np.ones(1), name="none")


def supervised(model: Recognizer, stream: Ready) -> Supervised:
    """Supervised training on ready batches."""
    task = Supervised(model, NOTHING, {}, TrainingSettings(), BatchSettings(utterances=1))
    task.stream = stream  # type: ignore[assignment]
    return task


def matching(model: Recognizer, prior: Prior, stream: Ready, beam_size: int = BEAM_SIZE) -> Matching:
    """Local prior matching on ready batches, none of them paired."""
    proposal = Proposal(model, 0.0)
    targets = LocalPriorTargets(proposal, prior, beam_size, keep_all, {})
    targets.propose = Apart(targets.propose, model.tokenizer.classes)  # type: ignore[assignment]
    settings = MatchingSettings(mixing=[0, 1])
    task = Matching(model, NOTHING, NOTHING, {}, targets, proposal, TrainingSettings(), settings)
    task.unpaired = stream  # type: ignore[assignment]
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


def measure(
    settings: ModelSettings,
    prior: ConvLMSettings | None,
    sizes: Sizes,
    device: torch.device,
    repetitions: int,
) -> dict[str, float]:
    """Medians of the supervised step and, given a prior, of local prior matching; on a GPU also of plain ones."""
    model, stream = recognizer(settings, sizes, device), Ready()
    tasks: dict[str, Task] = {"supervised": supervised(model, stream)}
    if prior is not None:
        tasks["lpm"] = matching(model, judge(prior, model, device), stream)
    works = {name: step_of(task, stream) for name, task in tasks.items()}
    if device.type == "cuda":
        works |= {f"plain {name}": plain(work) for name, work in works.items()}
    return fresh_medians(works, lambda: fresh_batch(sizes, device), device, repetitions, warm_up=3)


def main() -> None:
    """Measure, and print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    device = find_device(options.device)
    if device.type == "cuda":
        cases = {
            "paper's model, 128 utterances": (PAPER, ConvLMSettings(), Sizes(128)),
            "paper's model, 16 utterances": (PAPER, ConvLMSettings(), Sizes(16)),
            "17.4 M parameters, 600 s": (SMALLER, None, Sizes(48)),
        }
    else:
        cases = {"demo's model, 12 utterances": (DEMO, DEMO_PRIOR, Sizes(12, 4.0, 16, 230))}
    found = {
        name: measure(settings, prior, sizes, device, options.repetitions)
        for name, (settings, prior, sizes) in cases.items()
    }
    show(found, {name: sizes for name, (_, _, sizes) in cases.items()}, device, options.json)


def show(
    found: dict[str, dict[str, float]], sizes: dict[str, Sizes], device: torch.device, as_json: bool
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
            if name == "lpm":
                remark += f", {milliseconds / times['supervised']:.2f} x supervised"
            table.add(f"{case}: {name}", milliseconds, remark)
    table.show()


if __name__ == "__main__":
    main()
