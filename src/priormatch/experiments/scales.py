"""The request of a `priormatch table` command, and the settings, folders and data of its scale."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import get_args

from priormatch.config import ORACLE, Settings, load_settings, recipe_path
from priormatch.data.corpus import read_cuts
from priormatch.data.manifest import SUFFIX, join_manifests
from priormatch.device import use_threads
from priormatch.errors import UserError
from priormatch.experiments.study import Part, Places, Study
from priormatch.experiments.table import (
    BEAMS,
    Row,
    System,
    Table,
    Unlabeled,
    table_named,
    tables,
)
from priormatch.experiments.trained import Speech
from priormatch.files import replacing
from priormatch.old_names import existing_manifest
from priormatch.pipeline.run_data import RunData, make_data
from priormatch.runs.stage import Stage

PARTS: tuple[Part, ...] = get_args(Part)
BOTH_SETS = {part: {f"{part}-{kind}": f"{part}-{kind}" for kind in PARTS} for part in ("dev", "test")}

LIGHT = ("small", "medium", "large")
"""The manifests of Libri-Light, needed only for the rows of 60,000 hours."""

OF_ROWS = ("matching.start=", "matching.proposal=", "matching.prior=")
"""Settings that rows define: a value on the command line would change the meaning of rows without their own."""

CHOSEN = [
    "matching.updates=5000",
    "matching.optimizer.learning_rate=0.001",
    "matching.reference_lengths=speaking_rate",
]
"""Settings chosen with Table X2."""

PAPERS: dict[Unlabeled, list[str]] = {
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
}


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The recipe of a scale, the names of the manifests in its data folder, and its differences from its recipe.

    Speech without other parts is called clean, also where it is not. Without names, the scale makes its own data.
    """

    recipe: str
    validation: tuple[int, float]
    """The approximate number of utterances in each dev set, and their mean length in seconds, for estimates."""
    labeled: str = ""
    unlabeled: Mapping[Part, str] = field(default_factory=dict)
    transcribed: Mapping[Part, str] = field(default_factory=dict)
    """The unlabeled speech with its transcripts, if they are known."""
    sets: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: BOTH_SETS)
    """Dev and test sets: their names in columns of tables, and their manifests."""
    light: Sequence[str] = ()
    ensemble: int = 4
    """The number of models in an ensemble: four, as in Kahn et al., and fewer for the demo."""
    longer: Mapping[Unlabeled, list[str]] = field(default_factory=dict)
    """Settings of the main results that differ from those of other tables."""
    recognizers: bool = False
    """Whether rows with other sizes of recognizers are run."""


ONE_SET = {"dev": {"dev": "validation"}, "test": {"test": "report"}}
SCALES = {
    "demo": Scale(recipe="table-demo", validation=(150, 4.0), ensemble=2),
    "small": Scale(
        recipe="table-small",
        validation=(660, 4.2),
        labeled="labeled",
        unlabeled={"clean": "unlab-clean", "other": "unlab-other"},
        transcribed={"clean": "unlab-clean-transcribed", "other": "unlab-other-transcribed"},
        longer={"clean": CHOSEN, "all": CHOSEN},
    ),
    "paper": Scale(
        recipe="table-paper",
        validation=(2783, 6.8),
        labeled="train-clean-100",
        unlabeled={"clean": "train-clean-360", "other": "train-other-500"},
        transcribed={"clean": "train-clean-360", "other": "train-other-500"},
        light=LIGHT,
        longer=PAPERS,
        recognizers=True,
    ),
    "librispeech": Scale(
        recipe="librispeech-small",
        validation=(466, 7.3),
        labeled="labeled",
        unlabeled={"clean": "unlabeled"},
        transcribed={"clean": "unlabeled"},
        sets=ONE_SET,
    ),
    "common-voice": Scale(
        recipe="common-voice-small",
        validation=(1221, 5.5),
        labeled="labeled",
        unlabeled={"clean": "unlabeled"},
        sets=ONE_SET,
    ),
}


def scale_named(name: str) -> Scale:
    """The scale with a name."""
    if name not in SCALES:
        raise UserError(f"there is no scale {name}: choose from {', '.join(SCALES)}")
    return SCALES[name]


