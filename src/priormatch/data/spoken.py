"""Corpora spoken on the spot: what the demo's and the synthetic one have in common on disk."""

import gzip
import json
import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from lhotse import MonoCut, Recording
from lhotse.audio import AudioSource

from priormatch.data import SAMPLE_RATE

Job = TypeVar("Job")
Result = TypeVar("Result")


@contextmanager
def in_parallel(
    function: Callable[[Job], Result], jobs: Sequence[Job], at_once: int, apart: bool = False
) -> Iterator[Iterator[Result]]:
    """Do jobs several at a time and yield their results in order; what is not begun at the end is left undone.

    Threads will do for a few: each waits for an espeak process or for NumPy. Beyond that the interpreter's lock is in
    the way, and they are better done in processes `apart`.
    """
    pool: Executor = (
        ProcessPoolExecutor(at_once, multiprocessing.get_context("spawn"))
        if apart and at_once > 1
        else ThreadPoolExecutor(at_once)
    )
    try:
        yield pool.map(function, jobs)
    finally:
        pool.shutdown(cancel_futures=True)


def recording_at(file: Path, samples: int) -> Recording:
    """Describe a WAV file at 16 kHz with one channel and so many samples; it is called as the file is."""
    source = AudioSource(type="file", channels=[0], source=str(file))
    return Recording(file.stem, [source], SAMPLE_RATE, samples, samples / SAMPLE_RATE)


def without_text(cut: MonoCut) -> MonoCut:
    """The same utterance with its transcript taken away."""
    return cut.map_supervisions(lambda supervision: replace(supervision, text=None))


def write_cuts(path: Path, cuts: Iterable[MonoCut]) -> None:
    """Write a manifest whose bytes depend on the cuts alone (lhotse's own writer stamps it with the time)."""
    lines = "".join(json.dumps(cut.to_dict()) + "\n" for cut in cuts)
    path.write_bytes(gzip.compress(lines.encode(), mtime=0))
