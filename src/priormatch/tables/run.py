"""`priormatch table`: train the systems of tables, side by side where there is room, and show them."""

from collections.abc import Collection, Sequence
from pathlib import Path

from priormatch.config import to_yaml
from priormatch.errors import UserError
from priormatch.files import replace_text
from priormatch.progress import say
from priormatch.tables.found import Found, read_found
from priormatch.tables.hypotheses import SHOWN, beams
from priormatch.tables.layout import as_tsv
from priormatch.tables.page import rated_page, write_page
from priormatch.tables.paper import BEAMS
from priormatch.tables.pool import Pool
from priormatch.tables.request import Request
from priormatch.tables.rows import Line
from priormatch.tables.tasks import Job, Studies, Trained, Wanted, jobs_of, tasks_of


def run_tables(request: Request) -> list[Path]:
    """Do what is not done yet of tables, print them, and write each as Markdown and TSV; where the pages are.

    With `so_far` nothing is done, and the tables show what there is.
    """
    lines = {table: request.lines(table) for table in request.tables}
    studies = {seed: request.study(seed) for seed in request.seeds}
    wanted = jobs_of(lines, studies)
    failed = {} if request.so_far else train_all(request, wanted, studies)
    first = request.seeds[0]
    without_beams = request.so_far or Job(first, studies[first].folder_of(SHOWN)) in failed
    pages = [
        make_page(request, table, its, studies, failed)
        for table, its in sorted(
            lines.items(), key=lambda each: each[0] == BEAMS
        )  # which needs models, at the end
        if not (table == BEAMS and without_beams)
    ]
    if BEAMS in lines and request.so_far:
        say(f"{BEAMS}: its beams are not kept, and need the models: run it without --so-far")
    if failed:
        job, reason = next(iter(failed.items()))
        raise UserError(
            f"{len(failed)} of {len(wanted)} systems failed and are left out of {', '.join(map(str, pages))}, the first"
            f" {job.folder.name} with seed {job.seed} ({reason}): the same command tries them again"
        )
    return pages


def train_all(request: Request, wanted: Wanted, studies: Studies) -> dict[Job, str]:
    """Train and decode each system once, several at a time, behind what they share; those that failed, and why."""
    for study in studies.values():
        replace_text(study.folder / "settings.yaml", to_yaml(study.settings))
    tasks = tasks_of(request, wanted, studies)
    with Pool(request.jobs) as pool:
        failed = pool.perform(tasks, ", ".join(request.tables))
    return {job: failed[each] for job in wanted for each in (Trained(job), job) if each in failed}


def make_page(
    request: Request, table: str, lines: Sequence[Line], studies: Studies, failed: Collection[Job]
) -> Path:
    """Show what was measured of a table, and write it down; what failed may have figures of another time."""
    if table == BEAMS:
        shown = beams(studies[request.seeds[0]])
        return write_page(request, table, studies, [Line(1, {}, SHOWN)], shown, {"": as_tsv(shown)})
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