@dataclass(frozen=True)
class Request:
    """The arguments of a `priormatch table` command."""

    tables: tuple[str, ...]
    scale: str
    _: KW_ONLY
    seeds: tuple[int, ...] = (0,)
    rows: Mapping[str, str] = field(default_factory=dict)  # by table, as given; without an entry, all rows
    data: Path | None = None
    jobs: int = 1
    so_far: bool = False  # show existing measurements and train nothing
    overrides: tuple[str, ...] = ()
    as_json: bool = False  # print tables as JSON instead of drawing them

    @property
    def recipe(self) -> Path:
        """The recipe of the scale."""
        return recipe_path(scale_named(self.scale).recipe)

    def places(self, seed: int) -> Places:
        """The folders of the study of one seed; its data need not exist."""
        return places_of(self.scale, self.recipe, seed, self.overrides)

    def study(self, seed: int) -> Study:
        """The study of one seed, with its data."""
        places = self.places(seed)
        use_threads(places.settings.threads)
        data = data_of(self.scale, self.data)
        return demo_study(places) if data is None else prepared_study(self.scale, places, data)

    def command(self, table: str) -> str:
        """The command that runs one of the tables, with FOLDER as the data folder if none was given."""
        name = f"{table}:{self.rows[table]}" if table in self.rows else table
        seeds = ",".join(map(str, self.seeds))
        words = ["priormatch", "table", name, "--scale", self.scale, "--seeds", seeds]
        words += ["--data", str(self.data or "FOLDER")] if self.data or self.scale != "demo" else []
        words += ["--jobs", str(self.jobs)] if self.jobs > 1 else []
        return shlex.join([*words, *self.overrides])

    def rows_of(self, table: str) -> list[Row]:
        """The requested rows of a table; rows quoted from other papers and empty rows are shown but not run.

        If a scale lacks the speech or model of a row, only the paper's figures are shown; rows of ours are left out.
        """
        if table == BEAMS and table in self.rows:
            raise UserError(f"{table} shows beams and has no rows to select: name it without rows")
        rows = tables()[table].rows
        require_sets(tables()[table], self.scale)
        wanted = numbers(f"{table}:", self.rows[table]) if table in self.rows else range(1, len(rows) + 1)
        if bad := [number for number in wanted if not 1 <= number <= len(rows)]:
            raise UserError(f"{table} has no row {bad[0]}: choose from 1 to {len(rows)}")
        found = []
        for row in (each for each in rows if each.number in wanted):
            if row.system is None or is_of_scale(row.system, self.scale):
                found.append(row)
            elif row.is_papers:
                found.append(replace(row, system=None))
        if not found:
            raise UserError(f"none of these rows can run at {self.scale} scale: choose others")
        return found


@cache
def places_of(scale: str, recipe: Path, seed: int, given: tuple[str, ...]) -> Places:
    """The settings and folders of a scale and a seed."""
    if any(each.startswith("training.seed=") for each in given):
        raise UserError("training.seed cannot be set for tables: pass --seeds")
    if taken := [each for each in given if each.startswith(OF_ROWS)]:
        raise UserError(f"{taken[0]} cannot be set for tables, because their rows define it: remove it")
    seeded = [f"name=table-{scale}", *given, f"training.seed={seed}"]
    settings = load_settings(recipe, seeded)
    main: dict[Unlabeled, Settings] = dict.fromkeys(get_args(Unlabeled), settings)
    main |= {each: load_settings(recipe, [*more, *seeded]) for each, more in SCALES[scale].longer.items()}
    folder = Path(settings.runs) / settings.name / f"seed-{seed}"
    return Places(folder=folder, settings=settings, main=main, ensemble=SCALES[scale].ensemble)


def require_sets(table: Table, scale: str) -> None:
    """Refuse a table for one dev and one test set at a scale with clean and other ones, and the reverse."""

    def fits(its: Scale) -> bool:
        return ("test_wer" in table.columns) == ("test" in its.sets["test"])

    if not fits(scale_named(scale)):
        fit = [name for name, its in SCALES.items() if fits(its)]
        raise UserError(f"{table.name} cannot be run at {scale} scale: pass --scale {' or '.join(fit)}")


def make_request(
    words: list[str], scale: str, seeds: str, data: Path | None, jobs: int, so_far: bool
) -> Request:
    """Parse the arguments: tables, with optional rows, followed by settings."""
    named = [word.partition(":") for word in words if "=" not in word]
    if not named:
        raise UserError("no table given: pass its number or name, such as 2 or A1")
    names = tuple(table_named(name).name for name, _, _ in named)
    if len(set(names)) < len(names):
        raise UserError("a table is given twice: give each once, with all its rows, such as 2:1-5,11")
    rows = {table: rows for table, (_, colon, rows) in zip(names, named, strict=True) if colon}
    overrides = tuple(word for word in words if "=" in word)
    return Request(
        names,
        scale,
        seeds=numbers("--seeds ", seeds),
        rows=rows,
        data=data,
        jobs=jobs,
        so_far=so_far,
        overrides=overrides,
    )


def numbers(what: str, given: str) -> tuple[int, ...]:
    """Parse numbers and ranges separated by commas: 1-3,7."""
    found: list[int] = []
    for each in given.split(","):
        first, dash, last = each.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UserError(f"{what}{given}: use numbers separated by commas, such as 0,2 or 1-3,7")
        found += range(int(first), int(last if dash else first) + 1)
    if not found or len(set(found)) < len(found):
        raise UserError(f"{what}{given}: give each number once, and the lower end of a range first")
    return tuple(found)


