"""The page of a table: our figures next to the paper's, their confidence intervals, and how they were made."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from priormatch.config import Settings, flat
from priormatch.experiments import comparisons
from priormatch.experiments.comparisons import Measured
from priormatch.experiments.layout import (
    Grid,
    as_records,
    as_tsv,
    every_seed,
    markdown,
    on_screen,
    side_by_side,
)
from priormatch.experiments.measure import SHOWN, beams
from priormatch.experiments.scales import Request, as_ranges
from priormatch.experiments.study import Places, Study
from priormatch.experiments.table import BEAMS, MISSING, TRAINED_BY, Cells, Row, System, Table, tables
from priormatch.experiments.trained import trained_for
from priormatch.files import replace_text
from priormatch.json_text import to_json
from priormatch.old_names import REMOVED_FROM_MATCHING
from priormatch.pipeline.recipe import recipe_of_model
from priormatch.pipeline.show_hypotheses import LEGEND
from priormatch.progress import say
from priormatch.report.run_folder import read_metrics, values
from priormatch.runs.stage import MATCHING, commit, kept_aside, plain, read_record

FIRST_ROUND = "lpm-first"  # stage of the removed variant with two rounds
GONE = {f"matching.{name}": value for name, value in REMOVED_FROM_MATCHING.items()}
TRAININGS = (MATCHING, "supervised-longer", "topline", "pseudo_label")
RECORDED = ("model", "training", "audio", "matching", "prior")
"""Sections whose settings are recorded as given; values for a search are tuned."""

PAPERS_BEAMS = "The paper's beams (word pieces)"
DIFFERENCES = """\
## Differences from plain matching

Error rates minus those of the named row of plain local prior matching, in points: below zero is better. In parentheses,
the 95 % confidence interval of a paired bootstrap over utterances, pooled over the seeds that both rows have; bold if
it excludes zero.
"""
RECOVERED = """\
## Recovered word error rates

The share of the gap between the supervised system and the topline that a row closes, in percent, with the 95 %
confidence interval of the same bootstrap. In columns with 960, the topline has the labels of all unlabeled speech.
"""
ENDINGS = """\
CER is the best and the last validation CER of a training. If they are far apart, the training went wrong after its best
model. The figures in the table are those of the best model.
"""


@dataclass(frozen=True)
class Page:
    """What a page is made for and from: the request, one of its tables, the studies by seed, and the rows."""

    request: Request
    table: str
    studies: Mapping[int, Places]
    rows: Sequence[Row]

    @property
    def first(self) -> Places:
        """The study of the first seed, which names folders and settings."""
        return next(iter(self.studies.values()))


def rated_page(page: Page, measured: Sequence[Measured]) -> Path:
    """Print and write a table from the measurements of its rows."""
    table, found = tables()[page.table], comparisons.with_recovered(measured)
    shown = [printed(page.table, row, page.first) for row in page.rows]
    start = page.first.settings.matching.start or "A"
    differences = comparisons.differences(page.table, measured, start)
    recovered = comparisons.recovered(measured)
    judged = comparisons.verdicts(table.claims, measured)
    sections = [*footnotes(table, page.rows), *([comparisons.section(judged)] if judged else [])]
    sections += [
        f"{heading}\n{markdown(comparisons.table_of(estimates))}"
        for heading, estimates in ((DIFFERENCES, differences), (RECOVERED, recovered))
        if estimates
    ]
    files = {"": every_seed(shown, found, page.request.seeds)}
    if estimates := [*differences, *recovered]:
        files[".intervals"] = comparisons.for_machines(estimates)
    missing = not_measured(page.request.seeds, measured)
    return write_page(page, side_by_side(shown, found), files, sections, missing)


def beams_page(request: Request, studies: Mapping[int, Study]) -> Path:
    """Print and write the beams of the first seed and, below them, the paper's."""
    head, papers = ["utterance", "model", "rank", "log p(y)", "hypothesis"], papers_beams()
    verbatim = [[*line, f"`{pieces}`"] for *line, pieces in papers]
    sections = [f"{LEGEND}.\n", f"## {PAPERS_BEAMS}\n\n{markdown([head, *verbatim])}"]
    ours = beams(studies[request.seeds[0]])
    row = Row(1, "LPM", {}, system=SHOWN)
    page = write_page(Page(request, BEAMS, studies, [row]), ours, {"": ours}, sections)
    if not request.as_json:
        show(PAPERS_BEAMS, [head, *papers])
    return page


def papers_beams() -> Grid:
    """The rows of Table 1 in the paper."""
    return [
        ["" if value == MISSING else value for value in row.cells.values()] for row in tables()[BEAMS].rows
    ]


