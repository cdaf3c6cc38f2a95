"""`priormatch score`: error rates of transcripts under several normalizers, and comparison of two systems."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

import numpy as np

from priormatch.device import find_device
from priormatch.errors import UserError
from priormatch.pipeline.score_files import UNITS, Resampled, found_sets, pairs_of, read_scored, units_for
from priormatch.progress import track
from priormatch.recognizers.load import load_prior
from priormatch.recognizers.perplexity import likelihoods, perplexity
from priormatch.scoring.alignment import AlignedUtterance, misheard
from priormatch.scoring.bootstrap import PairedTest, bootstrap_interval, paired_bootstrap
from priormatch.scoring.error_rates import NORMALIZERS, ErrorCounts, character_errors, grouped, word_errors
from priormatch.scoring.references import is_beside_audio, references_of
from priormatch.scoring.transcripts import Transcript, both_sides

Name = TypeVar("Name", bound=str)

FEW = 10
"""With fewer units than this, bootstrap samples are too similar to estimate the uncertainty."""


@dataclass(frozen=True)
class Score:
    """Error rates of a file under one normalizer, in percent; the interval resamples `units` of the kind `resampled`.

    `misheard` are the utterances with errors, worst first; `notes` are warnings for the reader.
    """

    transcripts: Path
    normalizer: str
    utterances: int
    words: int
    wer: float
    interval: tuple[float, float]
    resampled: Resampled
    units: int
    cer: float
    perplexities: tuple[float, float] | None
    misheard: list[AlignedUtterance]
    notes: list[str]


@dataclass(frozen=True)
class Comparison:
    """The second file compared with the first, on common utterances; `left_out` counts those in only one file."""

    name: str
    first: Path
    second: Path
    normalizer: str
    utterances: int
    left_out: tuple[int, int]
    resampled: Resampled
    units: int
    test: PairedTest
    notes: list[str]


@dataclass(frozen=True)
class Scoring:
    """The results of `score`; `compared` are the first and second path, if there are two.

    `notes` name the sets without a counterpart.
    """

    scores: list[Score]
    compared: tuple[Path, Path] | None
    comparisons: list[Comparison]
    notes: list[str]


@dataclass(frozen=True)
class Heard:
    """A file under one normalizer: the word errors and the bootstrap unit of each utterance, and notes."""

    path: Path
    normalizer: str
    transcripts: list[Transcript]
    errors: ErrorCounts
    units: list[str] | None
    notes: list[str]

    def drawn(self) -> ErrorCounts:
        """The word errors of each bootstrap unit."""
        return self.errors if self.units is None else grouped(self.errors, self.units)

    def only(self, ids: Sequence[str]) -> "Heard":
        """The file with only these utterances, in this order."""
        places = {each.id: place for place, each in enumerate(self.transcripts)}
        chosen = [places[each] for each in ids]
        return replace(
            self,
            transcripts=[self.transcripts[place] for place in chosen],
            errors=ErrorCounts(self.errors.errors[chosen], self.errors.lengths[chosen]),
            units=None if self.units is None else [self.units[place] for place in chosen],
        )


def score(
    paths: Sequence[Path],
    references: Sequence[Path] = (),
    prior: Path | None = None,
    normalizers: Sequence[str] = ("none",),
    resampled: str = "utterances",
) -> Scoring:
    """Score files, or all files in folders, under each normalizer; with two paths, compare the second with the first.

    A prior adds the perplexity of the hypotheses and of the references, per piece, or per word if it reads words.
    """
    unit = require_known(resampled, UNITS, "not a unit to resample")
    normalizers = [
        require_known(name, NORMALIZERS, "not a normalizer") for name in dict.fromkeys(normalizers)
    ]
    found = [found_sets(path) for path in paths]
    pairs, notes = pairs_of(paths, found)
    said = [references_of(path) for path in references]
    partly = any(map(is_beside_audio, references))
    heard: dict[tuple[Path, str], Heard] = {}
    for path in dict.fromkeys(path for sets in found for path in sets.values()):
        raw, left_out = read_scored(path, said, partly)
        units = units_for(path, raw, references, unit)
        for name in normalizers:
            clean = normalized(raw, name)
            notes_on = [*missing(raw, said, left_out), *noteworthy(raw, clean), *best_of_lists(clean, name)]
            errors = word_errors(*both_sides(clean))
            heard[path, name] = Heard(path, name, clean, errors, units, notes_on)
    scored = list(heard.values())
    likely = perplexities([each.transcripts for each in scored], prior) if prior else [None] * len(scored)
    rated = list(zip(scored, likely, strict=True))
    versus = [
        (name, heard[first, normalizer], heard[second, normalizer])
        for name, (first, second) in pairs.items()
        for normalizer in normalizers
    ]
    return Scoring(
        [score_of(each, pair, unit) for each, pair in track(rated, "scoring")],
        (paths[0], paths[1]) if pairs else None,
        [compared(*each, unit) for each in track(versus, "comparing")],
        notes,
    )


def require_known(name: str, known: Collection[Name], what: str) -> Name:
    """Return a known name; raise an error that lists the known names otherwise."""
    for each in known:
        if each == name:
            return each
    raise UserError(f"{name!r} is {what}: choose from {', '.join(known)}")


def normalized(transcripts: Sequence[Transcript], name: str) -> list[Transcript]:
    """Normalize the hypothesis and the reference of every utterance."""
    apply = NORMALIZERS[name]
    return [
        replace(each, hypothesis=apply(each.hypothesis), reference=apply(each.reference or ""))
        for each in transcripts
    ]


def missing(
    transcripts: Sequence[Transcript], said: Sequence[Mapping[str, str]], left_out: int
) -> Iterator[str]:
    """Notes on references without a hypothesis and hypotheses without a reference."""
    ids = {each.id for each in transcripts}
    if count := sum(len(each.keys() - ids) for each in said if not ids.isdisjoint(each)):
        yield f"reference utterances without a hypothesis, not counted: {count:,}"
    if left_out:
        yield f"recordings without a text file next to them, not counted: {left_out:,}"


def noteworthy(raw: Sequence[Transcript], clean: Sequence[Transcript]) -> Iterator[str]:
    """Notes on texts without words, and on digits that the normalizer deletes."""
    if count := sum(not each.reference for each in clean):
        yield f"references without words, where every word of the hypothesis is an insertion: {count:,}"
    if count := sum(not each.hypothesis for each in clean):
        yield f"hypotheses without words: {count:,}"
    if count := sum(digits(one) > digits(other) for one, other in zip(raw, clean, strict=True)):
        yield f"utterances whose digits were deleted (write numbers as words, or use another normalizer): {count:,}"


def best_of_lists(transcripts: Sequence[Transcript], normalizer: str) -> Iterator[str]:
    """A note on the oracle WER of n-best lists: of the hypothesis with the fewest errors in each."""
    lists = [
        [*dict.fromkeys([each.hypothesis, *(NORMALIZERS[normalizer](text) for text, _ in each.nbest)])]
        for each in transcripts
    ]
    sizes = [len(texts) for texts in lists]
    if max(sizes, default=1) == 1:
        return
    references = [each.reference or "" for each in transcripts]
    errors = word_errors(
        [reference for reference, size in zip(references, sizes, strict=True) for _ in range(size)],
        [text for texts in lists for text in texts],
    )
    starts = [0, *accumulate(sizes)][:-1]
    best = ErrorCounts(np.minimum.reduceat(errors.errors, starts), errors.lengths[starts])
    yield (
        f"n-best lists of {sum(sizes) / len(sizes):.1f} different texts on average: the best of each list would give"
        f" {best.rate:.2f} % WER (oracle)"
    )


def digits(transcript: Transcript) -> int:
    """The number of digits in the hypothesis and the reference."""
    return sum(map(str.isdigit, transcript.hypothesis + (transcript.reference or "")))


def few(units: int, resampled: Resampled) -> list[str]:
    """A note if there are too few units."""
    if units >= FEW:
        return []
    return [f"{units} {resampled} are too few to resample: intervals are too narrow and p-values too small"]


def score_of(heard: Heard, likely: tuple[float, float] | None, resampled: Resampled) -> Score:
    """The error rates of a file and their details."""
    drawn = heard.drawn()
    return Score(
        heard.path,
        heard.normalizer,
        len(heard.transcripts),
        int(heard.errors.lengths.sum()),
        heard.errors.rate,
        bootstrap_interval(drawn),
        resampled,
        len(drawn),
        character_errors(*both_sides(heard.transcripts)).rate,
        likely,
        misheard(heard.transcripts),
        [*heard.notes, *few(len(drawn), resampled)],
    )


def compared(name: str, first: Heard, second: Heard, resampled: Resampled) -> Comparison:
    """Paired bootstrap of two files on their common utterances."""
    others = {each.id: each.reference for each in second.transcripts}
    common = [each.id for each in first.transcripts if each.id in others]
    if not common:
        raise UserError(
            f"{first.path} and {second.path} have no utterance in common, so they cannot be compared"
        )
    one, two = first.only(common), second.only(common)
    if other := [each.id for each in one.transcripts if each.reference != others[each.id]]:
        raise UserError(
            f"{first.path} and {second.path} have different references, first for {other[0]}:"
            " pass --references CUTS"
        )
    drawn = one.drawn()
    return Comparison(
        name,
        first.path,
        second.path,
        first.normalizer,
        len(common),
        (len(first.transcripts) - len(common), len(second.transcripts) - len(common)),
        resampled,
        len(drawn),
        paired_bootstrap(drawn, replace(two, units=one.units).drawn()),
        few(len(drawn), resampled),
    )


def perplexities(decoded: Sequence[list[Transcript]], folder: Path) -> list[tuple[float, float]]:
    """The prior's perplexity per piece or word of each file's hypotheses and references."""
    prior = load_prior(folder, find_device("auto"))
    pairs = [both_sides(transcripts) for transcripts in decoded]
    scored = likelihoods(prior, [text for pair in pairs for texts in pair for text in texts])
    return [
        (perplexity(scored, hypotheses), perplexity(scored, references)) for references, hypotheses in pairs
    ]
