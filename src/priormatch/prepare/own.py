"""Prepare a user's audio in any supported format, recognized from its contents, and split off a validation set."""

import os
import random
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

from lhotse import CutSet

from priormatch.data.audio import FOREIGN, SUFFIXES, audio_in
from priormatch.data.columns import AUDIO, usual
from priormatch.data.text_files import read_sentences
from priormatch.errors import UserError
from priormatch.json_text import parse_object
from priormatch.prepare.hugging_face import DICT, INFO, PARQUET, STATE, list_parquet, list_rows
from priormatch.prepare.lhotse_cuts import RECORDINGS, list_cuts
from priormatch.prepare.listings import (
    AUDIO_FILEPATH,
    WAV_SCP,
    list_folder,
    list_kaldi,
    list_nemo,
    list_table,
)
from priormatch.prepare.source import Intake, Listing, Source
from priormatch.progress import count_text, say

DEFAULT_INTAKE = Intake()
METADATA = ("metadata.csv", "metadata.jsonl")


def prepare_own(
    path: Path,
    out: Path,
    intake: Intake = DEFAULT_INTAKE,
    *,
    audio_column: str = "",
    text_column: str = "",
    max_bad_share: float = 0.05,
    overwrite: bool = False,
) -> Path:
    """Write the manifest `out` for the audio at `path` in any supported format, and report that format.

    In formats with columns, those of the audio and the text can be named.
    """
    what, read = recognize(path)
    if audio_column or text_column:
        if read not in (list_table, list_nemo, list_described, list_rows, list_parquet):
            without = "leave --audio-column and --text-column out"
            raise UserError(f"{path} is {what} and has no columns: {without}.")
        read = partial(read, audio_column=audio_column, text_column=text_column)
    say(f"{path}: {what}")
    read(path).write(out, intake, max_bad_share, overwrite)
    return out


def recognize(path: Path) -> tuple[str, Callable[[Path], Source]]:
    """Return the format of the audio at a path, in words, and the function that reads it."""
    if path.is_dir():
        return _recognize_folder(path)
    if not path.is_file():
        if os.path.lexists(path):
            raise UserError(f"{path}: neither a regular file nor a folder; check the path.")
        raise UserError(f"{path}: there is no such file or folder; check the path.")
    if path.name == WAV_SCP:
        raise UserError(f"{path} is part of a Kaldi folder: provide the folder, {path.parent}.")
    suffixes = {suffix.lower() for suffix in path.suffixes[-2:]}
    if suffixes & {".csv", ".tsv"}:
        return "a table", list_table
    if suffixes & {".jsonl", ".json", ".yaml"}:
        return ("a NeMo manifest", list_nemo) if _is_nemo(path) else ("a Lhotse manifest", list_cuts)
    if PARQUET in suffixes:
        return "a Hugging Face dataset in Parquet", list_parquet
    if suffixes & {*SUFFIXES, *FOREIGN}:
        raise UserError(f"{path} is one audio file: pass its folder, or a table that names it.")
    raise UserError(
        f"{path} is not a list of audio in a known format: provide a .csv, .tsv, .jsonl, .jsonl.gz or .parquet."
    )


def _recognize_folder(folder: Path) -> tuple[str, Callable[[Path], Source]]:
    if (folder / WAV_SCP).is_file():
        return "a Kaldi folder", list_kaldi
    if (folder / DICT).is_file() or ((folder / STATE).is_file() and (folder / INFO).is_file()):
        return "a Hugging Face dataset", list_rows
    if next(folder.glob(f"*{RECORDINGS}*.jsonl*"), None) is not None:
        return "Lhotse recordings", list_cuts
    if metadata := metadata_in(folder):
        return f"a folder that {metadata[0].name} describes", list_described
    suffixes = {path.suffix.lower() for path in folder.rglob("*")}
    if PARQUET in suffixes and suffixes.isdisjoint(SUFFIXES):
        return "a Hugging Face dataset in Parquet", list_parquet
    return "a folder of audio files", list_folder


def metadata_in(folder: Path) -> list[Path]:
    """Find the files that describe the audio of a folder in Hugging Face's `audiofolder` format."""
    found = (folder / name for name in METADATA if (folder / name).is_file())
    return [file for file in found if "file_name" in next(read_sentences(file), "")]


def list_described(folder: Path, audio_column: str = "", text_column: str = "") -> Listing:
    """List the audio of a folder that its `metadata.csv` or `metadata.jsonl` names; report other files."""
    (file, *_) = metadata_in(folder)
    read = list_table if file.suffix == ".csv" else list_nemo
    listing = read(file, audio_column, text_column)
    if others := set(audio_in(folder)) - {folder / each.path for each in listing.listed}:
        say(f"{folder}: {count_text(len(others), 'audio file')} left out, not named in {file.name}")
    return listing


def _is_nemo(path: Path) -> bool:
    """Return whether the first line is an object that names audio as NeMo does, or is meant to be one."""
    first = next(read_sentences(path), "")
    if not first:
        raise UserError(f"{path} is empty: write a line for each utterance.")
    try:
        return usual(parse_object(first), AUDIO) is not None
    except ValueError:
        return AUDIO_FILEPATH in first


def split_by_speaker(cuts: CutSet, share: float, seed: int) -> tuple[CutSet, CutSet]:
    """Split into training and validation cuts that share no speaker; the same seed gives the same split.

    Validation gets about `share` of the duration: at least one speaker, never all. Utterances of unknown
    speakers stay in training. With fewer than two known speakers, single utterances are drawn, and a message
    is printed.
    """
    if not 0 < share < 1:
        raise UserError(f"the validation share must be between 0 and 1, not {share:g}.")
    utterances = list(cuts)
    if len(utterances) < 2:
        raise UserError(f"{len(utterances)} utterance(s) cannot be split for validation: provide more data.")
    groups: list[str | None] = [cut.supervisions[0].speaker for cut in utterances]
    if len(set(groups) - {None}) < 2:
        what = "validation is drawn by utterance and shares speakers with training"
        say(f"fewer than two speakers are named: {what}")
        groups = [cut.id for cut in utterances]
    seconds: dict[str, float] = defaultdict(float)
    for group, cut in zip(groups, utterances, strict=True):
        if group is not None:
            seconds[group] += cut.duration
    chosen = _draw(seconds, share * sum(cut.duration for cut in utterances), seed)
    train = [cut for group, cut in zip(groups, utterances, strict=True) if group not in chosen]
    validation = [cut for group, cut in zip(groups, utterances, strict=True) if group in chosen]
    return CutSet.from_cuts(train), CutSet.from_cuts(validation)


def _draw(seconds: dict[str, float], target: float, seed: int) -> set[str]:
    """Draw groups in random order, adding each that brings the sum closer to the target, but never all."""
    groups = sorted(seconds)
    random.Random(seed).shuffle(groups)
    chosen: set[str] = set()
    total = 0.0
    for group in groups[:-1]:
        if total + seconds[group] / 2 <= target:
            chosen.add(group)
            total += seconds[group]
    return chosen or {min(groups, key=seconds.__getitem__)}
