"""`priormatch report`: write one HTML file about runs, from their folders."""

import base64
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from priormatch import __version__
from priormatch.errors import UserError
from priormatch.files import replace_text
from priormatch.progress import duration_text
from priormatch.report import curves
from priormatch.report.aligned import model_of
from priormatch.report.charts import minus
from priormatch.report.inspector import (
    ROOM,
    Utterance,
    WorstUtterance,
    error_change,
    utterances,
    worst_utterances,
)
from priormatch.report.run_folder import RunRecord, read_run
from priormatch.runs.results import BASE

FILE = "report.html"
MOST_SPEAKERS = 40  # of a test set in its table
GENERATOR = '<meta name="generator" content="priormatch'


@dataclass(frozen=True)
class RunView:
    """A run as shown on the page; `key` is the prefix of its section ids, and `label` its unique name."""

    key: str
    label: str
    record: RunRecord
    utterances: list[Utterance]
    worst: dict[str, list[WorstUtterance]]
    unaligned: str  # why no words are aligned with the audio; "" if they are

    @property
    def versions(self) -> dict[str, str]:
        """Versions of the software that made the run, including its commit."""
        records = (stage.get("versions") for stage in self.record.stages.values())
        return self.record.results.get("versions") or next(filter(None, records), {})

    @property
    def devices(self) -> list[str]:
        """The devices of the stages."""
        found = (record.get("device") for record in self.record.stages.values())
        return list(dict.fromkeys(filter(None, found)))

    @property
    def seconds(self) -> float:
        """Total time of all stages in seconds."""
        return float(sum(record["seconds"] for record in self.record.stages.values()))

    @property
    def longest(self) -> float:
        """Time of the longest stage in seconds."""
        return float(max((record["seconds"] for record in self.record.stages.values()), default=0.0))


def write_report(folders: Sequence[Path], out: Path | None = None) -> Path:
    """Write the report of runs to `out`, or into the folder of a single run; return its path."""
    if len(set(folder.resolve() for folder in folders)) < len(folders):
        raise UserError("a run was given twice: name each folder once")
    path = out or (folders[0] / FILE if len(folders) == 1 else Path(FILE))
    if path.is_dir():
        raise UserError(f"{path} is a folder: set --out to the name of a file, such as {path / FILE}")
    if path.exists() and not is_report(path):
        raise UserError(f"{path} exists and is not a priormatch report: choose another --out, or remove it")
    page = render([read_run(folder) for folder in folders])
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, page)
    return path


def is_report(path: Path) -> bool:
    """Return whether a file is a report, which may be overwritten."""
    with path.open(encoding="utf-8", errors="replace") as file:
        return GENERATOR in file.read(1000)


def render(records: Sequence[RunRecord]) -> str:
    """Render the page of some runs; everything but the templates' own markup is escaped."""
    room = ROOM // len(records)
    labels = labels_of(records)
    runs = [
        view_of(f"run{number}", label, record, room)
        for number, (record, label) in enumerate(zip(records, labels, strict=True), 1)
    ]
    environment = Environment(
        loader=PackageLoader("priormatch.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"duration": duration_text, "rate": rate_text, "short_name": short_name}
    script = environment.get_template("script.js").render()
    return environment.get_template("page.html").render(
        runs=runs,
        compared=curves.compared(dict(zip(labels, records, strict=True))) if len(records) > 1 else [],
        differing=curves.differing(records),
        curves=curves,
        names=curves.STAGE_NAMES,
        base=BASE,
        most_speakers=MOST_SPEAKERS,
        error_change=error_change,
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        version=__version__,
    )


def view_of(key: str, label: str, record: RunRecord, room: int) -> RunView:
    """Embed the audio of a run's utterances, in at most `room` characters, half of them for the test sets."""
    found = model_of(record.folder)
    model, why = (None, found) if isinstance(found, str) else (found, "")
    shown = utterances(record.inspected, room // 2, model)
    worst = record.scores.worst
    share = room // 2 // max(len(worst), 1)
    listed = {test: worst_utterances(its, share, model) for test, its in worst.items() if its}
    return RunView(key, label, record, shown, listed, why)


def labels_of(records: Sequence[RunRecord]) -> list[str]:
    """Return the runs' names if they differ, else their folders."""
    names = [record.name for record in records]
    folders = [record.folder.resolve().name for record in records]
    paths = [str(record.folder) for record in records]
    return next(each for each in (names, folders, paths) if len(set(each)) == len(each) or each is paths)


def short_name(system: str) -> str:
    """The name of a system without what is in parentheses."""
    return curves.STAGE_NAMES[system].partition(" (")[0]


def rate_text(value: float, digits: int = 2) -> str:
    """Format a rate in percent."""
    return minus(f"{value:.{digits}f}") if math.isfinite(value) else "–"