def not_measured(seeds: Sequence[int], measured: Sequence[Measured]) -> str:
    """The rows that have a system but no figures, by seed, as text; empty if the page is complete."""
    words = []
    for position, seed in enumerate(seeds):
        systems = [each for each in measured if each.row.system is not None]
        if rows := [each.row for each in systems if not each.seeds[position].values]:
            words.append(f"{in_ranges(rows)} with seed {seed}")
    return "; ".join(words)


def in_ranges(rows: Sequence[Row]) -> str:
    """The numbers of rows, as text."""
    return f"row{'s' if len(rows) > 1 else ''} {as_ranges([row.number for row in rows])}"


def printed(table: str, row: Row, study: Places) -> Cells:
    """The values of a row, with its number and its settings at this scale.

    These are the number of updates in Table 8, loss weights in Table A1, and bounds in Table X1.
    """
    cells = {"row": str(row.number)} | row.cells
    if row.system is None:
        return cells
    matching = study.settings_of(row.system).matching
    match table:
        case "tab8_label_quality":
            step = cells["step"] if cells["step"] in ("All", "0") else str(matching.updates)
            return beside(cells, "step", {"our_step": step})
        case "tabA1_alpha":
            return beside(cells, "alpha", {"our_loss_weight": f"{matching.loss_weight:g}"})
        case "x1_open_questions":
            return cells | {"length_filter": str(matching.length_filter or "off")}
        case _:
            return cells


def beside(cells: Cells, column: str, ours: Cells) -> Cells:
    """The values of a row with columns of ours after one of the paper's."""
    names = list(cells)
    return {name: cells[name] for name in names[: names.index(column) + 1]} | ours | cells


def footnotes(table: Table, rows: Sequence[Row]) -> list[str]:
    """Notes on rows for which the paper's own figures do not agree."""
    found = [(row, each) for each in table.misprints for row in rows if row.name == each.row]
    return [
        f"Row {row.number}: {row.cells[each.column]} is a misprint in the paper; its word error rates give"
        f" {each.true}.\n"
        for row, each in found
    ]


def write_page(
    page: Page, shown: Grid, for_machines: Mapping[str, Grid], sections: Sequence[str], missing: str = ""
) -> Path:
    """Print a table and write its page next to the studies, with machine-readable files by the end of their names."""
    request, table, title = page.request, page.table, tables()[page.table].title
    rows = f"-rows-{request.rows[table]}" if table in request.rows else ""
    path = page.first.folder.parent / f"{table}{rows}.md"
    if request.as_json:
        print(to_json({"table": table, "title": title, "rows": as_records(for_machines[""])}))
    else:
        show(title, shown)
    blocks = [f"# {title}\n\n    {request.command(table)}\n", markdown(shown), *sections]
    replace_text(path, "\n".join([*blocks, account(page, missing)]))
    files = {path.with_name(f"{path.stem}{end}.tsv"): grid for end, grid in for_machines.items()}
    for file, grid in files.items():
        replace_text(file, as_tsv(grid))
    say(" and ".join(map(str, (path, *files))))
    if missing:
        say(f"{table}: not measured with these settings: {missing}")
    return path


def show(title: str, grid: Grid) -> None:
    """Print a table."""
    Console(width=None if sys.stdout.isatty() else 200).print(on_screen(title, grid))


def account(page: Page, missing: str) -> str:
    """How a table was made: seeds, settings, missing rows, commits, device, and the seconds of each training."""
    request, studies = page.request, page.studies
    trained = trainings(list(studies.values()), page.rows)
    records = [record for each in trained for record in each.records if record is not None]
    commits = sorted({record["versions"].get("commit", "unknown") for record in records})
    devices = sorted({record.get("device", "unknown") for record in records})
    facts = [
        f"- Seeds: {', '.join(map(str, request.seeds))}. Our figures are the mean over seeds, and each seed.",
        f"- Settings: `{request.recipe.name}` and the overrides in the command; `settings.yaml` in each seed's folder"
        " has all settings of the last run.",
        *([f"- Not measured with these settings: {missing}."] if missing else []),
        *removed_rows(page.rows),
        *([f"- Trained at commit {', '.join(commits)}, on {', '.join(devices)}."] if records else []),
        f"- Written at commit {commit() or 'unknown'}, {time.strftime('%Y-%m-%d', time.gmtime())}.",
        f"- {len(records)} trainings, {sum(record['seconds'] for record in records):.0f} s in total:",
    ]
    told = [f"{what}, seed {seed}" for what in ("seconds", "CER, best and last") for seed in studies]
    body = [
        [
            each.rows,
            each.name,
            *(f"{record['seconds']:.0f}" if record else "" for record in each.records),
            *each.endings,
        ]
        for each in trained
    ]
    table = markdown([["rows", "training", *told], *body])
    return "\n".join(["## How it was made", "", *facts, "", ENDINGS, table])


