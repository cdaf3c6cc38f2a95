"""The page of a table: our figures next to the paper's, their confidence intervals, and how they were made."""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from priormatch.config import Settings, flat
from priormatch.experiments import claims
from priormatch.experiments import differences as paired
from priormatch.experiments.found import Found
from priormatch.experiments.layout import Cells, as_tsv, cells, markdown, on_screen, tsv
from priormatch.experiments.measure import with_recovered
from priormatch.experiments.paper import MISPRINTS, TITLES, Row
from priormatch.experiments.request import Request, as_ranges
from priormatch.experiments.rows import Line
from priormatch.experiments.study import Places
from priormatch.experiments.systems import TRAINED_BY, System
from priormatch.experiments.trained import trained_for
from priormatch.files import replace_text
from priormatch.old_names import REMOVED_FROM_MATCHING
from priormatch.pipeline.recipe import recipe_of_model
from priormatch.progress import say
from priormatch.report.run_folder import read_metrics, values
from priormatch.runs.stage import MATCHING, commit, kept_aside, plain, read_record

FIRST_ROUND = "lpm-first"  # stage of the removed variant with two rounds
GONE = {f"matching.{name}": value for name, value in REMOVED_FROM_MATCHING.items()}
TRAININGS = (MATCHING, "supervised-longer", "topline", "pseudo_label")
RECORDED = ("model", "training", "audio", "matching", "prior")
"""Sections whose settings are recorded as given; values for a search are tuned."""
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


def rated_page(
    request: Request,
    table: str,
    studies: Mapping[int, Places],
    lines: Sequence[Line],
    found: Sequence[Sequence[Found]],
) -> Path:
    """Print and write a table from the measurements of each row and seed."""
    rows = [line.row for line in lines]
    of_seeds = [with_recovered(rows, [each.values for each in its]) for its in zip(*found, strict=True)]
    values = list(zip(*of_seeds, strict=True))
    shown = [printed(table, line, next(iter(studies.values()))) for line in lines]
    start = next(iter(studies.values())).settings.matching.start or "A"
    differences, recovered = paired.differences(table, lines, found, start), paired.recovered(lines, found)
    judged = claims.verdicts(table, lines, found)
    sections = [*footnotes(lines), *([claims.section(judged)] if judged else [])]
    sections += [
        f"{heading}\n{markdown(paired.table_of(estimates))}"
        for heading, estimates in ((DIFFERENCES, differences), (RECOVERED, recovered))
        if estimates
    ]
    files = {"": tsv(shown, values, request.seeds)}
    if estimates := [*differences, *recovered]:
        files[".intervals"] = as_tsv(paired.for_machines(estimates))
    missing = not_measured(request.seeds, lines, found)
    return write_page(request, table, studies, lines, cells(shown, values), files, sections, missing)


def not_measured(seeds: Sequence[int], lines: Sequence[Line], found: Sequence[Sequence[Found]]) -> str:
    """The rows that have a system but no figures, by seed, as text; empty if the page is complete."""
    words = []
    for seed, its in zip(seeds, zip(*found, strict=True), strict=True):
        pairs = zip(lines, its, strict=True)
        rows = [line.number for line, each in pairs if line.system is not None and not each.values]
        if rows:
            words.append(f"row{'s' if len(rows) > 1 else ''} {as_ranges(rows)} with seed {seed}")
    return "; ".join(words)


def printed(table: str, line: Line, study: Places) -> Row:
    """A row with its number and its values at this scale.

    These are the number of updates in Table 8, loss weights in Table A1, and bounds in Table X1.
    """
    number = {"row": str(line.number)}
    if line.system is None:
        return number | line.row
    matching = study.settings_of(line.system).matching
    match table:
        case "tab8_label_quality":
            step = line.row["step"] if line.row["step"] in ("All", "0") else str(matching.updates)
            return number | beside(line.row, "step", {"our_step": step})
        case "tabA1_alpha":
            return number | beside(line.row, "alpha", {"our_loss_weight": f"{matching.loss_weight:g}"})
        case "x1_open_questions":
            return number | line.row | {"length_filter": str(matching.length_filter or "off")}
        case _:
            return number | line.row


