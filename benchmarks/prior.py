"""Training of the prior: python benchmarks/prior.py [--device auto|cpu|cuda] [--case NAME] [--json | --profile]

The steps are those of `priormatch train-prior`, with gradient clipping and AdamW: each takes its batch from the text,
pads it and copies it to the device. A turn is the first batches of an epoch of random text; its sentences are about as
long as in books, 20 pieces on average. Planning an epoch is not included. Tokens per second count no padding. On a
GPU, all shapes are recorded before the measurement, and the same steps out of PyTorch's layers, one launch at a time,
are measured beside ours. The share of the peak is what the matrix operations of the latter would take at the rate of
one large product on this device, divided by the time of the step. With --profile the kernels of a turn of the first
case are listed instead, the costliest first.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import torch
from measure import Table, describe, fresh_medians, versions
from step import DEMO_PRIOR, list_parts, operations, peak_rate, plain

from priormatch.config import ConvLMSettings, OptimizerSettings, PriorSettings
from priormatch.data.plan import plan_batches
from priormatch.data.sentences import Sentences
from priormatch.device import find_device
from priormatch.recognizers.prior import ConvPrior
from priormatch.stopwatch import Stopwatch
from priormatch.training.loop import make_update
from priormatch.training.optimizer import make_optimizer
from priormatch.training.prior_step import PriorTraining

MEAN, SPREAD, LONGEST = (
    20,
    0.73,
    200,
)  # pieces in a sentence, log-normal as in books with a vocabulary of 5,000
SMALLER = ConvLMSettings(512, 512, [[128, 512, 3], [256, 1024, 2]], 512)
BATCHES = 1000  # in an epoch, roughly
UPDATES = {"cuda": 24, "cpu": 4}  # in a turn
OURS, PLAIN = "priormatch", "PyTorch's layers"


@dataclass(frozen=True)
class Case:
    """A prior and how it is trained."""

    model: ConvLMSettings
    classes: int
    batch_tokens: int


class RandomSentences(Sentences):
    """Random sentences, enough for an epoch."""

    def __init__(self, case: Case) -> None:
        random, eos = np.random.default_rng(0), case.classes - 1
        drawn = random.lognormal(np.log(MEAN) - SPREAD**2 / 2, SPREAD, case.batch_tokens * BATCHES // MEAN)
        self.lengths = 1 + np.clip(np.round(drawn), 1, LONGEST).astype(np.int64)
        self.ends = np.cumsum(self.lengths)
        self.flat = random.integers(0, eos, self.ends[-1], dtype=np.int32)
        self.flat[self.ends - 1] = eos
        self.words = len(self.flat)


def training(case: Case, device: torch.device) -> PriorTraining:
    """The training of a prior with random weights."""
    torch.manual_seed(0)
    text, tokenizer = RandomSentences(case), SimpleNamespace(classes=case.classes, eos=case.classes - 1)
    prior = ConvPrior(case.model, tokenizer).to(device)
    return PriorTraining(prior, text, text, PriorSettings(batch_tokens=case.batch_tokens), 0)


def turn_of(
    task: PriorTraining, plan: Sequence[np.ndarray], device: torch.device
) -> Callable[[object], None]:
    """Updates on the planned batches, as the training loop makes them."""
    optimizer = make_optimizer(task.model.parameters(), OptimizerSettings("adamw", 1e-4))

    def turn(_: object) -> None:
        task.plan, task.position = list(plan), 0
        watch = Stopwatch(device)
        for update in range(len(plan)):
            make_update(task, optimizer, 1.0, update, watch)

    return turn


def first_batches(task: PriorTraining, device: torch.device) -> list[np.ndarray]:
    """The first batches of an epoch, which are a random sample of all batches."""
    return plan_batches(task.text.lengths, task.size, task.seed, 0)[: UPDATES[device.type]]


def measure(case: Case, device: torch.device, repetitions: int, peak: float) -> dict[str, float]:
    """Milliseconds per update, tokens per second and share of the peak; on a GPU also those of plain steps."""
    task = training(case, device)
    plan = first_batches(task, device)
    turn, tokens = turn_of(task, plan, device), int(sum(task.text.lengths[each].sum() for each in plan))
    works = {OURS: turn, PLAIN: plain(turn)} if device.type == "cuda" else {OURS: turn}
    times = fresh_medians(works, lambda: None, device, repetitions)
    matrices = operations(plain(turn), None) / peak * 1000
    found: dict[str, float] = {"updates": len(plan), "shapes": len(task.step.recordings), "tokens": tokens}
    found["parameters"] = sum(each.numel() for each in task.model.parameters())
    found["matrix operations ms"] = matrices / len(plan)
    for name, milliseconds in times.items():
        found[f"{name} ms"] = milliseconds / len(plan)
        found[f"{name} tokens/s"] = tokens / milliseconds * 1000
        found[f"{name} share of peak"] = matrices / milliseconds
    return found


def main() -> None:
    """Measure, and print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--case", help="measure only the cases whose names contain this")
    parser.add_argument("--profile", action="store_true", help="list what the first case consists of")
    options = parser.parse_args()
    device = find_device(options.device)
    cases = {name: case for name, case in cases_for(device).items() if (options.case or "") in name}
    if options.profile:
        name, case = next(iter(cases.items()))
        task = training(case, device)
        turn = turn_of(task, first_batches(task, device), device)
        turn(None)
        list_parts(name, lambda: turn(None), device)
        return
    peak = peak_rate(device)
    found = {name: measure(case, device, options.repetitions, peak) for name, case in cases.items()}
    show(found, device, peak, options.json)


def cases_for(device: torch.device) -> dict[str, Case]:
    """What is measured on a device."""
    if device.type == "cpu":
        return {"demo's prior, 1,024 tokens": Case(DEMO_PRIOR, 228, 1024)}
    paper = PriorSettings()
    return {
        f"{name}, {tokens:,} tokens": Case(model, classes, tokens)
        for name, model, classes, tokens in [
            ("9.4 M parameters", SMALLER, 998, paper.batch_tokens),
            ("9.4 M parameters", SMALLER, 998, 4 * paper.batch_tokens),
            ("GCNN-14B", paper.model, 5001, paper.batch_tokens),
        ]
    }


def show(found: dict[str, dict[str, float]], device: torch.device, peak: float, as_json: bool) -> None:
    """Print what was found."""
    first = next(iter(found.values()))
    if as_json:
        report = {
            "ours_ms": first[f"{OURS} ms"],
            "peer_ms": first.get(f"{PLAIN} ms"),
            "ratio": first[f"{PLAIN} ms"] / first[f"{OURS} ms"] if f"{PLAIN} ms" in first else None,
            "cases": found,
            "peak_tflops": peak / 1e12,
            "device": describe(device),
            "versions": versions("torch", "triton", "priormatch"),
        }
        print(json.dumps(report))
        return
    table = Table(f"Updates of the prior on {describe(device)}")
    for case, each in found.items():
        size = f"{each['parameters'] / 1e6:.1f} M parameters"
        for name in (OURS, PLAIN):
            if f"{name} ms" in each:
                speed, share = each[f"{name} tokens/s"], each[f"{name} share of peak"]
                remark = f"{size}, {speed:,.0f} tokens/s, {share:.0%} of the peak"
                table.add(f"{case}: {name}", each[f"{name} ms"], remark)
        table.add(f"{case}: matrix operations alone", each["matrix operations ms"])
    table.show()


if __name__ == "__main__":
    main()
