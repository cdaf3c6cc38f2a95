"""Make many updates of matching with two processes, and compare their memory early and late.

Run it by hand: `PYTHONPATH=src:tests python tests/soak/memory.py --updates 10000`. Prints what it found as JSON; fails
if the resident memory of a process grew by more than 1 % between the fifth and the last tenth of the updates.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import soundfile
import torch
from lhotse import CutSet, Recording
from rank_jobs import ends, matching, start
from tiny_language import sentences, speak

from priormatch import distributed
from priormatch.config import OptimizerSettings
from priormatch.data.manifest import utterance
from priormatch.data.tokenizer import train_tokenizer
from priormatch.training.loop import Schedule, fit

PROCESSES = 2
SAMPLES = 200
MOST_GROWTH = 0.01
LONGEST = 7200.0  # seconds


def make(folder: Path) -> None:
    """Write two corpora of tones and a tokenizer."""
    train_tokenizer(sentences(200), 31).save(folder / "tokenizer")
    for name, count in (("labeled", 12), ("unlabeled", 20)):
        cuts = []
        for number, text in enumerate(sentences(count, seed=count)):
            path = folder / f"{name}-{number}.wav"
            soundfile.write(path, speak(text), 16_000)
            cuts.append(utterance(path.stem, Recording.from_file(path), text, "ann", "English"))
        CutSet.from_cuts(cuts).to_file(folder / f"{name}.jsonl.gz")


def resident() -> int:
    """The bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def learn(folder: Path, updates: int) -> None:
    """Match, and write how much memory this process had after each of so many samples."""
    task, seen = matching(folder), list[int]()
    backward, every = task.backward, max(updates // SAMPLES, 1)

    def watched(update: int, watch: object) -> object:
        if update % every == 0:
            seen.append(resident())
        return backward(update, watch)  # type: ignore[arg-type]

    task.backward = watched  # type: ignore[method-assign,assignment]
    schedule = Schedule(
        updates, OptimizerSettings("adamw", 0.001, clip=5.0), seed=3, validate_every=max(updates // 20, 1)
    )
    fit(task, schedule, folder / "learned", folder / "learned")
    (folder / f"memory-{distributed.rank()}.json").write_text(json.dumps(seen))


def growth(seen: Sequence[int]) -> float:
    """The growth from the fifth to the last tenth, as a share."""
    tenth = len(seen) // 10
    early, late = statistics.median(seen[4 * tenth : 5 * tenth]), statistics.median(seen[-tenth:])
    return late / early - 1


def main() -> None:
    """Start the processes, and judge their memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, help="of a process")
    parser.add_argument("--samples", type=Path, help="also write all samples here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.folder is not None:
        with distributed.joined():
            learn(options.folder, options.updates)
        return
    with tempfile.TemporaryDirectory() as place:
        folder, began = Path(place), time.monotonic()
        make(folder)
        words = [__file__, "--updates", str(options.updates), "--folder", place]
        found = ends(start(PROCESSES, words, folder), LONGEST)
        if any(code != 0 for code, _ in found):
            sys.exit(f"a process failed: {found}")
        memory = [json.loads((folder / f"memory-{rank}.json").read_text()) for rank in range(PROCESSES)]
    if options.samples is not None:
        options.samples.write_text(json.dumps(memory))
    summary = {
        "updates": options.updates,
        "seconds": round(time.monotonic() - began),
        "megabytes_at_the_end": [round(each[-1] / 1e6, 1) for each in memory],
        "growth_percent": [round(100 * growth(each), 3) for each in memory],
    }
    print(json.dumps(summary, indent=2))
    if any(growth(each) > MOST_GROWTH for each in memory):
        sys.exit("the memory of a process grows")


if __name__ == "__main__":
    main()
