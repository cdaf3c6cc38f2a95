"""Hugging Face data sets that `save_to_disk` wrote; nothing is downloaded and no script is run."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath
from threading import Lock
from typing import TYPE_CHECKING, Any

from lhotse import MonoCut

from priormatch.data.audio import BadAudio, open_recording
from priormatch.data.intake import Intake
from priormatch.data.listed import locate
from priormatch.data.manifest import SUFFIX, distinct_names, utterance, write_manifests
from priormatch.data.source import Utterance
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
NAME_IT = "name it with `priormatch prepare audio --audio-column`"
BEGINNINGS = {b"RIFF": ".wav", b"fLaC": ".flac", b"OggS": ".ogg"}


@dataclass(frozen=True)
class Rows:
    """The rows of a data set, and its columns that are read: audio always, the others where they are there."""

    folder: Path
    rows: "Dataset"
    audio: str
    text: str | None
    speaker: str | None
    id: str | None

    def utterances(self) -> Iterator[Utterance]:
        """What there is; no audio is opened."""
        columns = zip(self.column(self.text), self.column(self.speaker), strict=True)
        for index, (text, speaker) in enumerate(columns):
            yield Utterance(partial(self._audio_of, index), text or None, speaker or None, None)

    def _audio_of(self, index: int, folder: Path) -> Path:
        (row,) = self.rows[index].to_pylist()
        return self.place(index, row[self.audio], folder)

    def column(self, name: str | None) -> list[str]:
        """The cells of a column as text, all empty where there is no such column."""
        return [cell(each) for each in self.rows[name][:].to_pylist()] if name else [""] * len(self.rows)

    def place(self, index: int, audio: Any, folder: Path) -> Path:
        """The file of a row's audio: the one it names, or one in the folder, written unless it is there."""
        audio = audio if isinstance(audio, dict) else {"path": audio}
        named, content = audio.get("path") or "", audio.get("bytes")
        if content:
            return write_once(folder, content, named)
        if named:
            return locate(Path(named), (self.folder, Path()))
        raise BadAudio(self.folder, f"row {index} holds neither audio nor a path")

    def write(self, out: Path, intake: Intake, max_bad_share: float, overwrite: bool) -> None:
        """Write the manifest `out`, every sample decoded to find damage; unusable audio is skipped and listed.

        Audio that lies in the data set itself is written out to `NAME.audio` beside the manifest, once: files are
        called after what they hold.
        """
        sources = list(enumerate(distinct_ids(self.folder, self.column(self.id))))
        taken = frozenset(name for _, name in sources)
        written = out.with_name(f"{out.name.removesuffix(SUFFIX)}.audio")
        lock = Lock()

        def cuts_of(source: tuple[int, str]) -> list[MonoCut]:
            index, name = source
            (row,) = self.rows[index].to_pylist()
            with lock:  # two rows may hold the same
                path = self.place(index, row[self.audio], written)
            recording = open_recording(path, name, decode=True)
            said, by = (cell(row[column]) if column else "" for column in (self.text, self.speaker))
            text = intake.usable(path, said) if said else None
            return intake.parts(utterance(name, recording, text, by or None), taken)

        write_manifests({out: sources}, cuts_of, max_bad_share, overwrite)


def list_rows(folder: Path, audio_column: str = "", text_column: str = "") -> Rows:
    """A data set on disk, which `datasets.Dataset.save_to_disk` wrote.

    Unless columns are named, the audio is that of its Audio column, or of the files that a column `audio`, `path` or
    `file` names, and the text that of a column with a common name, as speaker and id are; those may be absent.
    """
    rows = open_rows(folder)
    names = rows.column_names
    audio = find_audio(folder, rows, audio_column)
    text, speaker, id = (
        next((each for each in known if each in names), None) for known in (TEXT, SPEAKER, ID)
    )
    if text_column:
        fit = [name for name, feature in rows.features.items() if holds_text(feature)]
        text = require_column(folder, text_column, fit)
    read = list(dict.fromkeys(each for each in (audio, text, speaker, id) if each))
    say(f"{folder}: reading the columns {', '.join(read)} of {', '.join(names)}")
    rows = rows.select_columns(read).with_format("arrow")
    return Rows(folder, rows, audio, text, speaker, id)


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


def find_audio(folder: Path, rows: "Dataset", wanted: str) -> str:
    """The name of the column with the audio or with paths to it, the one that is wanted if any is."""
    found = [name for name, feature in rows.features.items() if holds_audio(feature)]
    paths = [name for name, feature in rows.features.items() if holds_text(feature)]
    if wanted:
        return require_column(folder, wanted, [*found, *paths])
    if len(found) > 1:
        raise UserError(f"{folder} has several columns of audio, {', '.join(found)}: {NAME_IT}.")
    usual = found or [name for name in PATH if name in paths]
    if not usual:
        raise UserError(
            f"{folder} has no column of audio among {', '.join(rows.column_names)}: add one called audio, or {NAME_IT}."
        )
    return usual[0]


def require_column(folder: Path, wanted: str, fit: Sequence[str]) -> str:
    """The name of a column, if it is one of those that will do."""
    if wanted not in fit:
        raise UserError(
            f"{folder}: {wanted} is no column that can be read so; name one of {', '.join(fit) or 'another set'}."
        )
    return wanted


def holds_audio(feature: Any) -> bool:
    """Whether a column is one of audio, by its type or by its parts, bytes and path."""
    return type(feature).__name__ == "Audio" or (
        isinstance(feature, dict) and feature.keys() == {"bytes", "path"}
    )


def holds_text(feature: Any) -> bool:
    """Whether a column is one of text."""
    return getattr(feature, "dtype", None) in ("string", "large_string")


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
