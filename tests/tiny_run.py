"""A whole run of a few seconds: folders of tones, a recipe of tiny sizes, and the command line."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import soundfile
import typer
from narrowing import of_type
from tiny_language import sentences, speak
from typer.core import TyperGroup

from priormatch.cli import main
from priormatch.cli.app import app

RECIPE = """
name: tiny
threads: 1
audio: {workers: 0}
tokenizer: {pieces: 31, source: text}
model:
  n_mels: 20
  channels: [4, 6]
  blocks: [1, 1]
  kernel: 5
  size: 48
  dropout: 0.1
  kind: hybrid
  longest_output: 24
training:
  updates: 60
  batch: {seconds: 8, utterances: 0}
  optimizer: {kind: adamw, learning_rate: 0.005, warm_up: 10, clip: 5.0}
  window_updates: 40
  window_deviation: 3.0
  ctc_weight: 0.5
  report_every: 4
  validate_every: 20
prior:
  model: {embedding: 12, width: 8, bottlenecks: [[4, 8, 1]], head: 10, kernel: 3}
  updates: 20
  batch_tokens: 200
  validate_every: 10
  validation_share: 0.1
  optimizer: {kind: adamw, learning_rate: 0.01, clip: 1.0}
matching:
  updates: 8
  batch: {seconds: 8, utterances: 0}
  optimizer: {kind: adamw, learning_rate: 0.001, clip: 5.0}
  combine: sum
  mixing: [1, 2]
  refresh_every: 4
  max_proposal_cer: 1000
"""


def make_folders(root: Path) -> None:
    """Write labeled/, unlabeled/ and test/ with four speakers each, text.txt and tiny.yaml."""
    for name, count, transcribed in (("labeled", 24, True), ("unlabeled", 20, False), ("test", 8, True)):
        for number, text in enumerate(sentences(count, seed=len(name), most_words=4)):
            path = root / name / f"{name}-speaker{number % 4}" / f"{number}.wav"
            path.parent.mkdir(parents=True, exist_ok=True)
            soundfile.write(path, speak(text), 16_000)
            if transcribed:
                path.with_suffix(".txt").write_text(text)
    (root / "text.txt").write_text("".join(f"{text}\n" for text in sentences(120, seed=99)))
    (root / "tiny.yaml").write_text(RECIPE)


def command(*words: object) -> int:
    """Run the command line with these words; tells its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["priormatch", *map(str, words)])
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
    return 0


def verbs() -> list[str]:
    """Every verb as it is typed, those below `prepare` too."""
    root = of_type(TyperGroup, typer.main.get_command(app))
    inner = {f"prepare {name}" for name in of_type(TyperGroup, root.commands["prepare"]).commands}
    return sorted({*root.commands} - {"prepare"} | inner)


def files(folder: Path) -> dict[str, bytes]:
    """Everything in a folder, to see that nothing was written over."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@contextmanager
def file_limit(most_bytes: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes: writes fail in the system, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
