"""The corpora of the scales: the files in their folders, and studies on them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import get_args

from priormatch.config import Settings, load_settings
from priormatch.data.batches import read_cuts
from priormatch.data.manifest import SUFFIX, join_manifests
from priormatch.device import use_threads
from priormatch.errors import UserError
from priormatch.experiments.study import Part, Places, Plan, Study
from priormatch.experiments.systems import LARGE, System, Unlabeled
from priormatch.experiments.trained import Speech
from priormatch.files import replacing
from priormatch.old_names import existing_manifest
from priormatch.pipeline.run_data import RunData, make_demo_data
from priormatch.runs.stage import Stage

LAYOUTS: dict[str, dict[str, str]] = {
    "small": {
        "labeled": "labeled",
        "unlabeled": "unlab-clean unlab-other",
        "transcribed": "unlab-clean-transcribed unlab-other-transcribed",
    },
    "paper": {
        "labeled": "train-clean-100",
        "unlabeled": "train-clean-360 train-other-500",
        "transcribed": "train-clean-360 train-other-500",
    },
}
"""Names of the manifests in the data folder of a scale."""

LIGHT = ("small", "medium", "large")
"""The manifests of Libri-Light, needed only for the rows of 60,000 hours."""

OF_ROWS = ("matching.start=", "matching.proposal=", "matching.prior=")
"""Settings that rows define: a value on the command line would change the meaning of rows without their own."""

PARTS: tuple[Part, ...] = get_args(Part)
ENSEMBLE = {"demo": 2, "small": 4, "paper": 4}
"""The number of models in an ensemble: four, as in Kahn et al., and fewer for the demo."""

CHOSEN = [
    "matching.updates=5000",
    "matching.optimizer.learning_rate=0.001",
    "matching.reference_lengths=speaking_rate",
]
"""Settings chosen with Table X2."""

LONGER: dict[str, dict[Unlabeled, list[str]]] = {
    "paper": {
        "clean": [
            "matching.updates=3200000",
            "matching.optimizer.decay_every=1280000",
            "matching.reference_lengths=asr_lm",
        ],
        "all": [
            "matching.updates=3200000",
            "matching.optimizer.decay_every=640000",
            "matching.reference_lengths=asr_lm",
        ],
        "light": [  # the paper does not state the number of updates
            "matching.updates=3200000",
            "matching.optimizer.decay_every=0",
            "matching.batch.utterances=128",
            "matching.beam_size=8",
        ],
    },
    "small": {"clean": CHOSEN, "all": CHOSEN},
}
"""Settings of the main results that differ from those of other tables."""


@cache
def make_plan(scale: str, recipe: Path, seed: int, given: tuple[str, ...]) -> Plan:
    """The settings of a scale and a seed."""
    if any(each.startswith("training.seed=") for each in given):
        raise UserError("training.seed cannot be set for tables: give --seeds")
    if taken := [each for each in given if each.startswith(OF_ROWS)]:
        raise UserError(f"{taken[0]} cannot be set for tables, because their rows define it: leave it out")
    seeded = [*given, f"training.seed={seed}"]
    settings, longer = load_settings(recipe, seeded), LONGER.get(scale, {})
    main: dict[Unlabeled, Settings] = dict.fromkeys(get_args(Unlabeled), settings)
    main |= {each: load_settings(recipe, [*more, *seeded]) for each, more in longer.items()}
    return Plan(settings, main)


def places_of(scale: str, recipe: Path, seed: int, given: tuple[str, ...] = ()) -> Places:
    """The folders of the study of a scale and a seed; its data need not exist."""
    plan = make_plan(scale, recipe, seed, given)
    folder = Path(plan.settings.runs) / plan.settings.name / f"seed-{seed}"
    return Places(folder, plan, ENSEMBLE[scale])


def open_study(scale: str, recipe: Path, seed: int, data: Path | None, given: tuple[str, ...] = ()) -> Study:
    """The study of a scale and a seed, with its data."""
    places = places_of(scale, recipe, seed, given)
    use_threads(places.settings.threads)
    found = data_of(scale, data)
    return demo_study(places) if found is None else prepared_study(scale, places, found)


def data_of(scale: str, data: Path | None) -> Path | None:
    """The data folder of a scale, checked to be complete; None for the demo scale, which makes its own data."""
    if scale == "demo":
        return None
    if data is None:
        raise UserError(
            f"the {scale} scale needs data: give --data FOLDER, with {', '.join(wanted_files(scale))}"
        )
    if not data.is_dir():
        raise UserError(f"there is no folder {data}: prepare the {scale} scale's data there first")
    if missing := missing_files(wanted_files(scale), data):
        raise UserError(f"{data} lacks {', '.join(missing)}: prepare the {scale} scale's data there first")
    return data


def demo_study(places: Places) -> Study:
    """A study on the built-in corpus; half of its unlabeled speech represents the paper's 360 hours."""
    folder = places.folder
    data = make_demo_data(places.settings, folder)
    assert data.topline is not None
    halves = {
        (kind, end): folder / "halves" / f"{kind}{end}{SUFFIX}"
        for kind in PARTS
        for end in ("", "-transcribed")
    }
    whole = {"": data.unlabeled, "-transcribed": data.topline}
    with Stage(
        folder / "halves", {}, {f"cuts{end}": path for end, path in whole.items()}, keep_old=True
    ).work() as todo:
        if todo:
            for (kind, end), out in halves.items():
                write_half(whole[end], PARTS.index(kind), out)
    sets = {"dev": data.validation, "test": data.test}
    renamed = {
        part: {f"{part}-{kind}": path for kind, path in zip(PARTS, paths.values(), strict=True)}
        for part, paths in sets.items()
    }
    parts = {kind: (halves[kind, ""], halves[kind, "-transcribed"]) for kind in PARTS}
    speech: Speech = {"clean": parts["clean"], "all": (data.unlabeled, data.topline)}
    data = replace(data, validation=renamed["dev"], test=renamed["test"])
    return Study(folder, places.plan, places.ensemble, data, speech, parts)