def as_ranges(rising: Sequence[int]) -> str:
    """Format increasing numbers for the command line: 1-3,7."""
    runs: list[list[int]] = []
    for each in rising:
        if runs and each == runs[-1][-1] + 1:
            runs[-1].append(each)
        else:
            runs.append([each])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def data_of(scale: str, data: Path | None) -> Path | None:
    """The data folder of a scale, checked to be complete; None for the demo scale, which makes its own data."""
    if scale == "demo":
        return None
    if data is None:
        raise UserError(
            f"the {scale} scale needs data: pass --data FOLDER, with {', '.join(wanted_files(scale))}"
        )
    if not data.is_dir():
        raise UserError(f"there is no folder {data}: prepare the {scale} scale's data there first")
    if missing := missing_files(wanted_files(scale), data):
        raise UserError(f"{data} lacks {', '.join(missing)}: prepare the {scale} scale's data there first")
    return data


def demo_study(places: Places) -> Study:
    """A study on the built-in corpus; half of its unlabeled speech represents the paper's 360 hours."""
    folder = places.folder
    data = make_data(places.settings, folder)
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
    return Study(**vars(places), data=data, speech=speech, parts=parts)


def write_half(cuts: Path, first: int, out: Path) -> None:
    """Write every second cut of a manifest, starting at `first`."""
    from lhotse import CutSet

    with replacing(out) as temporary:
        CutSet.from_cuts(read_cuts(cuts)[first::2]).to_file(temporary)


def wanted_files(scale: str) -> list[str]:
    """The required files of a scale's data folder."""
    its = SCALES[scale]
    names = [its.labeled, *its.unlabeled.values(), *its.transcribed.values()]
    sets = [name for part in its.sets.values() for name in part.values()]
    return [*dict.fromkeys(f"{name}{SUFFIX}" for name in [*names, *sets]), "text.txt", "text-validation.txt"]


def light_files(scale: str) -> list[str]:
    """The optional files of a scale's data folder, for the rows of 60,000 hours."""
    return [f"{name}{SUFFIX}" for name in SCALES[scale].light]


def is_of_scale(system: System, scale: str) -> bool:
    """Whether a scale has the model and the speech of a system."""
    its = SCALES[scale]
    if system.unlabeled == "light":
        return bool(its.light)
    needs_transcripts = system.kind == "topline" or f"matching.prior={ORACLE}" in system.settings
    if needs_transcripts and its.unlabeled and not its.transcribed:
        return False
    return its.recognizers or not any(each.startswith("model.") for each in system.settings)


def missing_files(names: Iterable[str], data: Path | None) -> list[str]:
    """The files that are missing in the data folder."""
    return [name for name in names if data is None or not in_folder(data, name).is_file()]


def in_folder(folder: Path, file: str) -> Path:
    """The path of a file in a folder, or of the manifest that an older version wrote if only that exists."""
    name, suffix = (file.removesuffix(SUFFIX), SUFFIX) if file.endswith(SUFFIX) else (file, "")
    return existing_manifest(folder, name, suffix)


def prepared_study(scale: str, places: Places, data: Path) -> Study:
    """A study on a folder of manifests and text."""
    folder, its = places.folder, SCALES[scale]
    unlabeled = {kind: in_folder(data, f"{name}{SUFFIX}") for kind, name in its.unlabeled.items()}
    transcribed = {kind: in_folder(data, f"{name}{SUFFIX}") for kind, name in its.transcribed.items()}
    parts = {kind: (path, transcribed.get(kind)) for kind, path in unlabeled.items()}
    speech: dict[Unlabeled, tuple[Path, Path | None]] = {"clean": parts["clean"], "all": parts["clean"]}
    if len(parts) > 1:
        named = {"unlabeled": [*unlabeled.values()], "transcribed": [*transcribed.values()]}
        both = joined(folder / "both", named)
        speech["all"] = both["unlabeled"], both["transcribed"]
    if (light := light_files(scale)) and not missing_files(light, data):
        whole = joined(folder / "light", {"unlabeled": [data / name for name in light]})
        speech["light"] = whole["unlabeled"], None
    sets = {
        part: {column: data / f"{name}{SUFFIX}" for column, name in named.items()}
        for part, named in its.sets.items()
    }
    run_data = RunData(
        labeled=in_folder(data, f"{its.labeled}{SUFFIX}"),
        unlabeled=parts["clean"][0],
        text=data / "text.txt",
        held_out_text=data / "text-validation.txt",
        validation=sets["dev"],
        test=sets["test"],
        topline=parts["clean"][1],
    )
    return Study(**vars(places), data=run_data, speech=speech, parts=parts)


def joined(folder: Path, manifests: Mapping[str, list[Path]]) -> dict[str, Path]:
    """Join several manifests into one, for each name."""
    inputs = {path.name: path for paths in manifests.values() for path in paths}
    with Stage(folder, {}, inputs, keep_old=True).work() as todo:
        if todo:
            for name, paths in manifests.items():
                join_manifests(paths, folder / f"{name}{SUFFIX}")
    return {name: existing_manifest(folder, name, SUFFIX) for name in manifests}
