"""Cuts on disk, read when they are needed: for manifests with too many cuts for memory.

The index of a manifest is a folder beside it. It holds the lines of the cuts, where each begins, and in columns what
planning needs of all cuts at once. It is written once, by one process, and mapped into memory by all.
"""

import fcntl
import json
import os
import platform
import shutil
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from priormatch.errors import UserError
from priormatch.files import TEMPORARY, sync, writing
from priormatch.json_text import parse_json, parse_object
from priormatch.progress import Meter, say

if TYPE_CHECKING:  # lhotse is slow to import
    from lhotse import MonoCut

MOST_IN_MEMORY = 200_000  # cuts of about 2 KB
SUFFIX = ".index"
LINES, STAMP = "lines.jsonl", "index.json"
IDS, BEGINS, DURATIONS, TRANSCRIBED = "ids.jsonl", "begins.npy", "durations.npy", "transcribed.npy"
AT_ONCE = 4096  # cuts between two reports of progress


class IndexedCuts(Sequence["MonoCut"]):
    """The cuts of an index, or those chosen by rising numbers; each is parsed and checked when it is read."""

    def __init__(self, folder: Path, chosen: np.ndarray | None = None) -> None:
        self.folder = folder
        self.lines = np.memmap(folder / LINES, np.uint8, "r")
        self.begins, durations, transcribed = (
            np.load(folder / name, mmap_mode="r") for name in (BEGINS, DURATIONS, TRANSCRIBED)
        )
        if not len(self.begins) - 1 == len(durations) == len(transcribed):
            raise ValueError("its columns have different lengths")
        self.chosen = np.arange(len(durations), dtype=np.int32) if chosen is None else chosen
        self.durations: np.ndarray = durations if chosen is None else durations[chosen]
        self.transcribed: np.ndarray = transcribed if chosen is None else transcribed[chosen]

    def __len__(self) -> int:
        return len(self.chosen)

    @overload
    def __getitem__(self, number: int) -> "MonoCut": ...
    @overload
    def __getitem__(self, number: slice) -> "IndexedCuts": ...
    def __getitem__(self, number: int | slice) -> "MonoCut | IndexedCuts":
        if isinstance(number, slice):
            return IndexedCuts(self.folder, self.chosen[number])
        from priormatch.data.cuts import cut_of

        place = self.chosen[number]
        begin, end = self.begins[place], self.begins[place + 1]
        try:
            return cut_of(parse_object(self.lines[begin:end].tobytes().decode()))
        except ValueError as error:
            raise damaged(self.folder, error) from error

    def __iter__(self) -> Iterator["MonoCut"]:
        return (self[number] for number in range(len(self)))

    def __reduce__(self) -> tuple[type["IndexedCuts"], tuple[Path, np.ndarray]]:
        return IndexedCuts, (self.folder, self.chosen)  # not what is mapped

    @property
    def ids(self) -> Iterator[str]:
        """The ids of all cuts, in order; they are read from a file."""
        wanted = np.zeros(len(self.begins) - 1, np.bool_)
        wanted[self.chosen] = True
        with (self.folder / IDS).open(encoding="utf-8") as lines:
            yield from map(json.loads, compress(lines, wanted))

    def only(self, wanted: np.ndarray) -> "IndexedCuts":
        """The cuts for which wanted (cuts,) is true."""
        return self if wanted.all() else IndexedCuts(self.folder, self.chosen[wanted])


def index_of(manifest: Path) -> Path:
    """The folder of a manifest's index."""
    return manifest.with_name(f"{manifest.name}{SUFFIX}")


def open_index(manifest: Path) -> IndexedCuts | None:
    """The cuts of a manifest that has an index of its present content; None without one."""
    folder = index_of(manifest)
    try:
        stamp = parse_json((folder / STAMP).read_bytes())
        return IndexedCuts(folder) if stamp == stamp_of(manifest) else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise damaged(folder, error) from error


def damaged(folder: Path, error: Exception) -> UserError:
    """The error about an index that cannot be read."""
    return UserError(f"{folder} is damaged ({error}): remove it, and it will be rebuilt")


def make_index(manifest: Path, cuts: Iterable[tuple[str, "MonoCut"]]) -> IndexedCuts:
    """Write the index of a manifest from its lines and their cuts, unless another process has just done so."""
    folder = index_of(manifest)
    temporary = folder.with_name(f"{TEMPORARY}{platform.node()}-{os.getpid()}-{folder.name}")
    with _after_others(manifest):
        if (found := open_index(manifest)) is not None:
            return found
        say(
            f"{manifest} has more than {MOST_IN_MEMORY:,} cuts: {folder} is made once, to read them from disk"
        )
        try:
            with writing(folder):
                temporary.mkdir()
                _write(temporary, stamp_of(manifest), cuts)
            shutil.rmtree(folder, ignore_errors=True)  # of another content
            with suppress(OSError):  # made meanwhile by a process on another machine
                temporary.rename(folder)
        except PermissionError as error:
            raise UserError(
                f"{folder} cannot be written, and the manifest has too many cuts for memory: put the manifest into a"
                " folder that can be written"
            ) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return IndexedCuts(folder)


def stamp_of(manifest: Path) -> dict[str, Any]:
    """What tells whether a manifest has changed."""
    its = manifest.stat()
    return {"bytes": its.st_size, "changed_ns": its.st_mtime_ns}


def _write(folder: Path, stamp: dict[str, Any], cuts: Iterable[tuple[str, "MonoCut"]]) -> None:
    from priormatch.data.corpus import cut_text

    begins, durations, transcribed = array("q", [0]), array("d"), bytearray()
    with (
        Meter("indexing cuts", None) as meter,
        (folder / LINES).open("wb") as out,
        (folder / IDS).open("w", encoding="utf-8") as ids,
    ):
        for line, cut in cuts:
            ids.write(json.dumps(cut.id) + "\n")
            begins.append(begins[-1] + out.write(line.encode()))
            durations.append(cut.duration)
            transcribed.append(bool(cut_text(cut)))
            if len(durations) % AT_ONCE == 0:
                meter.advance(AT_ONCE)
    np.save(folder / BEGINS, np.frombuffer(begins, np.int64))
    np.save(folder / DURATIONS, np.frombuffer(durations, np.float64))
    np.save(folder / TRANSCRIBED, np.frombuffer(transcribed, np.bool_))
    (folder / STAMP).write_text(json.dumps(stamp) + "\n")
    for name in (LINES, IDS, BEGINS, DURATIONS, TRANSCRIBED, STAMP):
        sync(folder / name)


@contextmanager
def _after_others(manifest: Path) -> Iterator[None]:
    """Wait while another process of this machine makes the index, where files can be locked."""
    with manifest.open("rb") as file:
        with suppress(OSError):  # both would make it, and one would be kept
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
