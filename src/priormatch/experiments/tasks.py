"""The tasks of tables with their dependencies: models, their transcripts, labels, systems and figures."""

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from priormatch.config import Settings
from priormatch.experiments.beam_tables import SHOWN
from priormatch.experiments.found import write_found
from priormatch.experiments.measure import measure
from priormatch.experiments.paper import BEAMS
from priormatch.experiments.pool import Task
from priormatch.experiments.request import Request
from priormatch.experiments.rows import Line
from priormatch.experiments.study import Study
from priormatch.experiments.systems import System, Unlabeled
from priormatch.experiments.trained import Models
from priormatch.pipeline.run import FUSION


class Job(NamedTuple):
    """A seed and the folder of a system; several rows and equivalent systems may share it."""

    seed: int
    folder: Path


class Figures(NamedTuple):
    """A row of a table whose figures are to be measured."""

    table: str
    line: Line

    @property
    def system(self) -> System:
        """The system."""
        assert self.line.system is not None
        return self.line.system


Wanted = dict[Job, list[Figures]]
Studies = Mapping[int, Study]


def jobs_of(lines: Mapping[str, Sequence[Line]], studies: Studies) -> Wanted:
    """The systems of all tables, each once per seed, longest training first."""
    wanted: Wanted = {}
    for seed, study in studies.items():
        for table, its in lines.items():
            if table == BEAMS and study is next(iter(studies.values())):
                shown = Figures(table, Line(1, {}, SHOWN))
                wanted.setdefault(Job(seed, study.folder_of(SHOWN)), []).append(shown)
            for line in its:
                if line.system is not None and not line.system.recorded:
                    job = Job(seed, study.folder_of(line.system))
                    wanted.setdefault(job, []).append(Figures(table, line))

    def effort(job: Job) -> float:
        system = wanted[job][0].system
        return effort_of(system, studies[job.seed].settings_of(system))

    return {job: wanted[job] for job in sorted(wanted, key=effort, reverse=True)}


def effort_of(system: System, settings: Settings) -> float:
    """The approximate time of a training, in updates of supervised training."""
    matching = settings.matching
    if system.kind == "topline":
        return settings.training.updates + matching.updates
    if system.kind != "matched":
        return matching.updates
    searched = settings.fusion.beam_size if matching.hypotheses == "asr_lm" else 0
    return matching.updates * (1 + max(matching.beam_size, searched) / 4)


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
    return {**work.models, **work.heard, **work.labels, **work.systems}


