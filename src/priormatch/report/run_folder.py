"""What a run's folder tells: settings, data, stages, metrics, scores and beams, and what of these is missing."""

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from priormatch.config import Settings, flat
from priormatch.data.batches import read_cuts
from priormatch.data.manifest import SUFFIX, Summary, summary
from priormatch.errors import UserError
from priormatch.files import read_text
from priormatch.json_text import parse_json
from priormatch.old_names import NEW_NAMES, with_names
from priormatch.progress import track
from priormatch.report.scores import Scores, read_scores
from priormatch.runs.stage import FILE as STAGE
from priormatch.runs.stage import MATCHING, read_record
from priormatch.training.inspected import FILE as INSPECTED
from priormatch.training.inspected import Inspected, read_inspected
from priormatch.training.metrics import parse_entry
from priormatch.yaml_files import read_yaml

Found = TypeVar("Found")
Line = dict[str, Any]
"""A line of metrics.jsonl: its stage, its update, and figures."""

ORDER = (
    "data",
    "tokenizer",
    "prior",
    "supervised",
    "lengths",
    "supervised-longer",
    "labels",
    "pseudo_label",
    "fusion",
    "fusion-matching",
    "lengths-asr_lm",
    "lengths-speaking_rate",
    "lengths-oracle",
    MATCHING,
)
TOLD = {"finished": str, "notes": list, "versions": dict, "peak_memory_mb": float}
"""What the report takes from results.json."""
OF_EACH = ("name", "runs")
"""Settings that say where a run is, not what it does."""
SET_ASIDE = re.compile(r"\.\d+$")


@dataclass(frozen=True)
class Change:
    """A setting that is not as it comes."""

    name: str
    value: str
    default: str


@dataclass(frozen=True)
class RunRecord:
    """A run as its folder tells it; `missing` says in sentences what could not be read or is not there."""

    folder: Path
    name: str
    changes: list[Change]
    settings: dict[str, Any]  # by dotted names
    data: dict[str, Summary]
    sentences: dict[str, int]
    stages: dict[str, dict[str, Any]]
    results: dict[str, Any]  # empty where the run is not finished
    metrics: dict[str, list[Line]]
    scores: Scores
    inspected: list[Inspected]
    missing: list[str]

    @property
    def matching_stage(self) -> str:
        """The stage of matching; `priormatch match` calls it as it likes."""
        told = (
            stage for stage, lines in self.metrics.items() if any("proposal_cer" in line for line in lines)
        )
        return next(told, MATCHING)

    @property
    def matching(self) -> list[Line]:
        """The metrics of local prior matching."""
        return self.metrics.get(self.matching_stage, [])


def read_run(folder: Path) -> RunRecord:
    """Read all that there is; a folder that no run or training has written to is refused."""
    if not any((folder / name).is_file() for name in ("settings.yaml", "metrics.jsonl")):
        raise UserError(
            f"{folder} is not the folder of a run: give one that `priormatch run` made, such as runs/demo"
        )
    missing: list[str] = []
    settings: dict[str, Any] = attempt(read_settings, folder / "settings.yaml", {}, missing)
    defaults = flat(asdict(Settings()))
    changes = [
        Change(name, str(value), str(defaults.get(name, "")))
        for name, value in settings.items()
        if value != defaults.get(name) and name not in OF_EACH
    ]
    results: dict[str, Any] = attempt(read_results, folder / "results.json", {}, missing)
    stages: dict[str, dict[str, Any]] = attempt(read_stages, folder, {}, missing)
    unfinished = [name for name, record in stages.items() if not record["finished"]]
    if not results:
        at_work = f" ({', '.join(unfinished)} not yet done)" if unfinished else ""
        missing.insert(0, f"The run is not finished{at_work}: this is what is known so far.")
    return RunRecord(
        folder,
        str(settings.get("name") or folder.resolve().name),
        changes,
        settings,
        attempt(read_data, folder / "data", {}, missing),
        count_sentences(folder / "data"),
        stages,
        results,
        read_metrics(folder / "metrics.jsonl", missing),
        attempt(read_scores, folder / "decoded", Scores({}, []), missing),
        attempt(read_beams, folder, [], missing),
        missing,
    )


