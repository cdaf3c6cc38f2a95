"""Kill a run again and again at random moments, restart it at once, and see that it ends as if nothing had happened.

Needs Linux. A run of all stages, with 0 and with 2 reader processes, is made undisturbed; then others are made whose
main process is sent SIGKILL, and now and then SIGTERM. Prints what was counted as JSON; fails if any run ends in
another way or with other files, if a restart is refused, or if a process outlives its killed parent by a second.
"""

import argparse
import gzip
import json
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from tiny_run import make_folders

MAIN = "from priormatch.cli import main; main()"
SETTINGS = (
    *("test.clean=test", "topline=labeled", "pseudo_labels=true", "matching.hypotheses=asr_lm"),
    *("fusion.beam_size=2", "training.updates=100", "prior.updates=60", "matching.updates=16"),
    "training.checkpoint_seconds=0.05",
)
TIMES = re.compile(r"seconds_per_|audio_per_|time_")
UNSTABLE = {"seconds", "peak_memory_mb", "finished", "versions"}  # of results.json
IGNORED = re.compile(
    r"\.lock$|^tensorboard/|^report\.html$|^metrics\.old\.jsonl$|\.png$|README\.md$|checkpoint\.old\.safetensors$"
)  # the older checkpoint is of whatever update it was time for
TERMINATED = 0.15  # the share of SIGTERM
ENDED_BY = {signal.SIGKILL: (-9,), signal.SIGTERM: (143, -15)}  # -15: before Python could handle it
LONGEST = 600.0  # seconds that an undisturbed run may take


@dataclass
class Count:
    """What happened."""

    runs: int = 0
    kills: int = 0
    terminations: int = 0
    saved_on_termination: int = 0
    refused_restarts: int = 0
    orphans: int = 0
    killed_in: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


class Soak:
    """Runs in folders below `root`, whose data they share."""

    def __init__(self, root: Path, workers: int, seed: int) -> None:
        self.root, self.workers = root, workers
        self.random = random.Random(f"{seed} {workers}")
        self.count = Count()
        self.watched: list[tuple[float, list[int]]] = []

    def straight(self) -> None:
        """Make the run that is not disturbed, and see how long it takes, and how long when it is all done."""
        self.folder = self.root / f"straight-{self.workers}"
        took = []
        for _ in range(2):
            began = time.monotonic()
            with self.start() as process:
                if process.wait(LONGEST) != 0:
                    sys.exit(f"the undisturbed run failed: {self.said()}")
            took.append(time.monotonic() - began)
        self.seconds, self.seconds_again = took
        self.expected = outcome(self.folder)
        records = (self.folder / "runs/tiny").glob("**/stage.json")
        self.stages = {
            str(each.parent.relative_to(self.folder / "runs/tiny")): json.loads(each.read_text())["seconds"]
            for each in sorted(records)
        }

    def run(self, kills: int) -> None:
        """Make runs and kill them until there have been so many kills."""
        while self.count.kills < kills and not self.count.failures:
            self.count.runs += 1
            self.folder = self.root / f"killed-{self.workers}-{self.count.runs}"
            while not self.count.failures and not self.attempt(kills):
                pass
            if not self.count.failures:
                self.compare()

    def attempt(self, kills: int) -> bool:
        """Start or restart a run, and kill it unless it ends before or was killed often enough; whether it ended."""
        last = self.count.kills >= kills
        number = signal.SIGTERM if self.random.random() < TERMINATED else signal.SIGKILL
        with self.start() as process:
            self.count_orphans()
            try:
                code = process.wait(LONGEST if last else self.moment(process))
            except subprocess.TimeoutExpired:
                if last:
                    process.kill()
                    self.count.failures.append(f"{self.folder.name} hangs: {self.said()}")
                    return False
                return self.end(process, number)
        if code == 2 and "another process is at work" in self.said():
            self.count.refused_restarts += 1
        elif code != 0:
            self.count.failures.append(f"{self.folder.name} ended with {code}: {self.said()}")
        return code == 0

    def moment(self, process: subprocess.Popen[bytes]) -> float:
        """Seconds to wait before the kill: half of them at any time, half in a stage, however short that is."""
        run = self.folder / "runs/tiny"
        left = [name for name in self.stages if not is_finished(run / name)]
        if not left or self.random.random() < 0.5:
            return self.random.uniform(0.3 * self.seconds_again, self.seconds)
        stage, share = self.random.choice(left), self.random.random()
        while process.poll() is None and not (run / stage / "stage.json").exists():
            time.sleep(0.001)
        return share * self.stages[stage]

    def end(self, process: subprocess.Popen[bytes], number: signal.Signals) -> bool:
        """Send a process the signal; whether it had ended by itself."""
        where, children = stage_of(self.folder / "runs/tiny"), children_of(process.pid)
        process.send_signal(number)
        code = process.wait(LONGEST)
        self.watched.append((time.monotonic() + 1, children))
        if code == 0:  # it was faster
            return True
        if code not in ENDED_BY[number]:
            self.count.failures.append(
                f"{self.folder.name}, sent {number.name}, ended with {code}: {self.said()}"
            )
        self.count.kills += 1
        self.count.killed_in[where] += 1
        if number == signal.SIGTERM:
            self.count.terminations += 1
            self.count.saved_on_termination += ": saved at update " in self.said()
        return False

    def start(self) -> subprocess.Popen[bytes]:
        """Start the run in the folder; what it says is in `log.txt` there."""
        self.folder.mkdir(exist_ok=True)
        data = [f"{name}={self.root / name}" for name in ("labeled", "unlabeled")]
        words = ["run", str(self.root / "tiny.yaml"), *data, f"text={self.root / 'text.txt'}"]
        words += [
            f"{key}={self.root / value}" if key in ("test.clean", "topline") else f"{key}={value}"
            for key, value in (each.split("=") for each in SETTINGS)
        ]
        words.append(f"audio.workers={self.workers}")
        with (self.folder / "log.txt").open("wb") as log:
            command = [sys.executable, "-c", MAIN, *words]
            return subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)

    def said(self) -> str:
        """The end of what the last attempt said."""
        return (self.folder / "log.txt").read_text(encoding="utf-8", errors="replace")[-3000:]

    def count_orphans(self) -> None:
        """Count children that are alive a second after their parent was killed."""
        for deadline, children in self.watched:
            for each in children:
                ended, _, _ = select.select([each], [], [], max(0.0, deadline - time.monotonic()))
                self.count.orphans += not ended
                os.close(each)
        self.watched.clear()

    def compare(self) -> None:
        """Compare the run that was killed with the one that was not; equal ones are removed."""
        found = outcome(self.folder)
        different = sorted(
            name for name in {*found, *self.expected} if found.get(name) != self.expected.get(name)
        )
        if different:
            self.count.failures.append(
                f"{self.folder} differs from straight-{self.workers}: {', '.join(different)}"
            )
        else:
            shutil.rmtree(self.folder)


