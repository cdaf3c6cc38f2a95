"""A stage of a run: a folder that records the settings and inputs it was made from."""

import contextlib
import functools
import hashlib
import json
import os
import platform
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from priormatch.distributed import at, from_main, is_main
from priormatch.errors import UserError
from priormatch.files import TEMPORARY, read_text, replace_text, set_aside
from priormatch.json_text import parse_json
from priormatch.old_names import NEW_NAMES, OLD_NAMES, with_names
from priormatch.progress import duration_text, say
from priormatch.recognizers.card import CARD
from priormatch.runs.lock import RUN_LOCK, STAGE_LOCK, alone_in
from priormatch.training.checkpoint import FILES as CHECKPOINTS
from priormatch.training.metrics import move_lines

FILE = "stage.json"
MATCHING = "lpm"  # the stage of local prior matching in a run
DECODED = "decoded"  # the folder with a stage for the transcripts of each system
OWN = (FILE, f"{TEMPORARY}{FILE}", STAGE_LOCK, RUN_LOCK)
SAFETENSORS_TEMPORARY = re.compile(r"\.tmp\w{6}")
TYPES: dict[str, Any] = {"recipe": dict, "finished": bool, "seconds": int | float, "files": dict}
"""Types of the fields in a record."""
FORMAT = 1
"""Increased when the meaning of a stage's output changes, so that old output is not mistaken for new."""


@dataclass(frozen=True)
class Wanted:
    """A stage that a run needs: its folder in the run's, its settings, its inputs by name, and its work.

    `make` writes into the stage's folder, in all processes of a job if they work `together`; later stages use `output`
    of it. `after` names a stage whose results become settings of this one.
    """

    name: str
    settings: Mapping[str, Any]
    inputs: Mapping[str, Path]
    make: Callable[[Path], object]
    output: str = "model"
    together: bool = False
    after: str = ""


@dataclass(frozen=True)
class Decision:
    """What becomes of a stage: `place` holds its work, finished or begun; without one it is made anew.

    `place` is the stage's own folder, or one that was set aside. `reason` tells why the work in the own folder is not
    used; "" if there is none. `seconds` is how long the stage took before, if it was ever finished.
    """

    folder: Path
    place: Path | None
    finished: bool = False
    reason: str = ""
    seconds: float | None = None


def name_of(folder: Path) -> str:
    """The name of the stage in a folder, such as `prior` or `decoded/lpm`."""
    return f"{DECODED}/{folder.name}" if folder.parent.name == DECODED else folder.name


def decide(folder: Path, recipe: Mapping[str, Any], kept: Sequence[Path] = ()) -> Decision:
    """Find the work of a recipe in a stage's folder or in those set aside; finished work comes first.

    Nothing is changed. Raises `UserError` if the folder holds something else than a stage.
    """
    own = read_record(folder) if holds_work(folder) else None
    if own is None and holds_work(folder):
        raise UserError(f"{folder} exists and was not made by priormatch: use another folder, or empty it")
    records = {} if own is None else {folder: own}
    records |= {each: record for each in kept if (record := kept_record(each)) is not None}
    times = [record["seconds"] for record in records.values() if record["finished"]]
    seconds = times[0] if times else None
    reason = "" if own is None else why_not(own, recipe, folder)
    fitting = {each: record for each, record in records.items() if not why_not(record, recipe, each)}
    for finished in (True, False):
        for place, record in fitting.items():
            if record["finished"] is finished:
                return Decision(folder, place, finished, reason, seconds)
    return Decision(folder, None, False, reason, seconds)


def why_not(record: Mapping[str, Any], recipe: Mapping[str, Any], folder: Path) -> str:
    """Why the work that a record describes is not that of a recipe; "" if it is, finished or not."""
    if record["recipe"] != recipe:
        return f"{', '.join(differences(record['recipe'], recipe))} changed"
    gone = missing_files(record, folder) if record["finished"] else []
    return f"{gone[0]} is missing or changed" if gone else ""