class Work:
    """Collects the tasks of systems; shared tasks are added once."""

    def __init__(self, request: Request, studies: Studies) -> None:
        self.request, self.studies = request, studies
        self.models: dict[Hashable, Task] = {}
        self.heard: dict[Hashable, Task] = {}
        self.labels: dict[Hashable, Task] = {}
        self.systems: dict[Hashable, Task] = {}
        self.listeners: dict[Shared, list[System]] = {}

    def add(self, job: Job, its: list[Figures]) -> None:
        """Add the training of a system, its figures, which may need the prior, and the tasks they depend on."""
        study, system = self.studies[job.seed], its[0].system
        study.models.tokenizer()  # trained here, before parallel tasks need it
        after = {self.model(job.seed, models, what) for models, what in study.needs(system)}
        teachers = study.teachers(system)
        after |= {self.hearing(job.seed, teacher, copy, system) for teacher, copy in teachers}
        if system.kind == "matched" and study.is_tuned(system):
            after |= {
                self.tuning(job.seed, teacher, copy, system.unlabeled, study.feeds_back(system))
                for teacher, copy in teachers
            }
        if system.kind == "pseudo_labels":
            after = {self.labeling(job.seed, study.place_of_labels(system), system, after)}
        prior = self.model(job.seed, study.models, "prior")
        name, log = f"{job.folder.name}, seed {job.seed}", job.folder / "log.txt"
        train = partial(train_one, self.request, job.seed, system)
        self.systems[Trained(job)] = Task(name, train, log, frozenset(after))
        figures = partial(put_down, self.request, job.seed, its)
        self.systems[job] = Task(f"{name}: figures", figures, log, frozenset({Trained(job), prior}))

    def model(self, seed: int, models: Models, what: str) -> Shared:
        """Add the training of a prior or a supervised model."""
        key = Shared(seed, models.folder, what)
        work = partial(make_model, self.request, seed, models.settings, what)
        name = f"{what} of {models.folder.name}, seed {seed}"
        self.models[key] = Task(name, work, models.folder / f"log-{what}.txt")
        return key

    def hearing(self, seed: int, teacher: Models, copy: str, system: System) -> Shared:
        """Add the decoding of a teacher, without or with the prior, for all its systems."""
        source = self.studies[seed].source_of(system)
        after = {self.model(seed, teacher.hearing, "supervised")}
        if source == "asr_lm":
            after.add(self.tuning(seed, teacher, copy, system.unlabeled, for_matching=False))
        key = Shared(seed, teacher.hearing.folder, source, copy)
        earlier = self.heard[key].after if key in self.heard else frozenset[Hashable]()
        systems = self.listeners.setdefault(key, [])
        systems.append(system)
        which = copy or "best"
        name, log = f"{source} {which} of {key.folder.name}", key.folder / f"log-{source}-{which}.txt"
        self.heard[key] = Task(name, partial(hear, self.request, key, systems), log, earlier | after)
        return key

    def tuning(
        self, seed: int, teacher: Models, copy: str, unlabeled: Unlabeled, for_matching: bool
    ) -> Shared:
        """Add the tuning of a teacher's search with the prior."""
        after = {self.model(seed, teacher.hearing, "supervised"), self.model(seed, teacher.judging, "prior")}
        what, which = FUSION[for_matching], copy or "best"
        key = Shared(seed, teacher.folder, what, copy)
        work = partial(tune_fusion, self.request, seed, teacher.settings, unlabeled, copy, for_matching)
        name, log = f"{what} {which} of {key.folder.name}", key.folder / f"log-{what}-{which}.txt"
        self.heard[key] = Task(name, work, log, frozenset(after))
        return key

    def labeling(self, seed: int, place: Path, system: System, after: set[Shared]) -> Shared:
        """Add the pseudo-labels of a system, shared by systems with the same labels."""
        key = Shared(seed, place, "labels")
        work = partial(make_labels, self.request, seed, system)
        log = place.with_name(f"log-{place.name}.txt")
        self.labels[key] = Task(f"{place.name}, seed {seed}", work, log, frozenset(after))
        return key


def make_model(request: Request, seed: int, settings: Settings, what: str) -> None:
    """Train a prior or a supervised model."""
    models = request.study(seed).models_with(settings)
    if what == "prior":
        models.prior()
    else:
        models.supervised()


def tune_fusion(
    request: Request, seed: int, settings: Settings, unlabeled: Unlabeled, copy: str, for_matching: bool
) -> None:
    """Tune a teacher's search with the prior."""
    request.study(seed).models_with(settings).fusion(unlabeled, copy, for_matching)


def hear(request: Request, key: Shared, systems: Sequence[System]) -> None:
    """Decode what systems need from one teacher."""
    study = request.study(key.seed)
    for system in systems:
        for models, copy in study.teachers(system):
            if (models.hearing.folder, copy) == (key.folder, key.copy):
                study.heard_by(models, system)


def make_labels(request: Request, seed: int, system: System) -> None:
    """Make the pseudo-labels of a system."""
    request.study(seed).prepare(system)


def train_one(request: Request, seed: int, system: System) -> None:
    """Train a system."""
    request.study(seed).train(system)


def put_down(request: Request, seed: int, wanted: Sequence[Figures]) -> None:
    """Decode a system as its rows require, and write their figures."""
    study = request.study(seed)
    for each in wanted:
        write_found(study, each.table, each.line, measure(study, each.line.row, each.system))
