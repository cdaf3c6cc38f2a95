"""Inputs of `priormatch score`: files, folders of test sets or runs, and the bootstrap units of utterances."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from priormatch.data.corpus import cut_text, read_cuts
from priormatch.data.manifest import SUFFIX
from priormatch.errors import UserError
from priormatch.pipeline.transcribe import RECORD as TRANSCRIBED
from priormatch.scoring.references import (
    FORMS,
    holds_cuts,
    hypotheses_in,
    transcribed_in,
    units_of,
    with_references,
)
from priormatch.scoring.transcripts import Transcript

Resampled = Literal["utterances", "speakers", "recordings"]
"""The unit of the bootstrap."""
UNITS: tuple[Resampled, ...] = get_args(Resampled)


def found_sets(path: Path) -> dict[str, Path]:
    """Transcripts by name: a file, the output of `transcribe`, a folder of test sets, or a whole run.

    Old results of a run, in folders called NAME.1 and so on, are not included.
    """
    if not path.is_dir():
        return {path.name.split(".")[0]: path}
    if (path / TRANSCRIBED).is_file():
        return {path.name: path}
    base = path / "decoded" if (path / "decoded").is_dir() else path
    files = sorted(base.glob("*.jsonl")) or sorted(base.glob("*/*.jsonl"))
    whole = [each for each in files if not each.name.startswith((".", "metrics."))]
    current = [each for each in whole if each.parent == base or not each.parent.suffix[1:].isdigit()]
    if not current:
        raise UserError(
            f"{path} contains no transcripts: provide a finished run, the output of `priormatch decode` or"
            " `transcribe`, or a text file"
        )
    return {each.relative_to(base).with_suffix("").as_posix(): each for each in current}


def pairs_of(
    paths: Sequence[Path], found: Sequence[Mapping[str, Path]]
) -> tuple[dict[str, tuple[Path, Path]], list[str]]:
    """The files of two paths to compare, by the name of the set, and notes on those without a counterpart."""
    if len(found) != 2:
        return {}, []
    first, second = found
    if len(first) == len(second) == 1:
        ((name, one),), ((other, two),) = first.items(), second.items()
        return {name if name == other else f"{name} and {other}": (one, two)}, []
    common = {name: (path, second[name]) for name, path in first.items() if name in second}
    if not common:
        held = [f"{path} ({', '.join(sets)})" for path, sets in zip(paths, found, strict=True)]
        raise UserError(
            f"{held[0]} and {held[1]} have no set name in common: provide two that do, or two files"
        )
    return common, [
        f"{name}: only in {path}, so not compared"
        for path, sets in zip(paths, found, strict=True)
        for name in sets
        if name not in common
    ]


def read_scored(
    path: Path, said: Sequence[Mapping[str, str]], partly: bool = False
) -> tuple[list[Transcript], int]:
    """Read transcripts with references, from the file itself or from the given references.

    With `partly`, those without a reference are left out and counted.
    """
    transcripts = read_hypotheses(path)
    counts = Counter(each.id for each in transcripts)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise UserError(
            f"{path}: {len(twice)} utterances occur more than once, the first is {twice[0]}: keep one of each"
        )
    if said:
        transcripts = with_references(
            transcripts, {name: text for each in said for name, text in each.items()}
        )
    without = [each.id for each in transcripts if each.reference is None]
    if said and len(without) == len(transcripts):
        raise UserError(
            f"no utterance of {path} is in the references: its first is {without[0]}, that of the references is"
            f" {next(iter(said[0]))}: provide references of the same utterances"
        )
    if without and not partly:
        way_out = "provide references for them too" if said else "pass --references, as cuts or text"
        raise UserError(
            f"{path}: {len(without)} utterances have no reference, the first is {without[0]}: {way_out}"
        )
    return [each for each in transcripts if each.reference is not None], len(without)


def read_hypotheses(path: Path) -> list[Transcript]:
    """Read decoded utterances, text of other tools, the output of `transcribe`, or the labels of cuts."""
    if path.is_dir():
        return transcribed_in(path)
    if not path.is_file():
        raise UserError(f"no transcripts at {path}: provide the output of `priormatch decode`, or {FORMS}")
    if not holds_cuts(path):
        return hypotheses_in(path)
    labels = [(cut.id, cut_text(cut)) for cut in read_cuts(path)]
    return [Transcript(name, text or "", 0, None, []) for name, text in labels]


def units_for(
    path: Path, transcripts: Sequence[Transcript], references: Sequence[Path], resampled: Resampled
) -> list[str] | None:
    """The bootstrap unit of each utterance, from the references or else the run's own cuts; None for utterances."""
    if resampled == "utterances":
        return None
    known: dict[str, str] = {}
    for cuts in filter(holds_cuts, references or own_cuts(path)):
        known |= units_of(cuts, resampled)
    if unknown := [each.id for each in transcripts if each.id not in known]:
        raise UserError(
            f"{path}: the {resampled} of {len(unknown)} utterances are not known, the first is {unknown[0]}:"
            " pass --references CUTS that name them, or resample utterances"
        )
    return [known[each.id] for each in transcripts]


def own_cuts(path: Path) -> list[Path]:
    """The cuts of RUN/decoded/SYSTEM/SET.jsonl, in the run's data folder."""
    data = path.parent.parent.parent / "data"
    places = [data / f"{prefix}{path.stem}{SUFFIX}" for prefix in ("test-", "")]
    return [place for place in places if place.is_file()][:1]
