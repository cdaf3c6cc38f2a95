"""Hugging Face data sets that `save_to_disk` wrote, to a manifest; nothing is downloaded and no script is run."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePath
from threading import Lock
from typing import TYPE_CHECKING, Any

from lhotse import MonoCut

from priormatch.data.audio import BadAudio, open_recording
from priormatch.data.intake import AS_IT_COMES, Intake
from priormatch.data.listed import locate
from priormatch.data.manifest import SUFFIX, distinct_names, utterance, write_manifests
from priormatch.errors import UserError
from priormatch.files import replacing
from priormatch.progress import say

if TYPE_CHECKING:
    from datasets import Dataset

DICT, STATE, INFO = "dataset_dict.json", "state.json", "dataset_info.json"
TEXT = ("text", "sentence", "transcription", "transcript")
SPEAKER = ("speaker", "speaker_id", "client_id")
ID = ("id", "utterance_id")
PATH = ("audio", "path", "file")
BEGINNINGS = {b"RIFF": ".wav", b"fLaC": ".flac", b"OggS": ".ogg"}


def prepare_hugging_face(
    folder: Path,
    out: Path,
    intake: Intake = AS_IT_COMES,
    *,
    max_bad_share: float = 0.05,
    overwrite: bool = False,
) -> Path:
    """Write the manifest `out` of a data set on disk, which `datasets.Dataset.save_to_disk` wrote.

    The audio is that of its Audio column, or of the files that a column `audio`, `path` or `file` names. Audio
    that lies in the data set itself is written out to `NAME.audio` beside the manifest, once: files are called
    after what they hold. Columns with common names give text, speaker and id; they may be absent.
    """
    rows = open_rows(folder)
    audio_column = find_audio(folder, rows)
    names = rows.column_names
    text, speaker, name = (
        next((each for each in known if each in names), None) for known in (TEXT, SPEAKER, ID)
    )
    columns = [each for each in (audio_column, text, speaker, name) if each]
    say(f"{folder}: reading the columns {', '.join(columns)} of {', '.join(names)}")
    rows = rows.select_columns(columns).with_format("arrow")
    ids = [cell(each) for each in rows[name][:].to_pylist()] if name else [""] * len(rows)
    sources = list(enumerate(distinct_ids(folder, ids)))
    taken = frozenset(name for _, name in sources)
    written = out.with_name(f"{out.name.removesuffix(SUFFIX)}.audio")
    lock = Lock()

    def cuts_of(source: tuple[int, str]) -> list[MonoCut]:
        index, name = source
        (row,) = rows[index].to_pylist()
        given = row[audio_column]
        audio = given if isinstance(given, dict) else {"path": given}
        place, content = audio.get("path") or "", audio.get("bytes")
        if content:
            with lock:  # two rows may hold the same
                path = write_once(written, content, place)
        elif place:
            path = locate(Path(place), (folder, Path()))
        else:
            raise BadAudio(Path(name), "the row holds neither audio nor a path")
        recording = open_recording(path, name, decode=True)
        said, by = (cell(row[column]) if column else "" for column in (text, speaker))
        text_of = intake.usable(path, said) if said else None
        return intake.parts(utterance(name, recording, text_of, by or None), taken)

    write_manifests({out: sources}, cuts_of, max_bad_share, overwrite)
    return out


def open_rows(folder: Path) -> "Dataset":
    """The data set of a folder; one of several splits must be named."""
    if (folder / DICT).is_file():
        splits = sorted(path.parent.name for path in folder.glob(f"*/{STATE}"))
        example = folder / (splits[0] if splits else "train")
        raise UserError(
            f"{folder} holds the splits {', '.join(splits)}: name one of them, such as {example}."
        )
    try:
        from datasets import load_from_disk
    except ImportError as error:
        raise UserError(
            "Hugging Face data sets are read with the library datasets: "
            'run pip install "priormatch[datasets]" first.'
        ) from error
    try:
        rows = load_from_disk(str(folder))
    except Exception as error:  # datasets and pyarrow raise whatever they like
        what = f"{type(error).__name__}: {error}".splitlines()[0][:150]
        raise UserError(f"{folder} cannot be read as a data set ({what}): save it again.") from error
    if not len(rows):
        raise UserError(f"{folder} holds no row: check the data set.")
    return rows


def find_audio(folder: Path, rows: "Dataset") -> str:
    """The name of the column with the audio."""
    found = [name for name, feature in rows.features.items() if holds_audio(feature)]
    named = [name for name in PATH if getattr(rows.features.get(name), "dtype", None) == "string"]
    if len(found) > 1:
        raise UserError(
            f"{folder} has several columns of audio, {', '.join(found)}: keep one and save it again."
        )
    if not found and not named:
        raise UserError(
            f"{folder} has no column of audio among {', '.join(rows.column_names)}: add one called audio."
        )
    return (found or named)[0]


def holds_audio(feature: Any) -> bool:
    """Whether a column is one of audio, by its type or by its parts, bytes and path."""
    return type(feature).__name__ == "Audio" or (
        isinstance(feature, dict) and feature.keys() == {"bytes", "path"}
    )


def distinct_ids(folder: Path, given: Sequence[str]) -> list[str]:
    """Ids for all rows: those given, which must differ, and others made of the folder's name."""
    counts = Counter(filter(None, given))
    if twice := [each for each, count in counts.items() if count > 1]:
        raise UserError(
            f"{folder}: {counts[twice[0]]} rows have the id {twice[0]}; give each one of its own."
        )
    name = folder.absolute().name
    made = distinct_names((f"{name}-{index:06d}" for index in range(len(given))), taken=counts)
    return [each or other for each, other in zip(given, made, strict=True)]


def write_once(folder: Path, content: bytes, place: str) -> Path:
    """Write audio to a file that is called after its content, unless it is there."""
    suffix = PurePath(place).suffix.lower() or BEGINNINGS.get(content[:4], ".mp3")
    path = folder / f"{hashlib.sha256(content).hexdigest()[:24]}{suffix}"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_bytes(content)
    return path


def cell(value: Any) -> str:
    """What a cell holds, as text; none is empty."""
    return "" if value is None else str(value).strip()
