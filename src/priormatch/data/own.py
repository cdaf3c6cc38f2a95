"""Audio of one's own in any of the formats known here, recognised by what it holds."""

import json
from collections.abc import Callable
from pathlib import Path

from priormatch.data.hugging_face import DICT, INFO, STATE, prepare_hugging_face
from priormatch.data.intake import AS_IT_COMES, Intake
from priormatch.data.kaldi import RECORDINGS as WAV_SCP
from priormatch.data.kaldi import prepare_kaldi
from priormatch.data.lhotse_cuts import RECORDINGS, prepare_cuts
from priormatch.data.nemo import prepare_nemo
from priormatch.data.own_audio import AUDIO_SUFFIXES, prepare_csv, prepare_folder
from priormatch.data.text_files import read_sentences
from priormatch.errors import UserError
from priormatch.progress import say


def prepare_own(
    path: Path,
    out: Path,
    intake: Intake = AS_IT_COMES,
    *,
    max_bad_share: float = 0.05,
    overwrite: bool = False,
) -> Path:
    """Write the manifest `out` of whatever audio lies at `path`, and say what it was taken for."""
    what, prepare = recognise(path)
    say(f"{path}: {what}")
    return prepare(path, out, intake, max_bad_share=max_bad_share, overwrite=overwrite)


def recognise(path: Path) -> tuple[str, Callable[..., Path]]:
    """What lies at a path, in words, and the function that prepares it."""
    if path.is_dir():
        return _recognise_folder(path)
    if not path.is_file():
        raise UserError(f"There is no file or folder {path}; check the path.")
    if path.name == WAV_SCP:
        raise UserError(f"{path} is part of a Kaldi folder: give the folder, {path.parent}.")
    suffixes = {suffix.lower() for suffix in path.suffixes[-2:]}
    if suffixes & {".csv", ".tsv"}:
        return "a table", prepare_csv
    if suffixes & {".jsonl", ".json", ".yaml"}:
        return ("a NeMo manifest", prepare_nemo) if _is_nemo(path) else ("Lhotse's manifest", prepare_cuts)
    if suffixes & set(AUDIO_SUFFIXES):
        raise UserError(f"{path} is one audio file: give its folder, or a table that names it.")
    raise UserError(f"{path} is no list of audio that is known here: give a .csv, .tsv, .jsonl or .jsonl.gz.")


def _recognise_folder(folder: Path) -> tuple[str, Callable[..., Path]]:
    if (folder / WAV_SCP).is_file():
        return "a Kaldi folder", prepare_kaldi
    if (folder / DICT).is_file() or ((folder / STATE).is_file() and (folder / INFO).is_file()):
        return "a Hugging Face data set", prepare_hugging_face
    if next(folder.glob(f"*{RECORDINGS}*.jsonl*"), None) is not None:
        return "Lhotse's recordings", prepare_cuts
    return "a folder of audio files", prepare_folder


def _is_nemo(path: Path) -> bool:
    """Whether the first line is an entry of NeMo's, or meant to be one."""
    first = next(read_sentences(path), "")
    try:
        found = json.loads(first)
    except json.JSONDecodeError:
        found = None
    return "audio_filepath" in (found if isinstance(found, dict) else first)
