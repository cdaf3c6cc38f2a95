"""Audio of one's own in any of the formats known here, recognised by what it holds."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from priormatch.data.audio import SUFFIXES
from priormatch.data.hugging_face import DICT, INFO, STATE, list_rows
from priormatch.data.intake import AS_IT_COMES, Intake
from priormatch.data.kaldi import RECORDINGS as WAV_SCP
from priormatch.data.kaldi import list_kaldi
from priormatch.data.lhotse_cuts import RECORDINGS, list_cuts
from priormatch.data.nemo import list_nemo
from priormatch.data.own_audio import list_folder, list_table
from priormatch.data.source import Source
from priormatch.data.text_files import read_sentences
from priormatch.errors import UserError
from priormatch.progress import say


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
    """Write the manifest `out` of whatever audio lies at `path`, and say what it was taken for.

    Of a Hugging Face data set the columns of audio and text may be named.
    """
    what, read = recognise(path)
    if audio_column or text_column:
        if read is not list_rows:
            raise UserError(
                f"{path} is {what}: leave --audio-column and --text-column to Hugging Face data sets."
            )
        read = partial(list_rows, audio_column=audio_column, text_column=text_column)
    say(f"{path}: {what}")
    read(path).write(out, intake, max_bad_share, overwrite)
    return out


def recognise(path: Path) -> tuple[str, Callable[[Path], Source]]:
    """What lies at a path, in words, and the function that reads it."""
    if path.is_dir():
        return _recognise_folder(path)
    if not path.is_file():
        raise UserError(f"{path}: there is no such file or folder; check the path.")
    if path.name == WAV_SCP:
        raise UserError(f"{path} is part of a Kaldi folder: give the folder, {path.parent}.")
    suffixes = {suffix.lower() for suffix in path.suffixes[-2:]}
    if suffixes & {".csv", ".tsv"}:
        return "a table", list_table
    if suffixes & {".jsonl", ".json", ".yaml"}:
        return ("a NeMo manifest", list_nemo) if _is_nemo(path) else ("Lhotse's manifest", list_cuts)
    if suffixes & set(SUFFIXES):
        raise UserError(f"{path} is one audio file: give its folder, or a table that names it.")
    raise UserError(f"{path} is no list of audio that is known here: give a .csv, .tsv, .jsonl or .jsonl.gz.")


def _recognise_folder(folder: Path) -> tuple[str, Callable[[Path], Source]]:
    if (folder / WAV_SCP).is_file():
        return "a Kaldi folder", list_kaldi
    if (folder / DICT).is_file() or ((folder / STATE).is_file() and (folder / INFO).is_file()):
        return "a Hugging Face data set", list_rows
    if next(folder.glob(f"*{RECORDINGS}*.jsonl*"), None) is not None:
        return "Lhotse's recordings", list_cuts
    return "a folder of audio files", list_folder


def _is_nemo(path: Path) -> bool:
    """Whether the first line is an entry of NeMo's, or meant to be one."""
    first = next(read_sentences(path), "")
    if not first:
        raise UserError(f"{path} is empty: write a line for each utterance.")
    try:
        found = json.loads(first)
    except json.JSONDecodeError:
        found = None
    return "audio_filepath" in (found if isinstance(found, dict) else first)