def attempt(read: Callable[[Path], Found], path: Path, otherwise: Found, missing: list[str]) -> Found:
    """What can be read at a path, or something instead and a sentence on why not."""
    try:
        return read(path)
    except (UserError, OSError) as error:
        missing.append(f"{error}.")
        return otherwise


def read_settings(path: Path) -> dict[str, Any]:
    """Settings of a run by their dotted names; none where the file is not there."""
    if not path.is_file():
        return {}
    try:
        tree = with_names(read_yaml(path), NEW_NAMES)
    except UserError as error:
        raise UserError(f"{path} is damaged: {error}") from error
    if not isinstance(tree, dict):
        raise UserError(f"{path} holds no settings")
    return flat(tree)


def read_results(path: Path) -> dict[str, Any]:
    """results.json, or nothing where the run has not got so far."""
    if not path.is_file():
        return {}
    try:
        found = parse_json(read_text(path))
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}") from error
    if not isinstance(found, dict) or any(
        not isinstance(found.get(name, kind()), kind) for name, kind in TOLD.items()
    ):
        raise UserError(f"{path} holds no results of a run")
    return found


def read_stages(folder: Path) -> dict[str, dict[str, Any]]:
    """The records of the stages, in the order of a run."""
    files = [*folder.glob(STAGE), *folder.glob(f"*/{STAGE}"), *folder.glob(f"*/*/{STAGE}")]
    names = {file.parent: str(file.parent.relative_to(folder)) for file in files}
    kept = {where: name for where, name in names.items() if not SET_ASIDE.search(name)}
    records = {folder.name if name == "." else name: read_record(where) for where, name in kept.items()}
    if bad := [name for name, record in records.items() if record and not is_number(record["seconds"])]:
        raise UserError(f"{STAGE} of {bad[0]} in {folder} is damaged: it does not tell its seconds")
    return {name: record for name in sorted(records, key=place) if (record := records[name]) is not None}


def place(stage: str) -> tuple[int, int, str]:
    """Where a stage stands in a list: known ones in their order, the decoding last."""
    return stage.startswith("decoded/"), ORDER.index(stage) if stage in ORDER else len(ORDER), stage


def read_data(folder: Path) -> dict[str, Summary]:
    """What the manifests of a run hold."""
    paths = sorted(folder.glob(f"*{SUFFIX}"))
    return {
        path.name.removesuffix(SUFFIX): summary(read_cuts(path)) for path in track(paths, "reading the data")
    }


def count_sentences(folder: Path) -> dict[str, int]:
    """The lines of a run's files of text."""
    counts = {}
    for path in sorted(folder.glob("*.txt")):
        with path.open("rb") as file:
            counts[path.stem] = sum(1 for _ in file)
    return counts


def read_metrics(path: Path, missing: list[str]) -> dict[str, list[Line]]:
    """The lines of metrics.jsonl by stage and by update; damaged ones are counted."""
    if not path.is_file():
        missing.append(f"{path} is not there, so there are no learning curves.")
        return {}
    stages: dict[str, list[Line]] = {}
    damaged = 0
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        line = parse_line(text)
        if line is None:
            damaged += 1
        else:
            stages.setdefault(line["stage"], []).append(line)
    if damaged:
        missing.append(f"{path} has {damaged} line{'s' * (damaged > 1)} that cannot be read: left out.")
    return {stage: sorted(lines, key=lambda line: line["update"]) for stage, lines in stages.items()}


def parse_line(text: str) -> Line | None:
    """A line of metrics, or None where it is none."""
    line = parse_entry(text)
    return line if line is not None and is_number(line["update"]) else None


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value of JSON is a number that can be drawn."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def read_beams(folder: Path) -> list[Inspected]:
    """The beams that matching kept, in a run or in a folder of its own."""
    files = [file for place in (folder / MATCHING, folder) if (file := place / INSPECTED).is_file()]
    return read_inspected(files[0]) if files else []


def values(lines: Sequence[Line], name: str) -> list[tuple[float, float]]:
    """(update, figure) of the lines that tell it as a number."""
    return [(line["update"], line[name]) for line in lines if is_number(line.get(name))]
