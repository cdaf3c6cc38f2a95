"""`priormatch table --dry-run`: the data and updates that tables need, and what they take."""

from collections.abc import Sequence
from pathlib import Path

from priormatch.config import Settings
from priormatch.device import find_device, use_threads
from priormatch.experiments.measure import SHOWN
from priormatch.experiments.results_page import shared_models
from priormatch.experiments.scales import SCALES, Request, light_files, missing_files, wanted_files
from priormatch.experiments.table import BEAMS, Kind, tables
from priormatch.json_text import to_json
from priormatch.pipeline.estimate import GB, Cluster, bytes_kept, lines_of, name_of, show_lines, unit_of
from priormatch.pipeline.probe import SECONDS, Step, Work
from priormatch.progress import say

STEPS: dict[Kind, Step] = {"supervised": "further", "pseudo_labels": "labels", "matched": "matching"}


def tell(request: Request) -> None:
    """Report what tables need, without running them: data, updates, hours by a short probe, memory and disk."""
    settings = request.places(request.seeds[0]).settings
    device = find_device(settings.device)
    use_threads(settings.threads)
    if request.scale != "demo":
        tell_files(request)
    say(f"measuring updates on {name_of(device)}, with noise as input ...")
    titles = ", ".join(tables()[each].title for each in request.tables)
    works, seeds = work_of(request), len(request.seeds)
    one = Cluster(unit=unit_of(device))
    lines = lines_of(works, one)
    if request.as_json:
        print(
            to_json({"device": name_of(device), "seeds": seeds, "lines": [each.as_json(1) for each in lines]})
        )
    else:
        show_lines(f"{titles}: for each of {seeds} seeds", lines, one)
    say(
        f"{seeds * sum(each.hours for each in lines):.2f} hours in total on {name_of(device)}, one training at a time;"
        " tuning, decoding and the validation of priors are not counted"
    )
    memory = max(each.memory for each in lines) / GB
    say(
        f"disk: {seeds * sum(map(bytes_kept, works)) / GB:.1f} GB of models and checkpoints"
        f"{f'; memory: at least {memory:.1f} GB of a GPU for each job' if memory else ''}"
    )


def tell_files(request: Request) -> None:
    """Report the required and optional files of the data folder, and which are missing."""
    folder = request.data

    def missing(names: list[str]) -> str:
        return f"missing: {', '.join(missing_files(names, folder)) or 'nothing'}"

    wanted, more = wanted_files(request.scale), light_files(request.scale)
    say(f"required: {', '.join(wanted)} in --data {folder or 'FOLDER'}; {missing(wanted)}")
    if more:
        say(f"required only for the rows of 60,000 hours: {', '.join(more)}; {missing(more)}")


def work_of(request: Request) -> list[Work]:
    """The trainings of all tables, each once: shared models and systems; then their validations."""
    places = request.places(request.seeds[0])
    systems = {
        places.name_of(row.system): row.system
        for table in request.tables
        for row in request.rows_of(table)
        if row.system is not None and not row.recorded
    }
    if BEAMS in request.tables:
        systems.setdefault(places.name_of(SHOWN), SHOWN)
    models = shared_models(places, list(systems.values()))
    if systems:
        models.setdefault(places.folder / "prior", places.settings)  # needed for all figures
    trainings = [
        of_model(path.relative_to(places.folder), settings)
        for path, settings in models.items()
        if path.name != "prior" or settings.prior.kind == "conv"
    ]
    trainings += [
        of_system(name, system.kind, places.settings_of(system))
        for name, system in systems.items()
        if system.kind != "start"  # a shared model
    ]
    return [*trainings, *validations_of(trainings, request.scale)]


def of_model(place: Path, settings: Settings) -> Work:
    """The training of a shared prior or supervised model."""
    name = f"shared: {place}"
    if place.name == "prior":
        return Work(name, "prior", settings.prior.updates, settings)
    return Work(name, "supervised", settings.training.updates, settings)


def validations_of(trainings: Sequence[Work], scale: str) -> list[Work]:
    """The validations of all trainings, grouped by the size of the recognizer."""
    found: dict[str, Work] = {}
    for training in trainings:
        if training.validations:
            settings = training.settings
            model = settings.model
            blocks = model.conformer.layers if model.encoder == "conformer" else sum(model.blocks)
            name = f"validations with {blocks} blocks"
            times = training.validations + (found[name].times if name in found else 0)
            found[name] = Work(name, "validation", times, settings, validated(scale, settings))
    return list(found.values())


def validated(scale: str, settings: Settings) -> float:
    """The size of a validation on all dev sets, counted in utterances of the training length."""
    its = SCALES[scale]
    there, seconds = its.validation
    each = min(settings.training.validate_on or there, there)
    return len(its.sets["dev"]) * each * seconds / SECONDS


def of_system(name: str, kind: Kind, settings: Settings) -> Work:
    """The training of a system, without the shared models."""
    updates = settings.matching.updates
    if kind == "topline":
        return Work(name, "supervised", settings.training.updates + updates, settings)
    return Work(name, STEPS[kind], updates, settings)
