"""Read a user's audio in any supported format, which is recognized from its contents."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from priormatch.data.audio import SUFFIXES, audio_in
from priormatch.data.columns import AUDIO, usual
from priormatch.data.text_files import read_sentences
from priormatch.errors import UserError
from priormatch.json_text import parse_object
from priormatch.prepare.hugging_face import DICT, INFO, PARQUET, STATE, list_parquet, list_rows
from priormatch.prepare.intake import AS_IT_COMES, Intake
from priormatch.prepare.kaldi import RECORDINGS as WAV_SCP
from priormatch.prepare.kaldi import list_kaldi
from priormatch.prepare.lhotse_cuts import RECORDINGS, list_cuts
from priormatch.prepare.listed import Listing
from priormatch.prepare.nemo import list_nemo
from priormatch.prepare.own_audio import list_folder, list_table
from priormatch.prepare.source import Source
from priormatch.progress import count_text, say

METADATA = ("metadata.csv", "metadata.jsonl")


def prepare_own(
    path: Path,
    out: Path,
    intake: Intake = AS_IT_COMES,
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
            raise UserError(
                f"{path} is {what} and has no columns: leave --audio-column and --text-column out."
            )
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
        raise UserError(f"{path} is part of a Kaldi folder: give the folder, {path.parent}.")
    suffixes = {suffix.lower() for suffix in path.suffixes[-2:]}
    if suffixes & {".csv", ".tsv"}:
        return "a table", list_table
    if suffixes & {".jsonl", ".json", ".yaml"}:
        return ("a NeMo manifest", list_nemo) if _is_nemo(path) else ("a Lhotse manifest", list_cuts)
    if PARQUET in suffixes:
        return "a Hugging Face dataset in Parquet", list_parquet
    if suffixes & set(SUFFIXES):
        raise UserError(f"{path} is one audio file: give its folder, or a table that names it.")
    raise UserError(
        f"{path} is not a list of audio in a known format: give a .csv, .tsv, .jsonl, .jsonl.gz or .parquet."
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
        return "audio_filepath" in first
