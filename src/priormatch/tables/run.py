"""`priormatch table`: train the systems of tables, side by side where there is room, and show them."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

from priormatch.config import Settings, to_yaml
from priormatch.errors import UserError
from priormatch.files import replace_text
from priormatch.tables.found import Found, read_found, write_found
from priormatch.tables.hypotheses import SHOWN, beams
from priormatch.tables.layout import as_tsv
from priormatch.tables.measure import measure
from priormatch.tables.page import rated_page, write_page
from priormatch.tables.pool import Pool, Task
from priormatch.tables.request import Request
from priormatch.tables.rows import Line
from priormatch.tables.study import Study
from priormatch.tables.systems import System

BEAMS = "tab1_hypotheses"


class Job(NamedTuple):
    """A seed and the folder of a system, which several rows, and systems that come to the same, may have in common."""

    seed: int
    folder: Path


class Figures(NamedTuple):
    """A row of a table whose figures are wanted of its system."""

    table: str
    line: Line

    @property
    def system(self) -> System:
        """The system."""
        assert self.line.system is not None
        return self.line.system


Wanted = dict[Job, list[Figures]]
Studies = Mapping[int, Study]


def run_tables(request: Request) -> list[Path]:
    """Do what is not done yet of tables, print them, and write each as Markdown and TSV; where the pages are.

    With `so_far` nothing is done, and the tables show what there is.
    """
    lines = {table: request.lines(table) for table in request.tables}
    studies = {seed: request.study(seed) for seed in request.seeds}
    for study in studies.values():
        replace_text(study.folder / "settings.yaml", to_yaml(study.settings))
    wanted = jobs_of(lines, studies)
    failed = {} if request.so_far else train_all(request, wanted, studies)
    first = request.seeds[0]
    without_beams = request.so_far or Job(first, studies[first].folder_of(SHOWN)) in failed
    pages = [
        make_page(request, table, its, studies)
        for table, its in lines.items()
        if not (table == BEAMS and without_beams)
    ]
    if failed:
        job, reason = next(iter(failed.items()))
        raise UserError(
            f"{len(failed)} of {len(wanted)} systems failed and are left out of {', '.join(map(str, pages))}, the first"
            f" {job.folder.name} with seed {job.seed} ({reason}): the same command tries them again"
        )
    return pages


def jobs_of(lines: Mapping[str, Sequence[Line]], studies: Studies) -> Wanted:
    """The systems of all tables, each once for a seed, the longest first."""
    wanted: Wanted = {}
    for seed, study in studies.items():
        for table, its in lines.items():
            if table == BEAMS and study is next(iter(studies.values())):
                shown = Figures(table, Line(1, {}, SHOWN))
                wanted.setdefault(Job(seed, study.folder_of(SHOWN)), []).append(shown)
            for line in its:
                if line.system is not None:
                    job = Job(seed, study.folder_of(line.system))
                    wanted.setdefault(job, []).append(Figures(table, line))

    def effort(job: Job) -> float:
        system = wanted[job][0].system
        return effort_of(system, studies[job.seed].settings_of(system))

    return {job: wanted[job] for job in sorted(wanted, key=effort, reverse=True)}


def effort_of(system: System, settings: Settings) -> float:
    """About how long a training takes, in updates of supervised training."""
    matching = settings.matching
    if system.kind == "topline":
        return settings.training.updates + matching.updates
    return matching.updates * (1 + matching.beam_size / 4 if system.kind == "matched" else 1)


def train_all(request: Request, wanted: Wanted, studies: Studies) -> dict[Job, str]:
    """Train and decode each system once, several at a time, behind what they share; those that failed, and why."""
    with Pool(request.jobs) as pool:
        failed = make_models(pool, request, wanted, studies)
        left = {job: its for job, its in wanted.items() if job not in failed}
        if request.jobs > 1:
            hear_apart(pool, request, left, studies)
        failed |= {
            job: why for job, its in left.items() if (why := prepared(studies[job.seed], its[0].system))
        }
        tasks = {
            job: Task(
                f"{job.folder.name}, seed {job.seed}",
                partial(work_on, request, job.seed, its),
                job.folder / "log.txt",
            )
            for job, its in left.items()
            if job not in failed
        }
        return failed | pool.perform(tasks, ", ".join(request.tables))


def make_models(pool: Pool, request: Request, wanted: Wanted, studies: Studies) -> dict[Job, str]:
    """Train the supervised models and the priors, side by side; the systems that lack theirs, and why."""
    needed = {job: studies[job.seed].models_of(its[0].system) for job, its in wanted.items()}
    tasks: dict[tuple[int, Path, str], Task] = {}
    for what, (job, models) in product(("supervised", "prior"), needed.items()):
        assert studies[job.seed].models.tokenizer
        for each in models:
            if what in each.own:
                name = f"{what} of {each.folder.name}, seed {job.seed}"
                work = partial(make_model, request, job.seed, each.settings, what)
                tasks[job.seed, each.folder, what] = Task(name, work, each.folder / f"log-{what}.txt")
    failed = pool.perform(tasks, "models")
    reasons = {(seed, folder): f"{what}: {reason}" for (seed, folder, what), reason in failed.items()}
    for seed, study in studies.items():
        if (seed, study.folder) in reasons:
            reason = reasons[seed, study.folder]
            raise UserError(f"{study.folder} lacks a model ({reason}): the same command tries it again")
    return {
        job: reasons[job.seed, each.folder]
        for job, models in needed.items()
        for each in models
        if (job.seed, each.folder) in reasons
    }


def make_model(request: Request, seed: int, settings: Settings, what: str) -> None:
    """Train a prior or a supervised model."""
    models = request.study(seed).models_with(settings)
    assert models.prior if what == "prior" else models.supervised


def hear_apart(pool: Pool, request: Request, wanted: Wanted, studies: Studies) -> None:
    """Let all that teach hear unlabelled speech, side by side; what fails is told when it is asked for."""
    of_teachers: dict[tuple[int, Path, str], list[System]] = {}
    for job, its in wanted.items():
        for models, copy in studies[job.seed].teachers(its[0].system):
            of_teachers.setdefault((job.seed, models.hearing.folder, copy), []).append(its[0].system)
    tasks = {
        teacher: Task(
            f"{teacher[1].name} {teacher[2]}",
            partial(hear, request, *teacher, systems),
            teacher[1] / "log-hear.txt",
        )
        for teacher, systems in of_teachers.items()
    }
    pool.perform(tasks, "labels and lengths")


def hear(request: Request, seed: int, folder: Path, copy: str, systems: Sequence[System]) -> None:
    """Let one teacher hear what systems need of it."""
    study = request.study(seed)
    for system in systems:
        for models, its_copy in study.teachers(system):
            if (models.hearing.folder, its_copy) == (folder, copy):
                study.heard_by(models, system)


def prepared(study: Study, system: System) -> str:
    """Make what a system shares with others, before they are trained side by side; the reason, where it fails."""
    try:
        study.prepare(system)
    except UserError as error:
        return str(error)
    return ""


def work_on(request: Request, seed: int, wanted: Sequence[Figures]) -> None:
    """Train one system, decode it as its rows want, and put down their figures."""
    study = request.study(seed)
    for each in wanted:
        study.train(each.system)
        write_found(study, each.table, each.line, measure(study, each.line.row, each.system))


def make_page(request: Request, table: str, lines: Sequence[Line], studies: Studies) -> Path:
    """Show what was measured of a table, and write it down."""
    if table == BEAMS:
        shown = beams(studies[request.seeds[0]])
        return write_page(request, table, studies, [Line(1, {}, SHOWN)], shown, {"": as_tsv(shown)})
    found = [
        [Found() if line.system is None else read_found(study, table, line) for study in studies.values()]
        for line in lines
    ]
    return rated_page(request, table, studies, lines, found)
