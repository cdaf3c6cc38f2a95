"""`priormatch table`: train the systems of tables, several in parallel with `--jobs`, and show the results."""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from priormatch.config import Settings, to_yaml
from priormatch.device import gpus_for
from priormatch.errors import UserError
from priormatch.experiments.comparisons import Measured
from priormatch.experiments.measure import SHOWN, Found, measure, read_found, write_found
from priormatch.experiments.results_page import Page, beams_page, in_ranges, rated_page
from priormatch.experiments.scales import Request, data_of, light_files, missing_files
from priormatch.experiments.study import Places, Study
from priormatch.experiments.table import BEAMS, TRAINED_BY, Row, System, Unlabeled
from priormatch.experiments.trained import Models
from priormatch.files import replace_text
from priormatch.pipeline.pool import Pool, Task
from priormatch.pipeline.stages import FUSION
from priormatch.progress import say
from priormatch.runs.lock import RUN_LOCK, alone_in

Studies = Mapping[int, Study]
Act = Callable[[Study], object]


def run_tables(request: Request) -> list[Path]:
    """Run the unfinished work of tables, print them, write each as Markdown and TSV, and return the pages.

    With `so_far` nothing is run, and the tables show existing measurements.
    """
    rows = {table: request.rows_of(table) for table in request.tables}
    if request.so_far:
        return show_so_far(request, rows)
    folders = [request.places(seed).folder for seed in request.seeds]
    data_of(request.scale, request.data)  # raises before a folder is created
    with ExitStack() as locks:  # taken before anything is read or written; they cover the pool's processes
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            locks.enter_context(alone_in(folder, RUN_LOCK))
        return run_studies(request, rows)


def show_so_far(request: Request, rows: Mapping[str, Sequence[Row]]) -> list[Path]:
    """Print and write the existing measurements of tables from the study folders; needs no data."""
    places = {seed: request.places(seed) for seed in request.seeds}
    if not any(each.folder.is_dir() for each in places.values()):
        nowhere = " nor ".join(str(each.folder) for each in places.values())
        raise UserError(
            f"there is no folder {nowhere}, so nothing has been measured: set runs=FOLDER with the runs, or run the"
            " table without --so-far"
        )
    if BEAMS in rows:
        say(f"{BEAMS}: its beams are not kept and need the models: run it without --so-far")
    return [figures_page(Page(request, table, places, its)) for table, its in rows.items() if table != BEAMS]


def run_studies(request: Request, rows: Mapping[str, Sequence[Row]]) -> list[Path]:
    """Run the unfinished work of tables in folders that this process has locked; return the pages."""
    studies = {seed: request.study(seed) for seed in request.seeds}
    rows = {table: with_speech(request, table, its) for table, its in rows.items()}
    wanted = jobs_of(rows, studies)
    failed = train_all(request, wanted, studies)
    pages = [
        figures_page(Page(request, table, studies, its), failed)
        for table, its in rows.items()
        if table != BEAMS
    ]
    first = request.seeds[0]
    if BEAMS in rows and Job(first, studies[first].folder_of(SHOWN)) not in failed:
        pages.append(beams_page(request, studies))
    if failed:
        job, reason = next(iter(failed.items()))
        raise UserError(
            f"{len(failed)} of {len(wanted)} systems failed and are left out of {', '.join(map(str, pages))}; the first"
            f" is {job.folder.name} with seed {job.seed} ({reason}): run the same command to try them again"
        )
    return pages


def with_speech(request: Request, table: str, rows: Sequence[Row]) -> list[Row]:
    """The rows of a table; those whose 60,000 hours are missing in the data folder are reported and not run."""
    missing = missing_files(light_files(request.scale), request.data)
    silent = [row for row in rows if missing and row.system is not None and row.system.unlabeled == "light"]
    if silent:
        say(f"{table}: {in_ranges(silent)} not run because {request.data} lacks {', '.join(missing)}")
    if recorded := [row for row in rows if row.recorded]:
        removed = f"this variant was removed; commit {TRAINED_BY} can train it"
        say(f"{table}: {in_ranges(recorded)} not run: {removed}")
    return [replace(row, system=None) if row in silent else row for row in rows]