def kept_record(folder: Path) -> dict[str, Any] | None:
    """The record of a folder that was set aside; None if it holds no work, or its record is damaged."""
    try:
        return read_record(folder) if folder.is_dir() and holds_work(folder) else None
    except UserError:
        return None


def missing_files(record: Mapping[str, Any], folder: Path) -> list[str]:
    """Files of finished work that are missing or have a different size."""
    return [name for name, size in record.get("files", {}).items() if size_of(folder / name) != size]


def recipe_of(
    settings: Mapping[str, Any], inputs: Mapping[str, Path], planned: Mapping[Path, Any] | None = None
) -> dict[str, Any]:
    """What a stage is made from: its settings and fingerprints of its inputs.

    `planned` has the recipes of stages, by folder, that are yet to be made.
    """
    return {
        "settings": {name: plain(value) for name, value in settings.items()},
        "inputs": {name: fingerprint(path, planned) for name, path in inputs.items()},
        "format": FORMAT,
    }


class Stage:
    """Work with its output in one folder, done once for given settings and inputs.

    `stage.json` in the folder records the settings and inputs, whether the work is finished, its files, and the time
    and memory it took. A folder started with the same settings resumes. A folder with other settings is never
    overwritten: with `keep_old` it is renamed, otherwise it is refused. With `keep_old`, a folder that was renamed
    before is used again if it has the same settings and inputs.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, Any], inputs: Mapping[str, Path], keep_old: bool = False
    ) -> None:
        self.folder, self.inputs = folder, inputs
        self.recipe: dict[str, Any] = {}
        self.record: dict[str, Any] | None = None
        if is_main():
            self._look(settings, keep_old)

    def _look(self, settings: Mapping[str, Any], keep_old: bool) -> None:
        """Read the record of the folder, and make room if it holds other work."""
        folder = self.folder
        self.recipe = recipe_of(settings, self.inputs)
        found = decide(folder, self.recipe, kept_aside(folder) if keep_old else ())
        own = read_record(folder) if holds_work(folder) else None
        if own is not None and found.reason and not keep_old and own["recipe"] != self.recipe:
            raise UserError(
                f"{folder} was made with other settings ({found.reason.removesuffix(' changed')}): use another"
                " folder, or remove it"
            )
        if found.place is not None and found.place != folder:
            self._bring_back(found.place)
        elif found.reason:
            say(f"{self.name}: rerun because {found.reason}; the old folder is kept as {put_aside(folder)}")
        self.record = None if found.place is None else read_record(folder)

    def _bring_back(self, place: Path) -> None:
        """Use a folder again that was set aside, and set aside the one in its place."""
        other = f"; the other folder is kept as {put_aside(self.folder)}" if self.folder.exists() else ""
        with alone_in(place):
            place.rename(self.folder)
        move_logs(self.folder, self.folder, self.folder.parent)
        say(f"{self.name}: {place.name} has these settings and is used again{other}")

    @property
    def name(self) -> str:
        """The name of the stage in its run."""
        return name_of(self.folder)

    @property
    def finished(self) -> bool:
        """Whether the work is finished."""
        return self.record is not None and self.record["finished"]

    def missing(self) -> list[str]:
        """Files of the finished work that are missing or have a different size."""
        return [] if self.record is None else missing_files(self.record, self.folder)

    def require_unchanged(self) -> None:
        """Refuse to build on this stage if its folder or its inputs have changed since this process used them."""
        record = read_record(self.folder)
        if record is None or not record["finished"] or record["recipe"] != self.recipe:
            raise UserError(
                f"{self.folder} was changed by another process during the run: run again, with one command at a time"
            )
        now = {name: fingerprint(path) for name, path in self.inputs.items()}
        if changed := differences(self.recipe["inputs"], now):
            raise UserError(
                f"{self.inputs[changed[0]]} changed during the run, after {self.folder} was made from it: restore it,"
                " or run again to use it as it is now"
            )

    @contextlib.contextmanager
    def work(self, together: bool = False) -> Iterator[bool]:
        """Wrap the work: yield whether there is any to do, and record when it is finished.

        The main process of a job does it for all, or `together` with the others. The recorded seconds include
        interrupted attempts.
        """
        at(f"the stage {self.name}")
        if is_main():
            with self._work() as todo:
                yield from_main(todo)
        else:
            yield from_main(False) and together
        from_main(None)  # the others wait for the record

    @contextlib.contextmanager
    def _work(self) -> Iterator[bool]:
        if self.finished:
            say(f"{self.name}: finished before, reused")
            yield False
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        before = self.record["seconds"] if self.record is not None else 0.0
        began = time.monotonic()

        def write(finished: bool) -> None:
            self.record = {
                "finished": finished,
                "seconds": round(before + time.monotonic() - began, 2),
                "peak_memory_mb": peak_memory_mb(),
                "versions": versions(),
                "device": device_name(),
                "recipe": self.recipe,
                "files": files_of(self.folder) if finished else {},
            }
            replace_text(self.folder / FILE, json.dumps(self.record, indent=2) + "\n")

        with alone_in(self.folder):
            known = read_record(self.folder)  # another process may have finished it meanwhile
            if known is not None and known["finished"] and known["recipe"] == self.recipe:
                self.record = known
                say(f"{self.name}: finished by another process, reused")
                yield False
                return
            remove_leftovers(self.folder)
            write(finished=False)
            say(f"{self.name} ...")
            try:
                yield True
            except BaseException:
                write(finished=False)
                raise
            write(finished=True)
        assert self.record is not None
        say(f"{self.name}: done in {duration_text(self.record['seconds'])}")


def remove_leftovers(folder: Path) -> None:
    """Remove incomplete files that a kill left in a folder locked by this process: ours and those of safetensors."""
    for each in folder.rglob(".tmp*"):
        if each.is_file() and (each.name.startswith(TEMPORARY) or SAFETENSORS_TEMPORARY.fullmatch(each.name)):
            each.unlink()


def files_of(folder: Path) -> dict[str, int]:
    """Sizes of the files that make up the work, without records, logs, cards and checkpoints, which may change."""
    logs = {"metrics.jsonl", "metrics.old.jsonl", "metrics.lock", "inspected.jsonl", "tensorboard", "wandb"}
    dispensable = {*OWN, *CHECKPOINTS, *logs, "report.html", CARD}
    inside = {each: each.relative_to(folder) for each in sorted(folder.rglob("*")) if each.is_file()}
    return {
        str(name): each.stat().st_size for each, name in inside.items() if dispensable.isdisjoint(name.parts)
    }


def size_of(file: Path) -> int | None:
    """The size of a file, or None if it does not exist."""
    return file.stat().st_size if file.is_file() else None


def holds_work(folder: Path) -> bool:
    """Whether the folder contains anything but the record and locks of a stage."""
    if not folder.exists():
        return False
    if not folder.is_dir():
        raise UserError(f"{folder} is a file, not a folder: use another folder")
    return any(each.name not in OWN for each in folder.iterdir())


def read_record(folder: Path) -> dict[str, Any] | None:
    """Read `stage.json`; None if there is none."""
    file = folder / FILE
    try:
        record = with_names(parse_json(read_text(file)), NEW_NAMES)
        if not (isinstance(record, dict) and record.keys() >= {"recipe", "finished", "seconds"}):
            return None
        known = {"files": {}, **record}
        if wrong := [name for name, kind in TYPES.items() if not isinstance(known[name], kind)]:
            raise ValueError(f"{wrong[0]} is {str(known[wrong[0]])[:40]}")
        return record
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise UserError(f"{file} is damaged ({error}): remove {folder} to make it again") from error


def fingerprint(path: Path, planned: Mapping[Path, Any] | None = None) -> Any:
    """A value that changes when an input changes.

    For the output of another finished stage it is that stage's recipe, also if the stage is only `planned`; for any
    other file its size and modification time, and for a folder those of all its files except a card.
    """
    for place in (path, *path.parents):
        recipe = (planned or {}).get(place)
        if recipe is None and (place / FILE).is_file():
            record = read_record(place)
            recipe = record["recipe"] if record is not None and record["finished"] else None
        if recipe is not None:
            return f"{path.relative_to(place)} of {digest_of_recipe(recipe)}"
    files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    stats = [
        (str(each.relative_to(path)), (s := each.stat()).st_size, s.st_mtime_ns)
        for each in files
        if each.exists() and each.name != CARD
    ]
    return f"{os.path.realpath(path)} {digest(stats)}"  # realpath also accepts a loop of links


def digest(value: Any) -> str:
    """A short hash of anything JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def digest_of_recipe(recipe: Any) -> str:
    """A short hash of a recipe, taken under the old names, so that stages of older runs keep theirs."""
    return digest(with_names(recipe, OLD_NAMES))