def write_half(cuts: Path, first: int, out: Path) -> None:
    """Write every second cut of a manifest, starting at `first`."""
    from lhotse import CutSet

    with replacing(out) as temporary:
        CutSet.from_cuts(read_cuts(cuts)[first::2]).to_file(temporary)


def wanted_files(scale: str) -> list[str]:
    """The required files of a scale's data folder."""
    layout = LAYOUTS[scale]
    names = [*layout["labeled"].split(), *layout["unlabeled"].split(), *layout["transcribed"].split()]
    sets = [f"{part}-{kind}" for part in ("dev", "test") for kind in PARTS]
    return [*dict.fromkeys(f"{name}{SUFFIX}" for name in [*names, *sets]), "text.txt", "text-validation.txt"]


def light_files(scale: str) -> list[str]:
    """The optional files of a scale's data folder, for the rows of 60,000 hours."""
    return [f"{name}{SUFFIX}" for name in LIGHT] if scale == "paper" else []


def is_of_scale(system: System, scale: str) -> bool:
    """Whether a scale has the model and the speech of a system."""
    if system.unlabeled == "light":
        return bool(light_files(scale))
    return scale == "paper" or not set(LARGE) <= set(system.settings)


def missing_files(names: Iterable[str], data: Path | None) -> list[str]:
    """The files that are missing in the data folder."""
    return [name for name in names if data is None or not in_folder(data, name).is_file()]


def in_folder(folder: Path, file: str) -> Path:
    """The path of a file in a folder, or of the manifest that an older version wrote if only that exists."""
    name, suffix = (file.removesuffix(SUFFIX), SUFFIX) if file.endswith(SUFFIX) else (file, "")
    return existing_manifest(folder, name, suffix)


def prepared_study(scale: str, places: Places, data: Path) -> Study:
    """A study on a folder of manifests and text."""
    folder, layout = places.folder, LAYOUTS[scale]
    found = {
        key: [in_folder(data, f"{name}{SUFFIX}") for name in names.split()] for key, names in layout.items()
    }
    both = joined(folder / "both", {key: found[key] for key in ("unlabeled", "transcribed")})
    parts = {
        kind: (found["unlabeled"][number], found["transcribed"][number]) for number, kind in enumerate(PARTS)
    }
    speech: dict[Unlabeled, tuple[Path, Path | None]] = {
        "clean": parts["clean"],
        "all": (both["unlabeled"], both["transcribed"]),
    }
    if (light := light_files(scale)) and not missing_files(light, data):
        whole = joined(folder / "light", {"unlabeled": [data / name for name in light]})
        speech["light"] = whole["unlabeled"], None
    run_data = RunData(
        labeled=found["labeled"][0],
        unlabeled=parts["clean"][0],
        text=data / "text.txt",
        held_out_text=data / "text-validation.txt",
        validation={f"dev-{kind}": data / f"dev-{kind}{SUFFIX}" for kind in PARTS},
        test={f"test-{kind}": data / f"test-{kind}{SUFFIX}" for kind in PARTS},
        topline=parts["clean"][1],
    )
    return Study(folder, places.plan, places.ensemble, run_data, speech, parts)


def joined(folder: Path, manifests: Mapping[str, list[Path]]) -> dict[str, Path]:
    """Join several manifests into one, for each name."""
    inputs = {path.name: path for paths in manifests.values() for path in paths}
    with Stage(folder, {}, inputs, keep_old=True).work() as todo:
        if todo:
            for name, paths in manifests.items():
                join_manifests(paths, folder / f"{name}{SUFFIX}")
    return {name: existing_manifest(folder, name, SUFFIX) for name in manifests}
