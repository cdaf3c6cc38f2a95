"""Corpora of cuts, as training and decoding use them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from priormatch.config import AudioSettings
from priormatch.data.decoded import DecodedAudio
from priormatch.distributed import rank, ranks
from priormatch.errors import UserError
from priormatch.progress import say

if TYPE_CHECKING:
    from lhotse.cut import Cut

    from priormatch.data.batches import Batch

ALTERNATIVES = "alternative_texts"
"""The custom field of a supervision with alternative target texts for its utterance."""


class Corpus:
    """Cuts for training or decoding, with their durations; cuts that are too long or too short are left out."""

    def __init__(self, cuts: "Sequence[Cut]", audio: AudioSettings, name: str = "corpus") -> None:
        fits = [cut for cut in cuts if audio.shortest <= cut.duration <= audio.longest]
        self.skipped = len(cuts) - len(fits)
        if self.skipped:
            say(
                f"{name}: {self.skipped} of {len(cuts)} utterances skipped: shorter than {audio.shortest:g} s"
                f" (audio.shortest) or longer than {audio.longest:g} s (audio.longest)"
            )
        if not fits:
            raise UserError(f"{name} holds no utterance between {audio.shortest:g} and {audio.longest:g} s")
        self.name, self.cuts, self.audio = name, fits, audio
        self.durations = np.array([cut.duration for cut in fits])
        self.kept: list[Batch] = []  # batches that stay in memory, for sets that are decoded again and again
        self.decoded: DecodedAudio | None = None  # all audio, if it stays on a GPU

    @staticmethod
    def load(path: Path, audio: AudioSettings, transcribed: bool = False) -> "Corpus":
        """Read a manifest of cuts; `transcribed` leaves out cuts without text and requires at least one with text."""
        cuts = read_cuts(path)
        if transcribed:
            with_text = [cut for cut in cuts if cut_text(cut)]
            if not with_text:
                raise UserError(f"{path} holds no transcribed utterance: give cuts with text")
            if len(with_text) < len(cuts):
                say(
                    f"{path}: {len(cuts) - len(with_text)} of {len(cuts)} utterances have no transcript: skipped"
                )
            cuts = with_text
        return Corpus(cuts, audio, str(path))

    def __len__(self) -> int:
        return len(self.cuts)

    @cached_property
    def own_part(self) -> "Corpus":
        """The utterances that this process of a job decodes: all of them, or every n-th of n processes."""
        if ranks() == 1:
            return self
        part, mine = copy(self), slice(rank(), None, ranks())
        part.cuts, part.durations, part.kept = self.cuts[mine], self.durations[mine], []
        return part

    @property
    def longest(self) -> float:
        """Duration of the longest utterance in seconds."""
        return float(self.durations.max())

    @property
    def hours(self) -> float:
        """Total duration in hours."""
        return float(self.durations.sum()) / 3600


def read_cuts(path: Path) -> "list[Cut]":
    """Read all cuts of a manifest; raise `UserError` with the line of a cut whose audio is not in files."""
    from priormatch.data.cuts import cut_on
    from priormatch.data.text_files import read_lines

    require_manifest(path)
    with naming(path):
        cuts: list[Cut] = [
            cut_on(path, number, line) for number, line in enumerate(read_lines(path), 1) if line
        ]
    if not cuts:
        raise UserError(f"{path} holds no cuts: prepare it again")
    return cuts


def require_manifest(path: Path) -> None:
    """Refuse a path that is not a manifest by its name."""
    if not path.is_file():
        raise UserError(f"no cuts at {path}: make them with `priormatch prepare`")
    if ".jsonl" not in path.suffixes:
        raise UserError(f"{path} is not a manifest of cuts: give a .jsonl or .jsonl.gz")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let errors about the lines of a manifest begin with its name."""
    try:
        yield
    except UserError as error:
        what = str(error).removeprefix(f"{path}").removeprefix(",").lstrip()
        raise UserError(f"{path} is not a usable manifest of cuts: {what}") from error


def cut_text(cut: "Cut") -> str | None:
    """Return the transcript of a cut, or None."""
    texts = [each.text for each in cut.supervisions if each.text]
    return " ".join(texts) if texts else None


def cut_texts(cut: "Cut") -> list[str]:
    """List the target texts of a cut: its transcript, then the alternatives; empty without a transcript."""
    text = cut_text(cut)
    others = [each.custom.get(ALTERNATIVES, []) for each in cut.supervisions if each.custom]
    return [] if text is None else [text, *chain.from_iterable(others)]


def one_of(texts: list[str], random: np.random.Generator) -> str:
    """Draw one of the texts uniformly, "" if there are none; with fewer than two texts, `random` is not used."""
    return texts[random.integers(len(texts))] if len(texts) > 1 else "".join(texts)