def plain(value: Any) -> Any:
    """Convert settings to the values that JSON returns for them."""
    return json.loads(
        json.dumps(asdict(value) if is_dataclass(value) and not isinstance(value, type) else value)
    )


def differences(old: Any, new: Any, before: str = "") -> list[str]:
    """Dotted names of the differences between two nested dictionaries."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return [] if old == new else [before.removeprefix("settings.")]
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return [
        each
        for name in names
        for each in differences(old.get(name), new.get(name), f"{before}.{name}".lstrip("."))
    ]


def put_aside(folder: Path) -> Path:
    """Rename a stage's folder, and move its lines of the run's metrics into it; return the new path."""
    with alone_in(folder):  # no other process may be working in it
        aside = set_aside(folder)
    move_logs(folder, folder.parent, aside)
    return aside


def move_logs(stage: Path, source: Path, target: Path) -> None:
    """Move a stage's metrics and TensorBoard events from one folder to another; a run keeps them beside its stages."""
    move_lines(stage.name, source, target)
    events = Path("tensorboard") / stage.name
    if (source / events).is_dir() and not (target / events).exists():
        (target / events).parent.mkdir(exist_ok=True)
        (source / events).rename(target / events)


def kept_aside(path: Path) -> list[Path]:
    """Copies of a file or folder that `set_aside` renamed, the highest number first."""
    beside = [each for each in path.parent.glob("*.*") if each.stem == path.name]
    numbered = [each for each in beside if each.suffix[1:].isdecimal()]
    return sorted(numbered, key=lambda each: int(each.suffix[1:]), reverse=True)


def peak_memory_mb() -> float:
    """Peak memory of this process plus that of its largest child."""
    import resource

    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    unit = 1 << 20 if platform.system() == "Darwin" else 1 << 10
    return round(sum(resource.getrusage(kind).ru_maxrss for kind in kinds) / unit, 1)


def versions() -> dict[str, str]:
    """Versions of the software that may affect results."""
    names = ("priormatch", "torch", "lhotse", "sentencepiece", "numpy")
    found = {"python": platform.python_version()}
    if (made_of := commit()) is not None:
        found["commit"] = made_of
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


@functools.cache
def commit() -> str | None:
    """The commit of the clone this runs from, marked if files differ from it; None outside a clone."""
    clone = Path(__file__).parents[3]
    if not ((clone / ".git").exists() and (clone / "pyproject.toml").is_file()):
        return None
    words = ["git", "--no-optional-locks", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(words, cwd=clone, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def device_name() -> str:
    """The name of the device: the GPU if this process has used one so far, otherwise the CPU."""
    if torch.cuda.is_initialized():
        return torch.cuda.get_device_name()
    return f"CPU ({platform.machine()}, {os.cpu_count()} cores)"
