"""Matching of small models of transformers: python benchmarks/small_models.py --labeled CUTS --unlabeled CUTS
--validation CUTS --report CUTS --text FILE --out FOLDER [--seeds 0,1,2]

Makes a Whisper, a wav2vec 2.0 and a GPT-2 (made_models.py) as ordinary folders of transformers, and two other priors
with `priormatch train-prior`: a convolutional one over characters, and a 4-gram. `priormatch run` then fine-tunes each
recognizer, trains it for longer, on pseudo-labels and with all labels, and matches it with the first prior;
`priormatch match` matches it with the others. What is done is not done again: an interrupted call resumes. With --jobs
several recognizers and seeds are trained at the same time, as small models leave much of a GPU idle. The table is
written to FOLDER/table.md and FOLDER/results.json from what is there.

With the splits of recipes/librispeech-small.yaml:

  python benchmarks/small_models.py --labeled data/librispeech-small/labeled.jsonl.gz
    --unlabeled data/librispeech-small/unlabeled.jsonl.gz --validation data/librispeech-small/validation.jsonl.gz
    --report data/librispeech-small/report.jsonl.gz --text data/librispeech-small/text.txt --out runs/small-models
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from made_models import TINY, Sizes, Speech, Training, make_gpt2, make_wav2vec2, make_whisper
from rich.console import Console
from rich.markdown import Markdown

from priormatch.config import load_settings, recipe_path
from priormatch.device import find_device
from priormatch.files import replace_text
from priormatch.pipeline import work
from priormatch.progress import say
from priormatch.runs.results import score_systems

RECOGNIZERS, PRIORS = ("whisper", "wav2vec2"), ("gpt2", "conv", "ngram")
SETS = ("validation", "report")
HELD_OUT = 100  # every such line of the text
ROWS = {
    "supervised_start": "fine-tuned",
    "supervised": "supervised, as long",
    "pseudo_label": "pseudo-labels",
    "gpt2": "LPM, GPT-2",
    "conv": "LPM, ConvLM",
    "ngram": "LPM, 4-gram",
    "topline": "topline",
}
LEARNING_RATE = 2e-4
VALIDATE_ON = 200  # utterances, while models are trained


@dataclass(frozen=True)
class Experiment:
    """The files and settings of all trainings."""

    options: argparse.Namespace

    @property
    def out(self) -> Path:
        """The folder of everything."""
        return Path(self.options.out)

    @cached_property
    def device(self) -> torch.device:
        """Where models are trained."""
        return find_device(self.options.device)

    @property
    def sizes(self) -> Sizes:
        """The sizes of the models."""
        return TINY if self.options.small else Sizes()

    @cached_property
    def speech(self) -> Speech:
        """The labeled speech, read when it is first needed."""
        return Speech.read(self.options.labeled, self.sizes.seconds, self.device)

    def training(self, share: float, learning_rate: float, seed: int, batch: int | None = None) -> Training:
        """A part of the training of a model."""
        updates = max(round(share * self.options.made_updates), 1)
        return Training(updates, learning_rate, batch or self.options.batch_seconds, seed)

    def recognizer(self, kind: str, seed: int) -> Path:
        """The folder of a recognizer of transformers."""
        folder = self.out / "made" / f"{kind}-{seed}"
        if folder.exists():
            return folder
        if kind == "whisper":
            parts = self.training(1.0, 1e-3, seed), self.training(1.0, 1e-3, seed)
            return make_whisper(folder, self.speech, self.sizes, parts, self.device)
        parts = self.training(0.3, 1e-3, seed), self.training(1.7, 7e-4, seed)
        return make_wav2vec2(folder, self.speech, self.sizes, parts, self.device)

    def text(self, name: str) -> Path:
        """The text for training, or the held-out one."""
        folder = self.out / "text"
        if not folder.exists():
            new = self.out / "text.partial"
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir(parents=True)
            with (
                Path(self.options.text).open(encoding="utf-8") as given,
                (new / "training.txt").open("w", encoding="utf-8") as training,
                (new / "held-out.txt").open("w", encoding="utf-8") as held_out,
            ):
                for number, line in enumerate(given):
                    (training if number % HELD_OUT else held_out).write(line)
            new.replace(folder)
        return folder / f"{name}.txt"

    def prior(self, kind: str) -> Path:
        """The folder of a prior."""
        folder = self.out / "priors" / kind
        if kind == "gpt2":
            if not folder.exists():
                wanted = self.training(1.0, 1e-3, 0, self.options.batch_tokens)
                sentences = self.text("training").read_text(encoding="utf-8").splitlines()
                make_gpt2(folder, sentences, self.sizes, wanted, self.device)
            return folder
        if (made := folder / "made").exists():  # jobs at the same time would lock each other out
            return folder / "model"
        texts = "--text", self.text("training"), "--validation-text", self.text("held-out")
        more = [f"prior.kind={kind}"]
        if kind == "conv":
            pieces = self.out / "priors" / "pieces"
            verb("tokenizer", "--recipe", "own", "--text", self.text("training"), "--out", pieces)
            texts = *texts, "--tokenizer", pieces
            more += [f"prior.updates={self.options.made_updates}", *self.options.overrides]
        verb("train-prior", *texts, "--recipe", "own", "--out", folder, *more, f"device={self.device}")
        made.touch()
        return folder / "model"

    def settings(self, seed: int) -> list[str]:
        """The settings of a run and of matching with another prior."""
        options = self.options
        found = [
            f"device={self.device}",
            f"matching.updates={options.updates}",
            f"training.seed={seed}",
            f"matching.refresh_every={max(options.updates // 10, 1)}",
            f"training.validate_every={max(options.updates // 5, 1)}",
            f"training.validate_on={VALIDATE_ON}",
        ]
        for part in ("training", "matching"):
            found += [
                f"{part}.batch.seconds={options.batch_seconds}",
                f"{part}.optimizer.learning_rate={LEARNING_RATE}",
                f"{part}.optimizer.warm_up={max(options.updates // 20, 1)}",
            ]
        return found + options.overrides

    def run(self, kind: str, seed: int) -> None:
        """Train and decode all systems of a recognizer; of matching that is refused, the others are still there."""
        options, made, first = self.options, self.recognizer(kind, seed), options_of(self.options.priors)[0]
        name, prior = f"{kind}-{seed}", self.prior(first)
        settings = self.settings(seed)
        given = [
            f"name={name}",
            f"runs={self.out / 'runs'}",
            f"labeled={options.labeled}",
            f"unlabeled={options.unlabeled}",
            f"topline={options.unlabeled}",
            f"validation=[{options.validation}]",
            *(f"test.{each}={getattr(options, each)}" for each in SETS),
            f"pretrained.recognizer={made}",
            f"prior.pretrained={prior}",
            f"training.updates={max(options.updates // 2, 1)}",
            "pseudo_labels=true",
        ]
        try:
            verb("run", "pretrained", *given, *settings)
        except subprocess.CalledProcessError as error:
            say(f"{name}: {error}")
        start = self.out / "runs" / name / "supervised" / "model"
        for other in options_of(options.priors)[1:]:
            self.match(start, other, self.out / "matched" / f"{name}-{other}", settings)

    def match(self, start: Path, kind: str, out: Path, settings: list[str]) -> None:
        """Match a recognizer with another prior, and decode the test sets."""
        options = self.options
        speech = ("labeled", "unlabeled", "validation")
        files = [each for name in speech for each in (f"--{name}", getattr(options, name))]
        models = "--model", start, "--prior", self.prior(kind)
        try:
            verb("match", *models, *files, "--recipe", "pretrained", "--out", out, *settings)
            wanted = load_settings(recipe_path("pretrained"), settings)
            for each in SETS:
                cuts, found = getattr(options, each), out / "decoded" / f"{each}.jsonl"
                work.decode_to(out / "model", cuts, wanted, found, words=True)
        except subprocess.CalledProcessError as error:
            say(f"{out.name}: {error}")

    def decoded(self, kind: str, seed: int) -> dict[str, dict[str, Path]]:
        """The transcripts that are there, by system and set."""
        run = self.out / "runs" / f"{kind}-{seed}" / "decoded"
        first = options_of(self.options.priors)[0]
        folders = {name: run / ("lpm" if name == first else name) for name in ROWS}
        for name in set(PRIORS) - {first}:
            folders[name] = self.out / "matched" / f"{kind}-{seed}-{name}" / "decoded"
        return {
            name: {each: folder / f"{each}.jsonl" for each in SETS}
            for name, folder in folders.items()
            if all((folder / f"{each}.jsonl").exists() for each in SETS)
        }


def verb(name: str, *words: object) -> None:
    """Run a verb of priormatch in a process of its own."""
    subprocess.run([sys.executable, "-m", "priormatch", name, *map(str, words)], check=True)


def beside(kind: str, seed: int) -> None:
    """Do everything for a recognizer and a seed in a process of its own."""
    only = ["--recognizers", kind, "--seeds", str(seed), "--jobs", "1"]
    subprocess.run([sys.executable, *sys.argv, *only], check=True)


def options_of(text: str) -> list[str]:
    """The words between commas."""
    return [each for each in text.split(",") if each]


def results_of(experiment: Experiment, kinds: Sequence[str], seeds: Sequence[int]) -> dict[str, Any]:
    """Error rates and WERR of each recognizer, seed and system that is there."""
    found: dict[str, Any] = {}
    for kind in kinds:
        for seed in seeds:
            decoded = experiment.decoded(kind, seed)
            if "supervised" in decoded:
                scored = score_systems(decoded)
                found.setdefault(kind, {})[str(seed)] = {key: scored[key] for key in ("systems", "werr")}
    return found


def table_of(results: dict[str, Any]) -> str:
    """The means over the seeds, with the lowest and the highest value, as Markdown."""
    lines = [f"| recognizer | system | seeds |{''.join(f' {each} WER | CER | WERR |' for each in SETS)}"]
    lines.append(f"|{'---|' * (3 + 3 * len(SETS))}")
    for kind, seeds in results.items():
        values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for result in seeds.values():
            for system, sets in result["systems"].items():
                for each, rates in sets.items():
                    values[system][f"{each} wer"].append(rates["wer"])
                    values[system][f"{each} cer"].append(rates["cer"])
                    if system in result["werr"]:
                        values[system][f"{each} werr"].append(result["werr"][system][each])
        for system, name in ROWS.items():
            if system in values:
                cells = [
                    in_words(values[system][f"{each} {what}"])
                    for each in SETS
                    for what in ("wer", "cer", "werr")
                ]
                lines.append(
                    f"| {kind} | {name} | {len(values[system]['report wer'])} | {' | '.join(cells)} |"
                )
    return "\n".join([*lines, ""])


def in_words(values: Sequence[float]) -> str:
    """The mean, and the range of several values."""
    if not values:
        return ""
    mean = f"{statistics.fmean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.1f} to {max(values):.1f})"


def main() -> None:
    """Make what is missing, and write the table of what is there."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("labeled", "unlabeled", *SETS):
        parser.add_argument(f"--{name}", type=Path, required=True, help="a manifest of cuts")
    parser.add_argument("--text", type=Path, required=True, help="sentences, one per line")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--recognizers", default=",".join(RECOGNIZERS))
    parser.add_argument(
        "--priors", default=",".join(PRIORS), help="the first one is that of `priormatch run`"
    )
    parser.add_argument("--seeds", default="0")
    parser.add_argument(
        "--made-updates", type=int, default=4000, help="of each half of a recognizer, and of GPT-2"
    )
    parser.add_argument("--updates", type=int, default=2000, help="of matching")
    parser.add_argument("--batch-seconds", type=int, default=480)
    parser.add_argument("--batch-tokens", type=int, default=32_768)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--small", action="store_true", help="tiny models, to see that it runs")
    parser.add_argument("--jobs", type=int, default=1, help="recognizers and seeds at the same time")
    parser.add_argument("--priors-only", action="store_true", help="make the priors, and nothing else")
    parser.add_argument("--table-only", action="store_true", help="write the table of what is there")
    parser.add_argument("overrides", nargs="*", help="settings of priormatch, key=value")
    options = parser.parse_intermixed_args()
    experiment, seeds = Experiment(options), [*map(int, options_of(options.seeds))]
    kinds = options_of(options.recognizers)
    if not options.table_only:
        for kind in options_of(options.priors):
            experiment.prior(kind)
        pairs = [(kind, seed) for seed in seeds for kind in kinds] if not options.priors_only else []
        with ThreadPoolExecutor(options.jobs) as pool:
            for done in [
                pool.submit(beside if options.jobs > 1 else experiment.run, *pair) for pair in pairs
            ]:
                done.result()
    results = results_of(experiment, kinds, seeds)
    replace_text(experiment.out / "results.json", json.dumps(results, indent=1))
    replace_text(experiment.out / "table.md", table_of(results))
    Console().print(Markdown(table_of(results)))


if __name__ == "__main__":
    main()
