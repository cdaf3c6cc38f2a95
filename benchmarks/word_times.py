"""Word times beside true ones: python benchmarks/word_times.py [--encoder conformer|tds | --model FOLDER] [--json]

Synthesizes sentences like the demo's labeled speech, whose word boundaries espeak-ng reports, and transcribes them. The
starts and ends of correct words are compared with the true ones. Without --model, a CTC model with character tokens is
trained first, on as much speech as the demo has labeled.

espeak-ng speaks a few pairs such as `in the` as one word. The boundary inside such a pair is unknown and left out.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import cycle, pairwise
from pathlib import Path
from typing import NamedTuple

import espeak_words
import numpy as np
import rich.table
import torch
from measure import versions
from rich.console import Console

from priormatch.config import load_settings
from priormatch.config.load import recipe_path
from priormatch.data import SAMPLE_RATE
from priormatch.data.clips import open_samples
from priormatch.data.tokenizer import train_tokenizer
from priormatch.pipeline.work import train_supervised, transcripts_of
from priormatch.prepare.demo import SEEN, SEEN_VOICES, DemoSizes, prepare_demo, record
from priormatch.prepare.demo_grammar import draw_sentences
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.recognizers.transcribing import Transcription, Word, cutting_for, transcribe_all
from priormatch.scoring.alignment import align

TOLERANCE = 80  # ms
PAUSE = 0.15  # seconds before and after each sentence
TOGETHER = 8  # sentences with the same voice, rate and pitch, synthesized by one process
CTC = ("model.kind=ctc", "training.ctc_weight=0")
ENCODERS = {
    "conformer": (
        "model.encoder=conformer",
        "model.conformer.width=96",
        "model.conformer.layers=4",
        "model.conformer.kernel=15",
        "training.optimizer.learning_rate=0.001",
    ),
    # frames of 40 ms, since characters follow each other faster than every 80 ms; with the demo's kernel of 9 only 45 %
    # of the times were within 80 ms
    "tds": ("model.channels=[8,10]", "model.blocks=[2,2]", "model.kernel=5"),
}


class Spoken(NamedTuple):
    """A sentence, its samples at 16 kHz, and its word boundaries in seconds, None where unknown."""

    text: str
    samples: np.ndarray
    boundaries: list[float | None]


@dataclass(frozen=True)
class Differences:
    """The absolute differences from true times."""

    count: int
    median_ms: float
    p90_ms: float
    percent_within_80_ms: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Differences":
        """Summarize differences; NaN if there are none."""
        values = 1000 * np.abs(seconds) if seconds else np.array([np.nan])
        within = 100 * float(np.mean(values <= TOLERANCE))
        return cls(len(seconds), float(np.median(values)), float(np.percentile(values, 90)), within)


def main() -> None:
    """Measure, and print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--encoder", choices=ENCODERS, default="conformer", help="encoder of the trained model"
    )
    parser.add_argument("--model", type=Path, help="folder of a model to measure instead")
    parser.add_argument("--updates", type=int, default=800, help="updates of the training")
    parser.add_argument("--sentences", type=int, default=160, help="sentences to transcribe")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    if options.model:
        model = SpeechRecognizer.load(options.model)
    else:
        with tempfile.TemporaryDirectory() as folder:
            model = trained(options.encoder, options.updates, Path(folder))
    spoken = synthesize(options.sentences)
    starts, ends = compare(model, spoken)
    found = {"start": Differences.of(starts), "end": Differences.of(ends)}
    words = sum(len(each.text.split()) for each in spoken)
    if options.json:
        tree = {name: asdict(each) for name, each in found.items()}
        print(json.dumps({**tree, "words": words, "versions": versions("torch", "espeakng-loader")}))
        return
    table = rich.table.Table(
        "", "correct words", "median ms", "90 % ms", f"within {TOLERANCE} ms", title=f"{words} words"
    )
    for name, each in found.items():
        figures = f"{each.median_ms:.0f}", f"{each.p90_ms:.0f}", f"{each.percent_within_80_ms:.1f} %"
        table.add_row(name, str(each.count), *figures)
    Console().print(table)


def trained(encoder: str, updates: int, folder: Path) -> SpeechRecognizer:
    """Train a model on labeled speech of the demo's size and kind."""
    sizes = DemoSizes(unlabeled=1, validation=20, test=1, text=1, text_validation=1)
    prepare_demo(folder / "data", seed=1, sizes=sizes)
    schedule = f"training.updates={updates}", f"training.validate_every={updates}"
    settings = load_settings(recipe_path("demo"), [*CTC, *ENCODERS[encoder], *schedule])
    labeled = folder / "data/labeled.jsonl.gz"
    train_tokenizer(transcripts_of(labeled), 0, kind="characters").save(folder / "tokenizer")
    validation = {"seen": folder / "data/validation-seen.jsonl.gz"}
    out = folder / "ctc"
    train_supervised([labeled], validation, folder / "tokenizer", settings, out, out)
    return SpeechRecognizer.load(out / "model")


def synthesize(count: int) -> list[Spoken]:
    """Sentences in the demo's seen voices, each with a known pause before it."""
    draw, rng = random.Random("word times"), np.random.default_rng(0)
    sentences = draw_sentences(count, draw)
    spoken: list[Spoken] = []
    for first, voice in zip(range(0, count, TOGETHER), cycle(SEEN_VOICES), strict=False):
        texts = sentences[first : first + TOGETHER]
        rate, pitch = draw.randint(*SEEN.rate), draw.randint(*SEEN.pitch)
        fixed = replace(SEEN, rate=(rate, rate), pitch=(pitch, pitch), pause=(PAUSE, PAUSE))
        requests = [(text, voice, rate, pitch) for text in texts]
        answer = subprocess.run(
            [sys.executable, espeak_words.__file__],
            input=json.dumps(requests),
            capture_output=True,
            text=True,
            check=True,
        )
        found = [[each and PAUSE + each for each in row] for row in json.loads(answer.stdout)]
        spoken += map(Spoken, texts, record(texts, voice, fixed, rng), found)
    return spoken


def compare(model: SpeechRecognizer, spoken: Sequence[Spoken]) -> tuple[list[float], list[float]]:
    """Found minus true starts, and found minus true ends, of all correct words, in seconds."""
    cutting = cutting_for(model)
    sources = [partial(open_samples, each.samples, SAMPLE_RATE, cutting) for each in spoken]
    starts: list[float] = []
    ends: list[float] = []
    for each, found in zip(spoken, transcribe_all(model, sources), strict=True):
        for word, (start, end) in correct_words(each, found):
            starts += [] if start is None else [word.start - start]
            ends += [] if end is None else [word.end - end]
    return starts, ends


def correct_words(
    spoken: Spoken, found: Transcription
) -> Iterator[tuple[Word, tuple[float | None, float | None]]]:
    """The correct words of a transcription with their true starts and ends."""
    words = iter([word for segment in found.segments for word in segment.words])
    spans = pairwise(spoken.boundaries)
    for pair in align(spoken.text, found.text):
        span = next(spans) if pair.reference else None
        word = next(words) if pair.hypothesis else None
        if word is not None and span is not None and pair.kind == "equal":
            yield word, span


if __name__ == "__main__":
    main()