def beside(row: Row, column: str, ours: Row) -> Row:
    """A row with columns of ours after one of the paper's."""
    names = list(row)
    return {name: row[name] for name in names[: names.index(column) + 1]} | ours | row


def footnotes(lines: Sequence[Line]) -> list[str]:
    """Notes on rows for which the paper's own figures do not agree."""
    return [
        f"Row {line.number}: {figure} is a misprint in the paper; its word error rates give {true}.\n"
        for line in lines
        for (column, figure), true in MISPRINTS.items()
        if line.row.get(column) == figure
    ]


def write_page(
    request: Request,
    table: str,
    studies: Mapping[int, Places],
    lines: Sequence[Line],
    laid_out: Cells,
    for_machines: Mapping[str, str],
    sections: Sequence[str] = (),
    missing: str = "",
) -> Path:
    """Print a table and write its page next to the studies, with machine-readable files by the end of their names."""
    rows = f"-rows-{request.rows[table]}" if table in request.rows else ""
    page = next(iter(studies.values())).folder.parent / f"{table}{rows}.md"
    show(TITLES[table], laid_out)
    blocks = [f"# {TITLES[table]}\n\n    {request.command(table)}\n", markdown(laid_out), *sections]
    replace_text(page, "\n".join([*blocks, account(request, studies, lines, missing)]))
    files = {page.with_name(f"{page.stem}{end}.tsv"): text for end, text in for_machines.items()}
    for file, text in files.items():
        replace_text(file, text)
    say(" and ".join(map(str, (page, *files))))
    if missing:
        say(f"{table}: not measured with these settings: {missing}")
    return page


def show(title: str, table: Cells) -> None:
    """Print a table."""
    Console(width=None if sys.stdout.isatty() else 200).print(on_screen(title, table))


def account(request: Request, studies: Mapping[int, Places], lines: Sequence[Line], missing: str) -> str:
    """How a table was made: seeds, settings, missing rows, commits, device, and the seconds of each training."""
    trained = trainings(list(studies.values()), lines)
    records = [record for each in trained for record in each.records if record is not None]
    commits = sorted({record["versions"].get("commit", "unknown") for record in records})
    devices = sorted({record.get("device", "unknown") for record in records})
    facts = [
        f"- Seeds: {', '.join(map(str, request.seeds))}. Our figures are the mean over seeds, and each seed.",
        f"- Settings: `{request.recipe.name}` and the overrides in the command; `settings.yaml` in each seed's folder"
        " has all settings of the last run.",
        *([f"- Not measured with these settings: {missing}."] if missing else []),
        *removed_rows(lines),
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


def removed_rows(lines: Sequence[Line]) -> list[str]:
    """A line about rows whose variants have been removed; nothing without such rows."""
    removed = [line.number for line in lines if line.system is not None and line.system.recorded]
    if not removed:
        return []
    what = (
        f"Rows {as_ranges(removed)} show variants"
        if len(removed) > 1
        else f"Row {removed[0]} shows one of the variants"
    )
    return [f"- {what} that have since been removed; commit {TRAINED_BY} can train them."]


class Training(NamedTuple):
    """A training that rows depend on: for each seed, the record of its stage and its best and last CER."""

    rows: str
    name: str
    records: list[dict[str, Any] | None]
    endings: list[str]


def trainings(studies: Sequence[Places], lines: Sequence[Line]) -> list[Training]:
    """The trainings of the rows: shared models and systems."""
    first, systems = studies[0].folder, [line.system for line in lines if line.system is not None]
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
    rows: dict[str, tuple[System, list[str]]] = {}
    for line in lines:
        if line.system is not None:
            name = studies[0].folder_of(line.system).name
            rows.setdefault(name, (line.system, []))[1].append(str(line.number))
    for name, (system, numbers) in rows.items():
        if system.recorded and (studies[0].folder_of(system) / FIRST_ROUND).is_dir():
            found.append(
                training(", ".join(numbers), f"{name}, first round", studies, system, (FIRST_ROUND,))
            )
        found.append(training(", ".join(numbers), name, studies, system))
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