def figures_page(page: Page, failed: Collection["Job"] = ()) -> Path:
    """Print and write the measurements of a table; failed jobs are left out, as their figures may be old."""

    def found(row: Row, seed: int, study: Places) -> Found:
        if row.system is None or Job(seed, study.folder_of(row.system)) in failed:
            return Found()
        return read_found(study, page.table, row)

    studies = page.studies.items()
    return rated_page(page, [Measured(row, [found(row, *each) for each in studies]) for row in page.rows])


class Job(NamedTuple):
    """A seed and the folder of a system; several rows and equivalent systems may share it."""

    seed: int
    folder: Path


class Figures(NamedTuple):
    """A row of a table whose figures are to be measured, and its system."""

    table: str
    row: Row
    system: System


Wanted = dict[Job, list[Figures]]


def jobs_of(rows: Mapping[str, Sequence[Row]], studies: Studies) -> Wanted:
    """The systems of all tables, each once per seed, longest training first."""
    wanted: Wanted = {}
    for seed, study in studies.items():
        for table, its in rows.items():
            if table == BEAMS and study is next(iter(studies.values())):
                its = [Row(1, "LPM", {}, system=SHOWN)]
            for row in its:
                if row.system is not None and not row.recorded:
                    job = Job(seed, study.folder_of(row.system))
                    wanted.setdefault(job, []).append(Figures(table, row, row.system))

    def effort(job: Job) -> float:
        system = wanted[job][0].system
        return effort_of(system, studies[job.seed].settings_of(system))

    return {job: wanted[job] for job in sorted(wanted, key=effort, reverse=True)}


def effort_of(system: System, settings: Settings) -> float:
    """The approximate time of a training, in updates of supervised training."""
    matching = settings.matching
    if system.kind == "start":
        return 0
    if system.kind == "topline":
        return settings.training.updates + matching.updates
    if system.kind != "matched":
        return matching.updates
    searched = settings.fusion.beam_size if matching.hypotheses == "asr_lm" else 0
    return matching.updates * (1 + max(matching.beam_size, searched) / 4)


def train_all(request: Request, wanted: Wanted, studies: Studies) -> dict[Job, str]:
    """Train and decode each system once, after the shared models; return the failed jobs with reasons."""
    for study in studies.values():
        replace_text(study.folder / "settings.yaml", to_yaml(study.settings))
    tasks = tasks_of(request, wanted, studies)
    gpus = gpus_for(request.places(request.seeds[0]).settings.device)
    if request.jobs > 1 and len(gpus) > 1:
        say(f"{request.jobs} jobs are spread over {len(gpus)} GPUs")
    with Pool(request.jobs, gpus) as pool:
        failed = pool.perform(tasks, ", ".join(request.tables))
    return {job: failed[each] for job in wanted for each in (Trained(job), job) if each in failed}


class Shared(NamedTuple):
    """A shared result: `prior`, `supervised`, one of `FUSION`, transcripts (`asr`, `asr_lm`), or `labels`."""

    seed: int
    folder: Path
    what: str
    copy: str = ""


class Trained(NamedTuple):
    """The key of a system's training; the job itself is the key of its figures."""

    job: Job


def tasks_of(request: Request, wanted: Wanted, studies: Studies) -> dict[Hashable, Task]:
    """All tasks; among those that are ready, models come first, then transcripts, labels, and systems in order."""
    work = Work(request, studies)
    for job, its in wanted.items():
        work.add(job, its)
    return dict(sorted(work.tasks.items(), key=lambda task: turn_of(task[0])))


def turn_of(key: Hashable) -> int:
    """The turn of a task among those that are ready."""
    if not isinstance(key, Shared):
        return 3
    return {"prior": 0, "supervised": 0, "labels": 2}.get(key.what, 1)


