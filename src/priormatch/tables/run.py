"""`priormatch table`: train the systems of a table, side by side where there is room, and show them."""

import contextlib
import multiprocessing
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path

from rich.console import Console

from priormatch.config import to_yaml
from priormatch.errors import UserError
from priormatch.files import replace_text
from priormatch.progress import Meter, say
from priormatch.runs.stage import read_record
from priormatch.tables.hypotheses import beams
from priormatch.tables.layout import Cells, cells, markdown, on_screen, tsv
from priormatch.tables.measure import measure, with_recovered
from priormatch.tables.paper import TITLES, Row
from priormatch.tables.request import Request
from priormatch.tables.study import Study
from priormatch.tables.systems import System

Job = tuple[int, System]
"""A seed and a system."""


def run_table(request: Request) -> Path:
    """Do what is not done yet of a table, print it, and write it as Markdown and TSV; where the Markdown is."""
    rows = request.chosen()
    studies = {seed: request.study(seed) for seed in request.seeds}
    for study in studies.values():
        replace_text(study.folder / "settings.yaml", to_yaml(study.settings))
    if request.table == "tab1_hypotheses":
        table = beams(studies[request.seeds[0]])
        return write_page(request, studies, table, "".join("\t".join(line) + "\n" for line in table))
    wanted: dict[Job, list[Row]] = {}
    for seed, (row, system) in product(studies, rows):
        if system is not None:
            wanted.setdefault((seed, system), []).append(row)
    failed = {job: reason for job in wanted if (reason := prepared(studies[job[0]], job[1]))}
    failed |= train_all(request, {job: its for job, its in wanted.items() if job not in failed}, studies)

    of_seeds = []
    for seed, study in studies.items():
        values = [
            measure(study, row, system) if system and (seed, system) not in failed else {}
            for row, system in rows
        ]
        of_seeds.append(with_recovered([row for row, _ in rows], values))
    found = list(zip(*of_seeds, strict=True))
    printed = [row for row, _ in rows]
    page = write_page(request, studies, cells(printed, found), tsv(printed, found, request.seeds))
    if failed:
        (seed, system), reason = next(iter(failed.items()))
        raise UserError(
            f"{len(failed)} of {len(wanted)} systems failed and are left out of {page}, the first"
            f" {studies[seed].folder_of(system).name} with seed {seed} ({reason}): the same command tries them again"
        )
    return page


def prepared(study: Study, system: System) -> str:
    """Make what a system shares with others, before they are trained side by side; the reason, where it fails."""
    try:
        study.prepare(system)
    except UserError as error:
        return str(error)
    return ""


def train_all(
    request: Request, wanted: Mapping[Job, list[Row]], studies: Mapping[int, Study]
) -> dict[Job, str]:
    """Train and decode each different system once, several at a time; those that failed, and why."""
    failed = {}
    folders = {(seed, system): studies[seed].folder_of(system) for seed, system in wanted}
    with Meter(request.table, len(wanted)) as meter:
        for job, reason in results_of(request, wanted, folders):
            if reason:
                failed[job] = reason
            meter.advance(note=f"{folders[job].name}, seed {job[0]}{': ' + reason if reason else ''}")
    return failed


def results_of(
    request: Request, wanted: Mapping[Job, list[Row]], logs: Mapping[Job, Path]
) -> Iterator[tuple[Job, str]]:
    """Each job as it ends, with the reason where it failed."""
    if request.jobs == 1:
        for job, rows in wanted.items():
            yield job, work_on(request, job, rows)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(request.jobs, mp_context=context) as pool:
        futures = {
            pool.submit(work_apart, request, job, rows, logs[job] / "log.txt"): job
            for job, rows in wanted.items()
        }
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def work_on(request: Request, job: Job, rows: list[Row]) -> str:
    """Train one system and decode it as its rows want; why it failed, if so."""
    seed, system = job
    try:
        study = request.study(seed)
        for row in rows:
            measure(study, row, system)
    except Exception as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"[:200]
    return ""


def work_apart(request: Request, job: Job, rows: list[Row], log: Path) -> str:
    """The same in a process of its own, whose messages go to a file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file, contextlib.redirect_stderr(file):
        return work_on(request, job, rows)


def write_page(request: Request, studies: dict[int, Study], table: Cells, for_machines: str) -> Path:
    """Show the table, and write it beside the studies."""
    rows = f"-rows-{','.join(map(str, request.rows))}" if request.rows else ""
    page = next(iter(studies.values())).folder.parent / f"{request.table}{rows}.md"
    Console(width=None if sys.stdout.isatty() else 200).print(on_screen(TITLES[request.table], table))
    replace_text(
        page,
        f"# {TITLES[request.table]}\n\n    {request.command}\n\n{account(studies, request)}\n\n{markdown(table)}",
    )
    replace_text(page.with_suffix(".tsv"), for_machines)
    say(f"{page} and {page.with_suffix('.tsv')}")
    return page


def account(studies: dict[int, Study], request: Request) -> str:
    """What the table cost, and how to read it."""
    folders = {
        study.folder_of(system)
        for study in studies.values()
        for _, system in request.chosen()
        if system is not None
    }
    seconds = [record["seconds"] for folder in folders if (record := _training_record(folder)) is not None]
    seeds = ", ".join(map(str, request.seeds))
    return (
        f"Seeds {seeds}; {len(seconds)} trainings, {sum(seconds):.0f} s in all;"
        f" {time.strftime('%Y-%m-%d', time.gmtime())}. The settings are in `settings.yaml` of each seed's folder. Of"
        " ours the mean of the seeds is shown, and each seed."
    )


def _training_record(folder: Path) -> dict[str, float] | None:
    """The record of a system's training."""
    for name in ("lpm", "supervised-longer", "topline", "pseudo_label"):
        if (record := read_record(folder / name)) is not None:
            return record
    return None
