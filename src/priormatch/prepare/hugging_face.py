"""Hugging Face datasets written by `save_to_disk` or stored as Parquet; nothing is downloaded, no script is run."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath
from threading import Lock
from typing import TYPE_CHECKING, Any

from lhotse import MonoCut

from priormatch.data.audio import BadAudio, open_recording
from priormatch.data.columns import (
    AUDIO,
    ID,
    LOOKED_AT,
    NAME_AUDIO,
    SPEAKER,
    TEXT,
    required,
    say_columns,
    usual,
    warn_of_text,
)
from priormatch.data.ffmpeg import Decoded
from priormatch.data.manifest import audio_folder, distinct_names, utterance, write_manifests
from priormatch.errors import UserError
from priormatch.files import replacing
from priormatch.prepare.source import Intake, Utterance, locate

if TYPE_CHECKING:
    from datasets import Dataset

DICT, STATE, INFO = "dataset_dict.json", "state.json", "dataset_info.json"
PARQUET = ".parquet"
SHARD = re.compile(r"[-_.]?\d+(-of-\d+)?(-[0-9a-f]{16})?$")  # what differs between the files of one split
BEGINNINGS = {b"RIFF": ".wav", b"fLaC": ".flac", b"OggS": ".ogg"}


@dataclass(frozen=True)
class Rows:
    """The rows of a dataset and the columns to read: audio always, the others if they exist.

    `place` is its folder, or the common part of the paths of a split's Parquet files.
    """

    place: Path
    rows: "Dataset"
    audio: str
    text: str | None
    speaker: str | None
    id: str | None

    def utterances(self) -> Iterator[Utterance]:
        """Yield the utterances without opening any audio."""
        columns = zip(self.column(self.text), self.column(self.speaker), strict=True)
        for index, (text, speaker) in enumerate(columns):
            yield Utterance(partial(self._audio_of, index), text or None, speaker or None, None)

    def _audio_of(self, index: int, folder: Path) -> Path:
        (row,) = self.rows[index].to_pylist()
        return self.find(index, row[self.audio], folder)

    def column(self, name: str | None) -> list[str]:
        """Return the cells of a column as text, all empty if there is no such column."""
        return [cell(each) for each in self.rows[name][:].to_pylist()] if name else [""] * len(self.rows)

    def find(self, index: int, audio: Any, folder: Path) -> Path:
        """Return the file of a row's audio: the one it names, or one in the folder, written if missing."""
        audio = audio if isinstance(audio, dict) else {"path": audio}
        named, content = audio.get("path") or "", audio.get("bytes")
        if content:
            return write_once(folder, content, named)
        if named:
            return locate(Path(named), (self.place, self.place.parent, Path()))
        raise BadAudio(self.place, f"row {index} has neither audio nor a path")

    def write(self, out: Path, intake: Intake, max_bad_share: float, overwrite: bool) -> None:
        """Write the manifest `out`, decoding every sample to find damage; unusable audio is skipped and listed.

        Audio embedded in the dataset is written to `NAME.audio` beside the manifest, once: files are named after
        their content.
        """
        sources = list(enumerate(distinct_ids(self.place, self.column(self.id))))
        taken = frozenset(name for _, name in sources)
        written, lock = audio_folder(out), Lock()
        decoded = Decoded(written)

        def cuts_of(source: tuple[int, str]) -> list[MonoCut]:
            index, name = source
            (row,) = self.rows[index].to_pylist()
            with lock:  # two rows may have the same audio
                path = self.find(index, row[self.audio], written)
            path = decoded.readable(path)
            recording = open_recording(path, name, decode=True)
            said, by = (cell(row[column]) if column else "" for column in (self.text, self.speaker))
            text = intake.usable(path, said) if said else None
            return intake.parts(utterance(name, recording, text, by or None), taken)

        write_manifests({out: sources}, cuts_of, max_bad_share, overwrite)


def list_rows(folder: Path, audio_column: str = "", text_column: str = "") -> Rows:
    """Open a dataset written by `datasets.Dataset.save_to_disk`; one of several splits must be named."""
    if (folder / DICT).is_file():
        splits = sorted(path.parent.name for path in folder.glob(f"*/{STATE}"))
        example = folder / (splits[0] if splits else "train")
        raise UserError(
            f"{folder} contains the splits {', '.join(splits)}: name one of them, such as {example}."
        )
    return choose_columns(folder, open_rows(folder), audio_column, text_column)


