"""How time and memory grow: python benchmarks/growth.py [--device auto|cpu|cuda] [--plot FILE] [--json]

Measures the step of local prior matching (see step.py) with more and more utterances, hypotheses and seconds, one at a
time, and the memory of the process and of the GPU while thousands of steps are made on batches of changing shapes.
"""

import argparse
import json
import resource
import sys
from pathlib import Path
from typing import Any

import torch
from measure import describe, fresh_medians, versions
from step import DEMO, DEMO_PRIOR, PAPER, Ready, Sizes, fresh_batch, judge, matching, recognizer, step_of

from priormatch.config import ConvLMSettings, ModelSettings, TrainingSettings
from priormatch.device import find_device
from priormatch.progress import track

Points = list[tuple[float, float]]
"""(how much of it, milliseconds or megabytes)."""


def step_ms(
    settings: ModelSettings,
    prior: ConvLMSettings,
    sizes: Sizes,
    beam_size: int,
    device: torch.device,
    repetitions: int,
) -> float:
    """The median milliseconds of one step."""
    model, stream = recognizer(settings, sizes, device), Ready()
    step = step_of(
        matching(model, judge(prior, model, device), stream, TrainingSettings(), beam_size=beam_size), stream
    )
    times = fresh_medians({"lpm": step}, lambda: fresh_batch(sizes, device), device, repetitions, warm_up=3)
    return times["lpm"]


def memory_mb(device: torch.device) -> dict[str, float]:
    """What the process has held at most so far, and what is taken of the GPU's memory now, recordings included."""
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = {"host": kilobytes / (1024**2 if sys.platform == "darwin" else 1024)}
    if device.type == "cuda":
        free, whole = torch.cuda.mem_get_info(device)
        found["device"] = (whole - free) / 2**20
    return found


def memory_over_steps(
    settings: ModelSettings, prior: ConvLMSettings, shapes: list[Sizes], steps: int, device: torch.device
) -> dict[str, Points]:
    """Memory at twenty moments of a long training on batches whose shapes take turns."""
    model, stream = recognizer(settings, shapes[0], device), Ready()
    step = step_of(matching(model, judge(prior, model, device), stream, TrainingSettings()), stream)
    found: dict[str, Points] = {}
    for number in track(range(1, steps + 1), "steps"):
        step(fresh_batch(shapes[number % len(shapes)], device))
        if number % max(steps // 20, 1) == 0:
            for name, value in memory_mb(device).items():
                found.setdefault(name, []).append((number, value))
    return found


def main() -> None:
    """Measure, and print a JSON object or draw."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2000, help="of which memory is watched")
    parser.add_argument("--plot", type=Path, help="an image to draw")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    device = find_device(options.device)
    if device.type == "cuda":
        settings, prior, middle = PAPER, ConvLMSettings(), Sizes(64)
        counts, beams, lengths = (16, 32, 64, 128, 256), (1, 2, 4, 8, 16), (3.0, 6.0, 12.0, 24.0)
    else:
        settings, prior, middle = DEMO, DEMO_PRIOR, Sizes(12, 4.0, 16, 230)
        counts, beams, lengths = (4, 8, 16, 32), (1, 2, 4, 8), (2.0, 4.0, 8.0, 16.0)

    def of_length(seconds: float, utterances: int) -> Sizes:
        pieces = round(middle.pieces * seconds / middle.seconds)
        return Sizes(utterances, seconds, pieces, middle.classes)

    def milliseconds(sizes: Sizes, beam_size: int = 4) -> float:
        return step_ms(settings, prior, sizes, beam_size, device, options.repetitions)

    found: dict[str, Any] = {
        "utterances": [(count, milliseconds(of_length(middle.seconds, count))) for count in counts],
        "hypotheses": [(count, milliseconds(middle, count)) for count in beams],
        "seconds": [(seconds, milliseconds(of_length(seconds, middle.utterances))) for seconds in lengths],
    }
    shapes = [
        Sizes(count, seconds, middle.pieces, middle.classes)
        for count in (middle.utterances // 4, middle.utterances // 3)
        for seconds in (3.1, 4.7, 6.3)
    ]
    found["memory"] = memory_over_steps(settings, prior, shapes, options.steps, device)
    if options.plot:
        draw(found, options.plot, describe(device))
    if options.json:
        found |= {"device": describe(device), "versions": versions("torch", "triton", "priormatch")}
        print(json.dumps(found))
        return
    for name in ("utterances", "hypotheses", "seconds"):
        print(f"{name}: " + ", ".join(f"{count:g}: {value:.1f} ms" for count, value in found[name]))
    for name, points in found["memory"].items():
        print(
            f"{name} memory: {points[0][1]:.0f} MB after {points[0][0]} steps, {points[-1][1]:.0f} MB at the end"
        )


def draw(found: dict[str, Any], path: Path, device: str) -> None:
    """One panel for each way to grow, with the line that growth in proportion would follow, and one for memory."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 4, figsize=(14, 3.2), layout="constrained")
    for axis, name in zip(axes, ("utterances", "hypotheses", "seconds"), strict=False):
        counts, times = zip(*found[name], strict=True)
        axis.plot(counts, times, "o-", label="measured")
        last = times[-1] / counts[-1]
        axis.plot(counts, [last * count for count in counts], ":", label="in proportion")
        axis.set(xlabel=name, ylabel="ms a step", ylim=(0, None), xlim=(0, None))
        axis.legend()
    for name, points in found["memory"].items():
        axes[3].plot(*zip(*points, strict=True), label=name)
    axes[3].set(xlabel="steps", ylabel="MB", ylim=(0, None))
    axes[3].legend()
    figure.suptitle(f"A step of local prior matching on {device}")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
