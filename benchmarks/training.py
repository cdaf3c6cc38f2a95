"""Training as users run it: python benchmarks/training.py --labeled CUTS --validation CUTS [KEY=VALUE ...]

Runs `priormatch train --recipe own` on the given cuts in a temporary folder, reading, augmentation, validation and
checkpoints included, and follows its metrics: the time from the command to the first report and to steady speed, the
seconds of audio per second at steady speed (the second half of the updates), and where that time goes. With
--unlabeled, `priormatch match` follows on the model that was trained; --prior is the folder of its prior.
Run it twice for the second run on a machine.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from measure import Table, describe, versions

from priormatch.device import find_device
from priormatch.training.metrics import parse_entry

PROGRAM = [sys.executable, "-c", "from priormatch.cli import main; main()"]
REPORTS = 30  # lines of metrics in a training
STEADY = 0.9  # of the speed of the second half
Line = tuple[float, dict[str, Any]]
"""Seconds since the command, and a line of metrics.jsonl."""


def main() -> None:
    """Measure, and print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--labeled", type=Path, required=True)
    parser.add_argument("--validation", type=Path, required=True)
    parser.add_argument("--unlabeled", type=Path, help="also run matching on these cuts")
    parser.add_argument("--prior", type=Path, help="folder of the prior, for matching")
    parser.add_argument("--updates", type=int, default=1500)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options, Path(folder))
    if options.json:
        print(json.dumps(found))
        return
    table = Table(f"priormatch train and match on {found['device']}")
    for verb, figures in found["verbs"].items():
        for name, value in figures.items():
            table.add(f"{verb}: {name}", None, f"{value:,.3g}" if value < 100 else f"{value:,.0f}")
    table.show()


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train, and match if asked to."""
    every = max(options.updates // REPORTS, 1)
    recipe = ["--recipe", "own", f"device={options.device}", f"training.report_every={every}"]
    shared = ["--labeled", str(options.labeled), "--validation", str(options.validation)]
    follow(
        [
            *PROGRAM,
            "tokenizer",
            "--cuts",
            str(options.labeled),
            "--out",
            str(folder / "tokenizer"),
            "--recipe",
            "own",
        ]
    )
    train = [
        "train",
        *shared,
        "--tokenizer",
        str(folder / "tokenizer"),
        "--out",
        str(folder / "train"),
        *recipe,
    ]
    verbs = {"train": figures(run(train, options, "training", folder / "train"))}
    if options.unlabeled:
        match = [
            "match",
            *shared,
            "--unlabeled",
            str(options.unlabeled),
            "--prior",
            str(options.prior),
            *recipe,
        ]
        match += ["--model", str(folder / "train" / "model"), "--out", str(folder / "match")]
        match += ["matching.max_proposal_cer=1000"]
        verbs["match"] = figures(run(match, options, "matching", folder / "match"))
    return {
        "verbs": verbs,
        "updates": options.updates,
        "settings": options.settings,
        "device": describe(find_device(options.device)),
        "versions": versions("torch", "triton", "priormatch"),
    }


def run(verb: list[str], options: argparse.Namespace, group: str, folder: Path) -> list[Line]:
    """Run a verb and return the lines of its metrics with the times at which they came."""
    overrides = [f"{group}.updates={options.updates}", *options.settings]
    return follow([*PROGRAM, *verb, *overrides], folder / "metrics.jsonl")


def follow(command: list[str], metrics: Path | None = None) -> list[Line]:
    """Run a command and collect the lines of a file while they are written."""
    begun, lines = time.monotonic(), list[Line]()
    process = subprocess.Popen(command, stdout=sys.stderr)
    while process.poll() is None:
        time.sleep(0.05)
        lines += read_new(metrics, len(lines), time.monotonic() - begun)
    if process.returncode:
        sys.exit(process.returncode)
    return [*lines, *read_new(metrics, len(lines), time.monotonic() - begun)]


def read_new(metrics: Path | None, known: int, now: float) -> list[Line]:
    """The complete lines of a file after the first `known`."""
    if metrics is None or not metrics.exists():
        return []
    complete = metrics.read_text(encoding="utf-8").splitlines(keepends=True)[known:]
    entries = [parse_entry(line) for line in complete if line.endswith("\n")]
    return [(now, entry) for entry in entries if entry is not None]


def figures(lines: list[Line]) -> dict[str, float]:
    """What the lines of a training say."""
    reports = [(when, entry) for when, entry in lines if "audio_per_second" in entry]
    late = [entry for _, entry in reports[len(reports) // 2 :]]
    speed = statistics.median(entry["audio_per_second"] for entry in late)
    steady = next(when for when, entry in reports if entry["audio_per_second"] >= STEADY * speed)
    shares = {name: statistics.mean(entry.get(name, 0.0) for entry in late) for name in time_shares(late)}
    return {
        "seconds to the first report": reports[0][0],
        f"seconds to {STEADY:.0%} of steady speed": steady,
        "seconds in all": lines[-1][0],
        "audio, s/s": speed,
        "ms an update": 1000 * statistics.median(entry["seconds_per_update"] for entry in late),
        **shares,
    }


def time_shares(entries: list[dict[str, Any]]) -> list[str]:
    """Names of the shares of time in the reports."""
    return sorted({name for entry in entries for name in entry if name.startswith("time_")})


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
