"""`priormatch table`: train the systems of tables, several in parallel with `--jobs`, and show the results."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from priormatch.config import to_yaml
from priormatch.errors import UserError
from priormatch.experiments.beam_tables import PAPERS, SHOWN, beams, papers_beams, sections
from priormatch.experiments.found import Found, read_found
from priormatch.experiments.layout import as_tsv
from priormatch.experiments.paper import BEAMS
from priormatch.experiments.pool import Pool
from priormatch.experiments.request import Request, as_ranges
from priormatch.experiments.results_page import rated_page, show, write_page
from priormatch.experiments.rows import Line
from priormatch.experiments.scales import data_of, light_files, missing_files
from priormatch.experiments.study import Places
from priormatch.experiments.systems import TRAINED_BY
from priormatch.experiments.tasks import Job, Studies, Trained, Wanted, jobs_of, tasks_of
from priormatch.files import replace_text
from priormatch.progress import say
from priormatch.runs.lock import RUN_LOCK, alone_in


def run_tables(request: Request) -> list[Path]:
    """Run the unfinished work of tables, print them, write each as Markdown and TSV, and return the pages.

    With `so_far` nothing is run, and the tables show existing measurements.
    """
    lines = {table: request.lines(table) for table in request.tables}
    if request.so_far:
        return show_so_far(request, lines)
    folders = [request.places(seed).folder for seed in request.seeds]
    data_of(request.scale, request.data)  # raises before a folder is created
    with ExitStack() as locks:  # taken before anything is read or written; they cover the pool's processes
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            locks.enter_context(alone_in(folder, RUN_LOCK))
        return run_studies(request, lines)


def run_studies(request: Request, lines: Mapping[str, Sequence[Line]]) -> list[Path]:
    """Run the unfinished work of tables in folders that this process has locked; return the pages."""
    studies = {seed: request.study(seed) for seed in request.seeds}
    lines = {table: with_speech(request, table, its) for table, its in lines.items()}
    wanted = jobs_of(lines, studies)
    failed = train_all(request, wanted, studies)
    first = studies[request.seeds[0]]
    pages = [
        figures_page(request, table, its, studies, failed) for table, its in lines.items() if table != BEAMS
    ]
    if BEAMS in lines and Job(request.seeds[0], first.folder_of(SHOWN)) not in failed:
        pages.append(beams_page(request, studies))
    if failed:
        job, reason = next(iter(failed.items()))
        raise UserError(
            f"{len(failed)} of {len(wanted)} systems failed and are left out of {', '.join(map(str, pages))}; the first"
            f" is {job.folder.name} with seed {job.seed} ({reason}): run the same command to try them again"
        )
    return pages


def beams_page(request: Request, studies: Studies) -> Path:
    """Print and write the beams of the first seed and, below them, the paper's."""
    ours, papers = beams(studies[request.seeds[0]]), papers_beams()
    lines, files = [Line(1, {}, SHOWN)], {"": as_tsv(ours)}
    page = write_page(request, BEAMS, studies, lines, ours, files, sections(papers))
    show(PAPERS, papers)
    return page


def with_speech(request: Request, table: str, lines: Sequence[Line]) -> list[Line]:
    """The rows of a table; those whose 60,000 hours are missing in the data folder are reported and not run."""
    missing = missing_files(light_files(request.scale), request.data)
    silent = [
        line.number
        for line in lines
        if missing and line.system is not None and line.system.unlabeled == "light"
    ]
    if silent:
        rows = f"row{'s' if len(silent) > 1 else ''} {as_ranges(silent)}"
        say(f"{table}: {rows} not run because {request.data} lacks {', '.join(missing)}")
    if recorded := [line.number for line in lines if line.system is not None and line.system.recorded]:
        rows = f"row{'s' if len(recorded) > 1 else ''} {as_ranges(recorded)}"
        say(f"{table}: {rows} not run: this variant was removed; commit {TRAINED_BY} can train it")
    return [line._replace(system=None) if line.number in silent else line for line in lines]


def train_all(request: Request, wanted: Wanted, studies: Studies) -> dict[Job, str]:
    """Train and decode each system once, after the shared models; return the failed jobs with reasons."""
    for study in studies.values():
        replace_text(study.folder / "settings.yaml", to_yaml(study.settings))
    tasks = tasks_of(request, wanted, studies)
    with Pool(request.jobs) as pool:
        failed = pool.perform(tasks, ", ".join(request.tables))
    return {job: failed[each] for job in wanted for each in (Trained(job), job) if each in failed}


def show_so_far(request: Request, lines: Mapping[str, Sequence[Line]]) -> list[Path]:
    """Print and write the existing measurements of tables from the study folders; needs no data."""
    places = {seed: request.places(seed) for seed in request.seeds}
    if not any(each.folder.is_dir() for each in places.values()):
        nowhere = " nor ".join(str(each.folder) for each in places.values())
        raise UserError(
            f"there is no folder {nowhere}, so nothing has been measured: give runs=FOLDER with the runs, or run the"
            " table without --so-far"
        )
    if BEAMS in lines:
        say(f"{BEAMS}: its beams are not kept and need the models: run it without --so-far")
    return [figures_page(request, table, its, places) for table, its in lines.items() if table != BEAMS]


def figures_page(
    request: Request,
    table: str,
    lines: Sequence[Line],
    studies: Mapping[int, Places],
    failed: Collection[Job] = (),
) -> Path:
    """Print and write the measurements of a table; failed jobs are left out, as their figures may be old."""
    found = [
        [
            read_found(study, table, line)
            if line.system is not None and Job(seed, study.folder_of(line.system)) not in failed
            else Found()
            for seed, study in studies.items()
        ]
        for line in lines
    ]
    return rated_page(request, table, studies, lines, found)