def outcome(folder: Path) -> dict[str, Any]:
    """What a run leaves behind, by file, less the times it took."""
    run = folder / "runs/tiny"
    return {
        name: content_of(path)
        for path in sorted(run.rglob("*"))
        if path.is_file() and not IGNORED.search(name := str(path.relative_to(run)))
    }


def content_of(path: Path) -> Any:
    """The content of a file, less what tells of times."""
    if path.name == "metrics.jsonl":
        entries = [json.loads(line) for line in path.read_text().splitlines()]
        return [{name: each[name] for name in each if not TIMES.match(name)} for each in entries]
    if path.name == "results.json":
        return {name: value for name, value in json.loads(path.read_text()).items() if name not in UNSTABLE}
    if path.name == "stage.json":
        record = json.loads(path.read_text())
        return [record[name] for name in ("finished", "recipe", "files")]
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def stage_of(run: Path) -> str:
    """The stage that a run is at, as its records tell."""
    for file in run.glob("**/stage.json"):
        if not is_finished(file.parent):
            return str(file.parent.relative_to(run))
    return "between stages"


def is_finished(stage: Path) -> bool:
    """Whether the record of a stage is there and tells so."""
    file = stage / "stage.json"
    return file.exists() and bool(json.loads(file.read_text())["finished"])


def children_of(process: int) -> list[int]:
    """Descriptors of the children of a process."""
    return list(_children(process))


def _children(process: int) -> Iterator[int]:
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        for child in task.read_text().split():
            try:
                yield os.pidfd_open(int(child))
            except ProcessLookupError:  # it has just ended
                continue


def main() -> None:
    """Soak with 0 and with 2 workers; the folder is kept where something failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="in all")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="soak-"))
    make_folders(root)
    summary: dict[str, Any] = {"seed": options.seed}
    for workers, kills in ((0, options.kills // 2), (2, options.kills - options.kills // 2)):
        soak = Soak(root, workers, options.seed)
        soak.straight()
        began = time.monotonic()
        soak.run(kills)
        soak.count_orphans()
        summary[f"workers_{workers}"] = {
            **soak.count.__dict__,
            "seconds": round(time.monotonic() - began),
            "seconds_of_a_run": round(soak.seconds, 1),
        }
    print(json.dumps(summary, indent=2))
    parts = [each for each in summary.values() if isinstance(each, dict)]
    if any(each["failures"] or each["refused_restarts"] or each["orphans"] for each in parts):
        sys.exit(f"failed; the runs are in {root}")
    shutil.rmtree(root)


if __name__ == "__main__":
    main()