class Work:
    """Collects the tasks of systems; shared tasks are added once."""

    def __init__(self, request: Request, studies: Studies) -> None:
        self.request, self.studies = request, studies
        self.tasks: dict[Hashable, Task] = {}
        self.listeners: dict[Shared, list[System]] = {}

    def put(self, key: Job | Trained | Shared, name: str, log: Path, after: set[Hashable], act: Act) -> None:
        """Add a task, or replace the one of the same key."""
        seed = key.job.seed if isinstance(key, Trained) else key.seed
        self.tasks[key] = Task(name, partial(in_study, self.request, seed, act), log, frozenset(after))

    def add(self, job: Job, its: list[Figures]) -> None:
        """Add the training of a system, its figures, which may need the prior, and the tasks they depend on."""
        study, system = self.studies[job.seed], its[0].system
        study.models.tokenizer()  # trained here, before parallel tasks need it
        after: set[Hashable] = {self.model(job.seed, models, what) for models, what in study.needs(system)}
        for teacher, copy in study.teachers(system):
            after.add(self.hearing(job.seed, teacher, copy, system))
            if system.kind == "matched" and study.is_tuned(system):
                for_matching = study.feeds_back(system)
                after.add(self.tuning(job.seed, teacher, copy, system.unlabeled, for_matching))
        if system.kind == "pseudo_labels":
            after = {self.labeling(job.seed, study.place_of_labels(system), system, after)}
        prior = self.model(job.seed, study.models, "prior")
        name, log = f"{job.folder.name}, seed {job.seed}", job.folder / "log.txt"
        self.put(Trained(job), name, log, after, partial(Study.train, system=system))
        figures = partial(put_down, wanted=its)
        self.put(job, f"{name}: figures", log, {Trained(job), prior}, figures)

    def model(self, seed: int, models: Models, what: str) -> Shared:
        """Add the training of a prior or a supervised model."""
        key, log = Shared(seed, models.folder, what), models.folder / f"log-{what}.txt"
        train = Models.prior if what == "prior" else Models.supervised
        act = partial(with_models, settings=models.settings, act=train)
        self.put(key, f"{what} of {models.folder.name}, seed {seed}", log, set(), act)
        return key

    def hearing(self, seed: int, teacher: Models, copy: str, system: System) -> Shared:
        """Add the decoding of a teacher, without or with the prior, for all its systems."""
        source, which = self.studies[seed].source_of(system), copy or "best"
        after: set[Hashable] = {self.model(seed, teacher.hearing, "supervised")}
        if source == "asr_lm":
            after.add(self.tuning(seed, teacher, copy, system.unlabeled, for_matching=False))
        key = Shared(seed, teacher.hearing.folder, source, copy)
        if key in self.tasks:
            after |= self.tasks[key].after
        systems = self.listeners.setdefault(key, [])
        systems.append(system)
        name, log = f"{source} {which} of {key.folder.name}", key.folder / f"log-{source}-{which}.txt"
        self.put(key, name, log, after, partial(hear, key=key, systems=systems))
        return key

    def tuning(
        self, seed: int, teacher: Models, copy: str, unlabeled: Unlabeled, for_matching: bool
    ) -> Shared:
        """Add the tuning of a teacher's search with the prior."""
        after: set[Hashable] = {
            self.model(seed, teacher.hearing, "supervised"),
            self.model(seed, teacher.judging, "prior"),
        }
        what, which = FUSION[for_matching], copy or "best"
        key = Shared(seed, teacher.folder, what, copy)
        name, log = f"{what} {which} of {key.folder.name}", key.folder / f"log-{what}-{which}.txt"
        tune = partial(Models.fusion, unlabeled=unlabeled, copy=copy, for_matching=for_matching)
        self.put(key, name, log, after, partial(with_models, settings=teacher.settings, act=tune))
        return key

    def labeling(self, seed: int, place: Path, system: System, after: set[Hashable]) -> Shared:
        """Add the pseudo-labels of a system, shared by systems with the same labels."""
        key, log = Shared(seed, place, "labels"), place.with_name(f"log-{place.name}.txt")
        self.put(key, f"{place.name}, seed {seed}", log, after, partial(Study.prepare, system=system))
        return key


def in_study(request: Request, seed: int, act: Act) -> None:
    """Do something in the study of one seed, which is opened anew, perhaps in another process."""
    act(request.study(seed))


def with_models(study: Study, settings: Settings, act: Callable[[Models], object]) -> None:
    """Do something with the models that have these settings."""
    act(study.models_with(settings))


def hear(study: Study, key: Shared, systems: Sequence[System]) -> None:
    """Decode what systems need from one teacher."""
    for system in systems:
        for models, copy in study.teachers(system):
            if (models.hearing.folder, copy) == (key.folder, key.copy):
                study.heard_by(models, system)


def put_down(study: Study, wanted: Sequence[Figures]) -> None:
    """Decode a system as its rows require, and write their figures."""
    for each in wanted:
        write_found(study, each.table, each.row, measure(study, each.row.cells, each.system))