def list_parquet(path: Path, audio_column: str = "", text_column: str = "") -> Rows:
    """Open a split in Parquet, as on the Hub: its folder, or any one of its files, which selects all of them."""
    splits: dict[Path, list[Path]] = {}
    found = path.rglob("*") if path.is_dir() else path.parent.glob("*")
    for file in sorted(each for each in found if each.suffix.lower() == PARQUET):
        splits.setdefault(file.parent / SHARD.sub("", file.stem), []).append(file)
    if not path.is_dir():
        splits = {place: files for place, files in splits.items() if path in files}
    if len(splits) > 1:
        names = ", ".join(str(place.relative_to(path)) for place in splits)
        example = next(iter(splits.values()))[0]
        raise UserError(
            f"{path} contains the splits {names}: use one file of the split you want, such as {example}; "
            "its other files are read too."
        )
    ((place, files),) = splits.items()
    return choose_columns(place, open_rows(place, files), audio_column, text_column)


def choose_columns(place: Path, rows: "Dataset", audio_column: str, text_column: str) -> Rows:
    """Choose the columns of a dataset to read.

    Unless named here, the audio column is the one of type Audio, or one with a usual name that gives paths. The text,
    speaker and id columns are found by their usual names and may be absent.
    """
    names = rows.column_names
    texts = [name for name, feature in rows.features.items() if holds_text(feature)]
    audio = find_audio(place, rows, audio_column)
    text = required(place, text_column, texts) if text_column else usual(names, TEXT)
    speaker, id = usual(names, SPEAKER), usual(names, ID)
    read = list(dict.fromkeys(each for each in (audio, text, speaker, id) if each))
    say_columns(place, read, names)
    found = Rows(place, rows.select_columns(read).with_format("arrow"), audio, text, speaker, id)
    if not any(found.column(text)):
        first = rows.select_columns(texts).with_format("arrow")[:LOOKED_AT].to_pydict()
        warn_of_text(place, {name: filter(None, cells) for name, cells in first.items() if name not in read})
    return found


def open_rows(place: Path, files: Sequence[Path] = ()) -> "Dataset":
    """Open the dataset of a folder or of Parquet files."""
    try:
        from datasets import Dataset, load_from_disk
    except ImportError as error:
        raise UserError(
            "Hugging Face datasets are read with the library datasets: "
            'run pip install "priormatch[datasets]" first.'
        ) from error
    try:
        rows = Dataset.from_parquet([str(file) for file in files]) if files else load_from_disk(str(place))
    except Exception as error:  # datasets and pyarrow raise errors of many types
        what = f"{type(error).__name__}: {error}".splitlines()[0][:150]
        raise UserError(
            f"{place} cannot be read as a dataset ({what}): save or download it again."
        ) from error
    if not len(rows):
        raise UserError(f"{place} has no rows: check the dataset.")
    return rows


def find_audio(place: Path, rows: "Dataset", wanted: str) -> str:
    """Return the column with the audio or with paths to it; `wanted` if it is given."""
    found = [name for name, feature in rows.features.items() if holds_audio(feature)]
    paths = [name for name, feature in rows.features.items() if holds_text(feature)]
    if wanted:
        return required(place, wanted, [*found, *paths])
    if len(found) > 1:
        raise UserError(f"{place} has several audio columns, {', '.join(found)}: {NAME_AUDIO}.")
    audio = found[0] if found else usual(paths, AUDIO)
    if audio is None:
        raise UserError(
            f"{place} has no audio column among {', '.join(rows.column_names)}: "
            f"add one called audio, or {NAME_AUDIO}."
        )
    return audio


def holds_audio(feature: Any) -> bool:
    """Return whether a column has audio, by its type or by its fields, bytes and path."""
    return type(feature).__name__ == "Audio" or (
        isinstance(feature, dict) and feature.keys() == {"bytes", "path"}
    )


def holds_text(feature: Any) -> bool:
    """Return whether a column has text."""
    return getattr(feature, "dtype", None) in ("string", "large_string")


def distinct_ids(place: Path, given: Sequence[str]) -> list[str]:
    """Return ids for all rows: those given, which must differ, and others made from the folder's name."""
    counts = Counter(filter(None, given))
    if twice := [each for each, count in counts.items() if count > 1]:
        raise UserError(f"{place}: {counts[twice[0]]} rows have the id {twice[0]}; give each its own id.")
    name = place.absolute().name
    made = distinct_names((f"{name}-{index:06d}" for index in range(len(given))), taken=counts)
    return [each or other for each, other in zip(given, made, strict=True)]


def write_once(folder: Path, content: bytes, place: str) -> Path:
    """Write audio to a file named after its content, unless it exists."""
    suffix = PurePath(place).suffix.lower() or BEGINNINGS.get(content[:4], ".mp3")
    path = folder / f"{hashlib.sha256(content).hexdigest()[:24]}{suffix}"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_bytes(content)
    return path


def cell(value: Any) -> str:
    """Return a cell as text; None becomes ""."""
    return "" if value is None else str(value).strip()
