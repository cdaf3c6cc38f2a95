"""`priormatch run`: all stages from data to a table of results."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from priormatch.config import Settings, to_yaml
from priormatch.data.corpus import read_cuts
from priormatch.device import find_device, use_threads
from priormatch.distributed import is_main, ranks
from priormatch.errors import Refused, UserError
from priormatch.files import replace_text
from priormatch.pipeline.cards import add_results
from priormatch.pipeline.match import require_inputs, require_recordings
from priormatch.pipeline.pool import Beside
from priormatch.pipeline.preflight import require_sound
from priormatch.pipeline.run_data import RunData, data_of, data_stage, make_data
from priormatch.pipeline.run_results import facts_of, finish, validation_size
from priormatch.pipeline.stages import Run, pinned
from priormatch.progress import duration_text, say
from priormatch.runs.lock import RUN_LOCK, alone_in
from priormatch.runs.results import BASE, START, score_systems
from priormatch.runs.stage import (
    DECODED,
    MATCHING,
    Decision,
    Stage,
    Wanted,
    decide,
    kept_aside,
    name_of,
    put_aside,
    recipe_of,
)
from priormatch.runs.verdict import LITTLE_VALIDATION, too_little_validation, verdict
from priormatch.training.checkpoint import FILE as CHECKPOINT
from priormatch.training.checkpoint import update_of
from priormatch.training.wandb_log import wandb_plan

DECODED_LPM = f"{DECODED}/{MATCHING}"
AFTER = {"tokenizer": ("prior", "topline"), "supervised": ("supervised-longer",), MATCHING: (DECODED_LPM,)}
"""Stages that a second process can begin after a stage."""
BEFORE = {"tokenizer-prior": "prior"}
"""Stages that it makes before another one."""


def run(settings: Settings, force: bool = False) -> Path:
    """Run all unfinished stages, then write results.json, a table, a chart and a report.

    Problems that the checks find beforehand stop it unless forced.
    """
    use_threads(threads_of(settings))
    settings = pinned(settings)
    check_first(settings)
    folder = Path(settings.runs) / settings.name
    folder.mkdir(parents=True, exist_ok=True)
    with alone_in(folder, RUN_LOCK):  # before anything is read or written
        run_in(folder, settings, force)
    return folder


def check_first(settings: Settings) -> None:
    """Raise an error for what would stop the run later, before anything is written."""
    wandb_plan(settings)
    find_device(settings.device)
    if settings.parallel and ranks() > 1:
        raise UserError("parallel=true starts a second process itself: omit it with torchrun")
    require_inputs("trained", "made", settings)
    stages_of(settings)  # paths of data, and settings that need others


def run_in(folder: Path, settings: Settings, force: bool = False) -> None:
    """Run all stages in a folder that this process has locked."""
    if is_main():
        found = planned(settings)
        for line in in_words(found):
            say(line)
        require_sound(settings, found, force)
        replace_text(folder / "settings.yaml", to_yaml(settings))
    data = make_data(settings, folder)
    warn_of_little_validation(data, settings)
    this = Run(folder, settings, data)
    try:
        if settings.matching.context:
            require_recordings(read_cuts(data.unlabeled), str(data.unlabeled))
        with Beside(settings.parallel, folder / "beside.log") as beside:
            train_and_score(this, beside)
    except KeyboardInterrupt:
        say(saved_in_words(stages_made(this)))
        raise


def train_and_score(this: Run, beside: Beside) -> None:
    """Train the models of a run, some of them beside the others, and score all systems."""
    settings = this.settings
    todo = unfinished(settings) if settings.parallel else set()

    def begin_after(stage: str) -> None:
        for each in AFTER.get(stage, ()):
            if each in todo:
                beside.begin(each, partial(make_beside, each, settings, this.data))

    refusal: Refused | None = None
    if this.pretrained_recognizer is not None:
        begin_after("tokenizer")  # there is one already
    for stage in this.trainings():
        if refusal is not None and stage.name == "topline":
            continue
        beside.wait_for(BEFORE.get(stage.name, stage.name))
        try:
            this.make(stage)
        except Refused as refused:
            say(f"lpm: {refused}\nthe other systems are trained and scored without it")
            refusal = refused
        else:
            begin_after(stage.name)
    if refusal is not None:
        score_without_matching(this, str(refusal))
        raise refusal
    beside.wait_for_all()
    score(this, this.systems)


def make_beside(stage: str, settings: Settings, data: RunData) -> None:
    """Make a stage that `train_and_score` does not wait for, in a second process.

    After training a system it also decodes the test sets, so that both processes have about as much to do.
    """
    use_threads(threads_of(settings))
    this = Run(Path(settings.runs) / settings.name, settings, data)
    match stage:
        case "prior":
            wanted = [*this.priors()]
        case "topline":
            wanted = [this.topline(), this.decoded("topline", this.systems["topline"])]
        case "supervised-longer":
            wanted = [this.longer(this.model("supervised"))]
            wanted += [this.decoded(system, this.systems[system]) for system in (BASE, START)]
        case _:
            wanted = [this.decoded(MATCHING, this.systems[MATCHING])]
    for each in wanted:
        this.make(each)


def score_without_matching(this: Run, refusal: str) -> None:
    """Score the other systems of a run whose matching was refused; transcripts of an earlier matching make room."""
    del this.made[MATCHING]
    old = this.folder / DECODED / MATCHING
    if is_main() and old.exists():
        say(f"{name_of(old)}: the old folder is kept as {put_aside(old)}")
    others = {name: model for name, model in this.systems.items() if name not in (MATCHING, "topline")}
    score(this, others, refusal)


def score(this: Run, systems: Mapping[str, Path], refusal: str = "") -> None:
    """Decode the test sets with all systems, score them, and write the results and the verdict."""
    decoded = {system: this.decode(system, model) for system, model in systems.items()}
    if not is_main():
        return
    results = score_systems(decoded)
    for stage in stages_made(this):
        stage.require_unchanged()
    judged = verdict(facts_of(this.folder, this.settings, this.data, results, decoded, refusal=refusal))
    finish(this, results, judged)
    add_results(systems, results)


def stages_made(this: Run) -> list[Stage]:
    """The stages of a run that were begun, the data first."""
    return [*([] if this.data.stage is None else [this.data.stage]), *this.made.values()]


def warn_of_little_validation(data: RunData, settings: Settings) -> None:
    """Warn below a useful size of the validation sets, by which models and proposals are chosen."""
    size = validation_size(data.validation, settings.training.validate_on)
    if size.seconds < LITTLE_VALIDATION:
        say(f"warning: {'; '.join(too_little_validation(size))}")


def threads_of(settings: Settings) -> int:
    """The CPU threads of each process: as set, or half of the cores for each of two."""
    return settings.threads or (max((os.cpu_count() or 2) // 2, 1) if settings.parallel else 0)


def planned(settings: Settings) -> list[Decision]:
    """What a run with these settings would do about each stage, from the records on disk; nothing is changed."""
    return decisions(Path(settings.runs) / settings.name, stages_of(settings))


def stages_of(settings: Settings) -> list[Wanted]:
    """All stages of a run with these settings; raise an error for missing data."""
    folder = Path(settings.runs) / settings.name
    return [data_stage(settings), *Run(folder, settings, data_of(settings, folder)).all()]


def unfinished(settings: Settings) -> set[str]:
    """The names of the stages that are still to be made."""
    return {name_of(each.folder) for each in planned(settings) if not each.finished}


def decisions(folder: Path, wanted: Iterable[Wanted]) -> list[Decision]:
    """What a run would do about each stage, from the records on disk; nothing is changed."""
    planned: dict[Path, Any] = {}
    found: dict[str, Decision] = {}
    for each in wanted:
        place = folder / each.name
        recipe = recipe_of(each.settings, each.inputs, planned)
        decision = decide(place, recipe, kept_aside(place))
        before = found.get(each.after)
        if before is not None and not (before.place == before.folder and before.finished):
            why = f"{each.after} may change its settings" if decision.reason or decision.place else ""
            decision = Decision(place, None, reason=why, seconds=decision.seconds)
        found[each.name] = decision
        planned[place] = recipe
    return list(found.values())


def in_words(found: Sequence[Decision]) -> Iterator[str]:
    """Describe decisions in lines: the stages that are used as they are, then the others."""
    if as_they_are := [name_of(each.folder) for each in found if each.finished and each.place == each.folder]:
        yield f"finished, reused: {', '.join(as_they_are)}"
    for each in found:
        if each.place is None and each.reason:
            took = f"; it took {duration_text(each.seconds)} before" if each.seconds else ""
            yield f"to rerun: {name_of(each.folder)}, because {each.reason}{took}"
        elif each.place is not None and each.place != each.folder:
            how = "reuse" if each.finished else "resume"
            yield f"to {how}: {name_of(each.folder)}, from {each.place.name}, which has these settings"
        elif each.place is not None and not each.finished:
            yield f"to resume: {name_of(each.folder)}"
    if new := [name_of(each.folder) for each in found if each.place is None and not each.reason]:
        yield f"to run: {', '.join(new)}"


def saved_in_words(stages: Sequence[Stage]) -> str:
    """What an interrupted run has saved, and where its unfinished stage resumes."""
    done = [each.name for each in stages if each.finished]
    words = [f"saved: {', '.join(done)}"] if done else []
    for stage in (each for each in stages if not each.finished):
        update = update_of(stage.folder / CHECKPOINT)
        parts = any([*stage.folder.rglob("*.partial"), *stage.folder.rglob("*.trials.jsonl")])
        where = f"resumes after update {update}" if update else "resumes" if parts else "starts again"
        words.append(f"{stage.name} {where}")
    return "; ".join(words)
