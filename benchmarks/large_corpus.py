"""A corpus beyond memory: python benchmarks/large_corpus.py [--utterances 18000000] [--pieces 1000000000] [--folder F]

Writes an index of 60,000 hours in 18 million utterances, all with the audio of one file, and the tokenized text of a
prior, as large as they are for the paper's largest runs (15 GB, removed afterwards). Then measures, each in a process
of its own: the time from opening the corpus to the first batch, the same from the middle of an epoch, both with worker
processes; and the first batch of the prior. Memory is proportional (PSS), of the process and of its workers.

How fast an index and tokenized text are made is measured on a small share.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import soundfile
import torch
from measure import Table, describe

from priormatch.config import AudioSettings, BatchSettings
from priormatch.data import SAMPLE_RATE, index, sentences
from priormatch.data.batches import BatchStream, UtteranceReader
from priormatch.data.corpus import Corpus, open_cuts
from priormatch.data.index import index_of, stamp_of
from priormatch.data.plan import plan_batches
from priormatch.data.sentences import Sentences
from priormatch.data.tokenizer import Tokenizer, train_tokenizer

SHORTEST, LONGEST = 4.0, 20.0  # seconds, 12 in the mean
SIZES = {
    "first batch, 16 shapes": BatchSettings(seconds=600, buckets=16),
    "first batch, 128 utterances": BatchSettings(utterances=128),
}
PRIOR = "first batch of the prior"
PRIORS_BATCH = 60_000  # pieces
PIECES_A_SENTENCE = 26  # about, in LibriSpeech's text for language models
CLASSES = 5001
AT_ONCE = 100_000
OWN, PAGES = "MB of its own", "MB of mapped files"
SHARE = 200  # of the utterances, of which an index is really made


def main() -> None:
    """Make the files, measure each case in its own process, and print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--utterances", type=int, default=18_000_000)
    parser.add_argument("--pieces", type=int, default=1_000_000_000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--folder", type=Path, help="where to put the temporary files")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--case", nargs=3, metavar=("FOLDER", "CASE", "SKIP"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(
            json.dumps(
                measured(Path(options.case[0]), options.case[1], int(options.case[2]), options.workers)
            )
        )
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        rows = made(folder, options.utterances // SHARE)
        write_index(folder, options.utterances)
        write_text(folder, options.pieces)
        for case in SIZES:
            rows[case] = in_a_process(folder, case, 0, options.workers)
            middle = int(rows[case]["batches"]) // 2
            rows[case.replace("first", "middle")] = in_a_process(folder, case, middle, options.workers)
        rows[PRIOR] = in_a_process(folder, PRIOR, 0, 0)
    if options.json:
        print(json.dumps({"machine": describe(torch.device("cpu")), "rows": rows}))
        return
    table = Table(f"{options.utterances:,} utterances, {options.pieces:,} pieces")
    for case, row in rows.items():
        table.add(case, 1000 * row["seconds"], "; ".join(in_words(row, who) for who in ("main", "worker")))
    table.show()


def in_words(row: dict[str, float], who: str) -> str:
    """The memory of a process."""
    known = {what: row[f"{who}, {what}"] for what in (OWN, PAGES) if f"{who}, {what}" in row}
    return (
        f"{who} {', '.join(f'{megabytes:,.0f} {what}' for what, megabytes in known.items())}" if known else ""
    )


def in_a_process(folder: Path, case: str, skip: int, workers: int) -> dict[str, float]:
    """What a fresh process measures."""
    command = [sys.executable, __file__, "--workers", str(workers), "--case", str(folder), case, str(skip)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return found


def measured(folder: Path, case: str, skip: int, workers: int) -> dict[str, float]:
    """Seconds to the batch after `skip` others, and the memory of the main process and the largest worker then."""
    tokenizer, began = Tokenizer.load(folder), time.perf_counter()
    if case == PRIOR:
        text = Sentences.of_file(folder / "text.txt", tokenizer, folder / "tokenized")
        plan = plan_batches(text.lengths, BatchSettings(seconds=PRIORS_BATCH), 0, 0)
        text.batch(plan[skip])
        seconds, batches, readers = time.perf_counter() - began, len(plan), [os.getpid()]
    else:
        corpus = Corpus.load(folder / "cuts.jsonl", AudioSettings())
        stream = BatchStream(
            UtteranceReader(corpus, tokenizer, speeds=(0.9, 1.1)), SIZES[case], 0, skip, workers=workers
        )
        stream.take()
        seconds, readers = time.perf_counter() - began, children()
    used = {"main": memory(os.getpid()), "worker": max(map(memory, readers), key=lambda each: each[OWN])}
    if case != PRIOR:
        batches = len(stream.plan.epoch(0))
        stream.close()
    named = {f"{who}, {what}": megabytes for who, its in used.items() for what, megabytes in its.items()}
    return {"seconds": seconds, "batches": batches, **named}


def memory(process: int) -> dict[str, float]:
    """The proportional set size of a process in MB: memory of its own, and pages of files, which can be dropped."""
    found = dict(
        line.split()[:2] for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
    )
    own, pages = int(found["Pss_Anon:"]), int(found["Pss_File:"])
    return {OWN: (own + int(found["Pss_Shmem:"])) / 1024, PAGES: pages / 1024}


def children() -> list[int]:
    """The worker processes of this process."""
    tasks = Path("/proc/self/task").glob("*/children")
    return [int(each) for task in tasks for each in task.read_text().split()]


def line(name: str, audio: Path, seconds: str, text: str) -> str:
    """A cut as manifests have it."""
    recording = {
        "id": "noise",
        "sources": [{"type": "file", "channels": [0], "source": str(audio)}],
        "sampling_rate": SAMPLE_RATE,
        "num_samples": round(LONGEST * SAMPLE_RATE),
        "duration": LONGEST,
        "channel_ids": [0],
    }
    whole = {"start": 0, "duration": 0, "channel": 0}
    supervision = {"id": name, "recording_id": "noise", **whole, "text": text, "speaker": "1234"}
    cut = {"id": name, **whole, "supervisions": [supervision], "recording": recording, "type": "MonoCut"}
    return json.dumps(cut).replace('"duration": 0', f'"duration": {seconds}') + "\n"


def write_index(folder: Path, utterances: int) -> None:
    """The files of an index, without its manifest, whose lines differ only in numbers of equal width."""
    audio, manifest = folder / "noise.flac", folder / "cuts.jsonl"
    random = np.random.default_rng(0)
    soundfile.write(audio, random.normal(0, 0.1, round(LONGEST * SAMPLE_RATE)), SAMPLE_RATE)
    manifest.write_text("its index is made directly\n")
    out = index_of(manifest)
    out.mkdir()
    durations = random.uniform(SHORTEST, LONGEST, utterances).round(2)
    pattern = np.frombuffer(line("########", audio, "@@@@@", "a few words of text").encode(), np.uint8)
    digits, places = np.flatnonzero(pattern == ord("#")), np.flatnonzero(pattern == ord("@"))
    with (out / index.LINES).open("wb") as lines, (out / index.IDS).open("wb") as ids:
        for start in range(0, utterances, AT_ONCE):
            some = durations[start : start + AT_ONCE]
            block = np.tile(pattern, (len(some), 1))
            names = [f"{number:08d}" for number in range(start, start + len(some))]
            block[:, digits] = np.tile(letters(names), 2)
            block[:, places] = np.tile(letters([f"{each:5.2f}" for each in some]), 2)
            lines.write(block.tobytes())
            ids.write("".join(f'"{each}"\n' for each in names).encode())
    np.save(out / index.BEGINS, np.arange(utterances + 1) * len(pattern))
    np.save(out / index.DURATIONS, durations)
    np.save(out / index.TRANSCRIBED, np.ones(utterances, np.bool_))
    (out / index.STAMP).write_text(json.dumps(stamp_of(manifest)))


def letters(words: list[str]) -> np.ndarray:
    """Words of equal length as bytes: (words, letters)."""
    return np.frombuffer("".join(words).encode(), np.uint8).reshape(len(words), -1)


def write_text(folder: Path, pieces: int) -> None:
    """The files of a tokenized text, without the text."""
    text, out, random = folder / "text.txt", folder / "tokenized", np.random.default_rng(0)
    text.write_text("it is tokenized already\n")
    tokenizer = train_tokenizer(["it is tokenized already", "a few words of text"], 0, kind="characters")
    tokenizer.save(folder)
    Sentences.of_file(text, tokenizer, out)  # its record fits the text
    lengths = np.maximum(random.poisson(PIECES_A_SENTENCE, pieces // PIECES_A_SENTENCE), 2).astype(np.int32)
    (out / sentences.LENGTHS).write_bytes(lengths.tobytes())
    with (out / sentences.PIECES).open("wb") as file:
        for start in range(0, int(lengths.sum()), 1 << 24):
            file.write(random.integers(0, 8, min(1 << 24, int(lengths.sum()) - start), np.uint16).tobytes())


def made(folder: Path, utterances: int) -> dict[str, dict[str, float]]:
    """The seconds in which an index is made of a manifest, and a text is tokenized."""
    manifest, text, random = folder / "share.jsonl", folder / "share.txt", np.random.default_rng(0)

    def lines() -> Iterator[str]:
        for number in range(utterances):
            yield line(
                f"{number:08d}", folder / "noise.flac", f"{random.uniform(4, 20):.2f}", "a few words of text"
            )

    manifest.write_text("".join(lines()))
    index.MOST_IN_MEMORY = 1
    began = time.perf_counter()
    open_cuts(manifest)
    indexed = time.perf_counter() - began
    words = np.array([f"w{number}" for number in range(100_000)])
    drawn = words[random.zipf(1.3, (100_000, 20)) % len(words)]
    text.write_text("\n".join(map(" ".join, drawn)) + "\n")
    tokenizer = train_tokenizer(["w 0 1 2 3 4 5 6 7 8 9"], 0, kind="characters")
    began = time.perf_counter()
    Sentences.of_file(text, tokenizer, folder / "tokenized-share")
    tokenized = time.perf_counter() - began
    return {
        f"index of {utterances:,} cuts": {"seconds": indexed},
        f"{drawn.size:,} words tokenized": {"seconds": tokenized},
    }


if __name__ == "__main__":
    main()