def removed_rows(rows: Sequence[Row]) -> list[str]:
    """A line about rows whose variants have been removed; nothing without such rows."""
    removed = [row for row in rows if row.recorded]
    if not removed:
        return []
    show = "show variants" if len(removed) > 1 else "shows one of the variants"
    return [
        f"- {in_ranges(removed).capitalize()} {show} that have since been removed; commit {TRAINED_BY} can train them."
    ]


@dataclass(frozen=True)
class Training:
    """A training that rows depend on: for each seed, the record of its stage and its best and last CER."""

    rows: str
    name: str
    records: list[dict[str, Any] | None]
    endings: list[str]


def trainings(studies: Sequence[Places], rows: Sequence[Row]) -> list[Training]:
    """The trainings of the rows: shared models and systems."""
    first, systems = studies[0].folder, [row.system for row in rows if row.system is not None]
    shared = zip(*(shared_models(study, systems).items() for study in studies), strict=True)
    found = [
        Training(
            "shared",
            str(each[0][0].relative_to(first)),
            [record_of([at], made) for at, made in each],
            ["" for _ in each],
        )
        for each in shared
    ]
    numbers: dict[str, tuple[System, list[str]]] = {}
    for row in rows:
        if row.system is not None and row.system.kind != "start":  # the shared supervised model
            name = studies[0].folder_of(row.system).name
            numbers.setdefault(name, (row.system, []))[1].append(str(row.number))
    for name, (system, its) in numbers.items():
        if system.recorded and (studies[0].folder_of(system) / FIRST_ROUND).is_dir():
            found.append(training(", ".join(its), f"{name}, first round", studies, system, (FIRST_ROUND,)))
        found.append(training(", ".join(its), name, studies, system))
    return found


def training(
    rows: str, name: str, studies: Sequence[Places], system: System, stages: Sequence[str] = TRAININGS
) -> Training:
    """The training of a system, from the stage that it has."""
    records = [system_record(study, system, stages) for study in studies]
    return Training(rows, name, records, [ending(study, system, stages) for study in studies])


def shared_models(study: Places, systems: Sequence[System]) -> dict[Path, Settings]:
    """The folders of the shared models of systems, with their settings."""
    return {
        study.folder_of_models(settings) / what: settings
        for system in systems
        for settings in study.settings_of_models(system)
        for what in trained_for(settings, study.settings)
    }


def system_record(study: Places, system: System, stages: Sequence[str] = TRAININGS) -> dict[str, Any] | None:
    """The record of a system's training; for a removed variant, with any settings."""
    folder = study.folder_of(system)
    settings = None if system.recorded else study.settings_of(system)
    return record_of([folder / name for name in stages], settings)


def ending(study: Places, system: System, stages: Sequence[str] = TRAININGS) -> str:
    """The best and the last validation CER of a system's training; "" if its log is missing or of another training.

    The model it starts from counts only if `matching.start_counts` is set.
    """
    folder, settings = study.folder_of(system), study.settings_of(system)
    logged = read_metrics(folder / "metrics.jsonl", [])
    for name in stages:
        record = read_record(folder / name)
        if record is None or not record["finished"]:
            continue
        if system.recorded or was_made_with(record, settings):
            validations = values(logged.get(name, []), "validation_score")
            scores = [score for update, score in validations if update > 0 or settings.matching.start_counts]
            return f"{min(scores):.1f}, {scores[-1]:.1f}" if scores else ""
    return ""


def record_of(folders: Sequence[Path], settings: Settings | None) -> dict[str, Any] | None:
    """The record of a finished training with these settings (None: any), also among old copies."""
    places = [place for folder in folders for place in (folder, *kept_aside(folder))]
    records = [record for place in places if (record := read_record(place)) is not None]
    finished = (each for each in records if each["finished"])
    return next((each for each in finished if settings is None or was_made_with(each, settings)), None)


def was_made_with(record: Mapping[str, Any], settings: Settings) -> bool:
    """Whether a training had these settings, as far as they are recorded."""
    wanted, told = flat(plain(settings)), record["recipe"]["settings"]
    recorded = flat({name: told[name] for name in RECORDED if name in told})
    known = wanted | flat({"model": recipe_of_model(settings.model)}) | GONE
    return all(name in known and known[name] == value for name, value in recorded.items())
