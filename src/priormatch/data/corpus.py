"""Corpora of cuts, as training and decoding use them."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cached_property
from itertools import chain, compress, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from priormatch.config import AudioSettings
from priormatch.data import index
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
        durations = durations_of(cuts)
        fits = (audio.shortest <= durations) & (durations <= audio.longest)
        self.skipped = len(cuts) - int(fits.sum())
        if self.skipped:
            say(
                f"{name}: {self.skipped} of {len(cuts)} utterances skipped: shorter than {audio.shortest:g} s"
                f" (audio.shortest) or longer than {audio.longest:g} s (audio.longest)"
            )
        if not fits.any():
            raise UserError(
                f"{name} contains no utterance between {audio.shortest:g} and {audio.longest:g} s"
            )
        self.name, self.cuts, self.audio = name, selected(cuts, fits), audio
        self.durations = durations[fits]
        self.kept: list[Batch] = []  # batches that stay in memory, for sets that are decoded again and again
        self.decoded: DecodedAudio | None = None  # all audio, if it stays on a GPU

    @staticmethod
    def load(path: Path, audio: AudioSettings, transcribed: bool = False) -> "Corpus":
        """Open a manifest of cuts; `transcribed` leaves out cuts without text and requires at least one with text."""
        cuts = open_cuts(path)
        if transcribed:
            with_text = transcribed_ones(cuts)
            if not with_text.any():
                raise UserError(f"{path} contains no transcribed utterances: provide cuts with text")
            if not with_text.all():
                without = len(cuts) - int(with_text.sum())
                say(f"{path}: {without} of {len(cuts)} utterances have no transcript: skipped")
            cuts = selected(cuts, with_text)
        return Corpus(cuts, audio, str(path))

    def only(self, wanted: Iterable[bool]) -> "Corpus":
        """The part of the corpus with the cuts for which `wanted` is true."""
        return Corpus(selected(self.cuts, np.fromiter(wanted, np.bool_)), self.audio, self.name)

    @property
    def ids(self) -> Iterator[str]:
        """The ids of all cuts, in order."""
        return ids_of(self.cuts)

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


def joined(corpora: Sequence[Corpus]) -> Corpus:
    """One corpus of the cuts of several, which are then all in memory."""
    if len(corpora) == 1:
        return corpora[0]
    cuts = [*chain.from_iterable(each.cuts for each in corpora)]
    return Corpus(cuts, corpora[0].audio, ", ".join(each.name for each in corpora))


def read_cuts(path: Path) -> "list[Cut]":
    """Read all cuts of a manifest; raise `UserError` with the line of a cut whose audio is not in files."""
    return [cut for _, cut in iterate_cuts(path)]


def open_cuts(path: Path) -> "Sequence[Cut]":
    """The cuts of a manifest: in memory, or on disk if there are more than `index.MOST_IN_MEMORY`."""
    if path.is_file() and (indexed := index.open_index(path)) is not None:
        return indexed
    found = [cut for _, cut in islice(iterate_cuts(path), index.MOST_IN_MEMORY + 1)]
    return found if len(found) <= index.MOST_IN_MEMORY else index.make_index(path, iterate_cuts(path))


def iterate_cuts(path: Path) -> "Iterator[tuple[str, Cut]]":
    """Yield the lines of a manifest and their cuts; raise `UserError` as `read_cuts` does."""
    from priormatch.data.cuts import cut_on
    from priormatch.data.text_files import read_lines

    require_manifest(path)
    empty = True
    with naming(path):
        for number, line in enumerate(read_lines(path), 1):
            if line:
                empty = False
                yield line, cut_on(path, number, line)
    if empty:
        raise UserError(f"{path} contains no cuts: prepare it again")


def ids_of(cuts: "Sequence[Cut]") -> Iterator[str]:
    """The ids of cuts, in order."""
    return cuts.ids if isinstance(cuts, index.IndexedCuts) else (cut.id for cut in cuts)


def durations_of(cuts: "Sequence[Cut]") -> np.ndarray:
    """Durations in seconds: (cuts,)."""
    return cuts.durations if isinstance(cuts, index.IndexedCuts) else np.array([cut.duration for cut in cuts])


def transcribed_ones(cuts: "Sequence[Cut]") -> np.ndarray:
    """Whether each cut has a transcript: (cuts,)."""
    if isinstance(cuts, index.IndexedCuts):
        return cuts.transcribed
    return np.array([bool(cut_text(cut)) for cut in cuts], np.bool_)


def selected(cuts: "Sequence[Cut]", wanted: np.ndarray) -> "Sequence[Cut]":
    """The cuts for which wanted (cuts,) is true."""
    return cuts.only(wanted) if isinstance(cuts, index.IndexedCuts) else [*compress(cuts, wanted)]


def require_manifest(path: Path) -> None:
    """Refuse a path that is not a manifest by its name."""
    if not path.is_file():
        raise UserError(f"no cuts at {path}: make them with `priormatch prepare`")
    if ".jsonl" not in path.suffixes:
        raise UserError(f"{path} is not a manifest of cuts: provide a .jsonl or .jsonl.gz")


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
