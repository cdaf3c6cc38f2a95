"""A study: one corpus and one seed, with the models that all systems of the tables share, and the systems."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import get_args

import torch

from priormatch.config import Settings, changed, load_settings
from priormatch.data.batches import read_cuts
from priormatch.data.manifest import SUFFIX
from priormatch.data.tokenizer import Tokenizer
from priormatch.errors import UserError
from priormatch.files import replacing
from priormatch.matching.label_filters import LabelFilter
from priormatch.runs import work
from priormatch.runs.data import RunData, make_demo_data
from priormatch.runs.label import ALL, label_cuts
from priormatch.runs.pipeline import Run
from priormatch.runs.stage import Stage
from priormatch.tables.systems import Labels, System, Unlabelled

LAYOUTS: dict[str, dict[str, str]] = {
    "small": {
        "labelled": "labelled",
        "unlabelled": "unlab-clean unlab-other",
        "transcribed": "unlab-clean-transcribed unlab-other-transcribed",
    },
    "paper": {
        "labelled": "train-clean-100",
        "unlabelled": "train-clean-360 train-other-500",
        "transcribed": "train-clean-360 train-other-500",
    },
}
"""What the manifests of a scale's data folder are called."""

SETS = ("clean", "other")
LONGER: dict[str, dict[Unlabelled, list[str]]] = {
    "paper": {
        "clean": ["matching.updates=3200000", "matching.optimizer.decay_every=1280000"],
        "all": ["matching.updates=3200000", "matching.optimizer.decay_every=640000"],
    }
}
"""What the paper's main results have that its other tables have not, and their lengths come from ASR + LM."""
LABELS = LabelFilter(keep_best=0.9)


@dataclass(frozen=True)
class Study:
    """A folder with the work of one scale and seed; every method does what is not done yet.

    What all systems share lies at its top: tokenizer, prior, supervised model. `unlabelled/NAME` holds what belongs to
    a set of unlabelled speech, and `systems/NAME` a system and its transcripts.
    """

    folder: Path
    settings: Settings
    data: RunData
    speech: Mapping[Unlabelled, tuple[Path, Path]]
    """Unlabelled cuts, and the same with their transcripts."""
    main: Mapping[Unlabelled, Settings]
    """The settings of the main results."""
    parts: Mapping[str, Path]
    """The transcribed cuts of the clean and of the other part of all unlabelled speech."""

    @cached_property
    def base(self) -> Run:
        """The run of the shared models."""
        return Run(self.folder, self.settings, self.data)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Word pieces."""
        return self.base.tokenizer()

    @cached_property
    def prior(self) -> Path:
        """The language model."""
        return self.base.prior(self.tokenizer)

    @cached_property
    def supervised(self) -> Path:
        """The supervised model, whose training also keeps the copies that others start from."""
        return self.base.supervised("supervised", self.tokenizer, self.settings.training.updates)

    def settings_of(self, system: System) -> Settings:
        """The settings that a system is trained with."""
        settings = changed(self.main[system.unlabelled] if system.main else self.settings, system.settings)
        weight = settings.matching.loss_weight * system.loss_scale
        return replace(settings, matching=replace(settings.matching, loss_weight=weight))

    def folder_of(self, system: System) -> Path:
        """Where a system is trained, named by what differs from the scale's settings."""
        different = [each for each in system.settings if changed(self.settings, [each]) != self.settings]
        words = [
            system.kind,
            *([] if system.kind == "supervised" else [system.unlabelled]),
            *system.labels,
            *([f"by={system.labeller}"] if system.labeller else []),
            *([] if system.filtered else ["unfiltered"]),
            *(each.removeprefix("matching.") for each in different),
            *([f"loss_scale={system.loss_scale:g}"] if system.loss_scale != 1 else []),
            *(["longer"] if system.main and self.main[system.unlabelled] != self.settings else []),
        ]
        return self.folder / "systems" / re.sub(r"[^\w.=,+\-]+", "_", "-".join(words))

    def greedy(self, unlabelled: Unlabelled, copy: str = "") -> Path:
        """What the supervised model, or a copy that was kept, hears in unlabelled speech, by itself."""
        return self._shared(unlabelled, copy).lengths(work.kept_copy(self.supervised, copy))

    def prepare(self, system: System) -> Path | None:
        """Make what a system shares with others: what it learns unlabelled speech by, labels or reference lengths."""
        assert self.prior and self.supervised
        if system.kind == "pseudo_labels":
            return self.labels(system)
        if system.kind != "matched":
            return None
        settings = self.settings_of(system)
        copy = settings.matching.proposal  # lengths are estimated by the model that proposes at first
        if settings.matching.reference_lengths == "asr_lm":
            return self.transcripts("asr_lm", system.unlabelled, copy)
        shared, first = self._shared(system.unlabelled, copy, settings), work.kept_copy(self.supervised, copy)
        return shared.reference_lengths(
            self.tokenizer, self.greedy(system.unlabelled, copy), first, self.prior
        )

    def train(self, system: System) -> Path:
        """Train a system."""
        taught_by, settings = self.prepare(system), self.settings_of(system)
        run = self._run(self.folder_of(system), system.unlabelled, settings)
        run.folder.mkdir(parents=True, exist_ok=True)
        if system.kind == "supervised":
            return run.longer(self.supervised, self.tokenizer)
        if taught_by is None:
            updates = settings.training.updates + settings.matching.updates
            return run.supervised("topline", self.tokenizer, updates, run.data.topline)
        if system.kind == "matched":
            return run.lpm(self.supervised, self.prior, taught_by)
        return run.pseudo_label(self.supervised, taught_by)

    def transcripts(self, source: Labels, unlabelled: Unlabelled, copy: str = "") -> Path:
        """What the supervised model, or a copy of it, hears in unlabelled speech, by itself or with the prior."""
        if source == "asr":
            return self.greedy(unlabelled, copy)
        shared, model = self._shared(unlabelled, copy), work.kept_copy(self.supervised, copy)
        fusion = self._run(self.folder / "fusion" / (copy or "best"), unlabelled).fusion(model, self.prior)
        return shared.transcripts_with_prior(model, self.prior, fusion)

    def labels(self, system: System) -> Path:
        """The pseudo-labels of a system, filtered as Kahn et al. do, or not."""
        transcripts = [self.transcripts(each, system.unlabelled, system.labeller) for each in system.labels]
        cuts, _ = self.speech[system.unlabelled]
        keep = LABELS if system.filtered else ALL
        shared = self._shared(system.unlabelled, system.labeller)
        name = f"labels-{'-'.join(system.labels)}{'' if system.filtered else '-unfiltered'}"
        out = shared.folder / name / f"labelled{SUFFIX}"
        inputs = {"unlabelled": cuts, **{str(number): path for number, path in enumerate(transcripts)}}
        with shared.stage(name, {"filter": keep}, inputs).work() as todo:
            if todo:
                label_cuts(cuts, transcripts, out, keep)
        return out

    def decode(self, system: System, part: str, with_prior: bool = False) -> dict[str, Path]:
        """Transcripts of the dev or of the test sets, greedy ones or with the prior, tuned for this system."""
        model = self.train(system)
        sets = self.data.validation if part == "dev" else self.data.test
        run = Run(self.folder_of(system), self.settings, replace(self.data, test=sets), self.folder)
        if not with_prior:
            return run.decode(part, model)
        fusion = run.fusion(model, self.prior)
        return run.decode(f"{part}-with-prior", model, self.prior, fusion)

    def heard(self, system: System) -> Path:
        """Greedy transcripts of the unlabelled speech by the last proposal of a matched system."""
        proposal = self.train(system).with_name("proposal")
        return self._run(self.folder_of(system), system.unlabelled).lengths(proposal)

    def _shared(self, unlabelled: Unlabelled, copy: str = "", settings: Settings | None = None) -> Run:
        name = f"{unlabelled}-by-{copy}" if copy else unlabelled
        return self._run(self.folder / "unlabelled" / name, unlabelled, settings)

    def _run(self, folder: Path, unlabelled: Unlabelled, settings: Settings | None = None) -> Run:
        cuts, transcribed = self.speech[unlabelled]
        data = replace(self.data, unlabelled=cuts, topline=transcribed)
        return Run(folder, settings or self.settings, data, self.folder)


def open_study(scale: str, recipe: Path, seed: int, data: Path | None, given: list[str]) -> Study:
    """The study of a scale and a seed, with its data in place."""
    if any(each.startswith("training.seed=") for each in given):
        raise UserError("training.seed is not for tables: give --seeds")
    seeded = [*given, f"training.seed={seed}"]
    settings = load_settings(recipe, seeded)
    longer = LONGER.get(scale, {})
    lengths = ["matching.reference_lengths=asr_lm"] if longer else []
    main = {
        each: load_settings(recipe, [*longer.get(each, []), *lengths, *seeded])
        for each in get_args(Unlabelled)
    }
    if settings.threads:
        torch.set_num_threads(settings.threads)
    folder = Path(settings.runs) / settings.name / f"seed-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    if scale == "demo":
        return demo_study(folder, settings, main)
    if data is None:
        raise UserError(
            f"the {scale} scale needs data: give --data FOLDER, with {', '.join(wanted_files(scale))}"
        )
    return prepared_study(scale, folder, settings, main, data)


def demo_study(folder: Path, settings: Settings, main: Mapping[Unlabelled, Settings]) -> Study:
    """A study on the embedded corpus: half of its unlabelled speech stands for the paper's 360 hours."""
    data = make_demo_data(settings, folder)
    assert data.topline is not None
    halves = {
        (kind, end): folder / "halves" / f"{kind}{end}{SUFFIX}"
        for kind in SETS
        for end in ("", "-transcribed")
    }
    whole = {"": data.unlabelled, "-transcribed": data.topline}
    with Stage(
        folder / "halves", {}, {f"cuts{end}": path for end, path in whole.items()}, keep_old=True
    ).work() as todo:
        if todo:
            for (kind, end), out in halves.items():
                write_half(whole[end], SETS.index(kind), out)
    sets = {"dev": data.validation, "test": data.test}
    renamed = {
        part: {f"{part}-{kind}": path for kind, path in zip(SETS, paths.values(), strict=True)}
        for part, paths in sets.items()
    }
    speech: dict[Unlabelled, tuple[Path, Path]] = {
        "clean": (halves["clean", ""], halves["clean", "-transcribed"]),
        "all": (data.unlabelled, data.topline),
    }
    parts = {kind: halves[kind, "-transcribed"] for kind in SETS}
    data = replace(data, validation=renamed["dev"], test=renamed["test"])
    return Study(folder, settings, data, speech, main, parts)


def write_half(cuts: Path, first: int, out: Path) -> None:
    """Every second cut of a manifest."""
    from lhotse import CutSet

    with replacing(out) as temporary:
        CutSet.from_cuts(read_cuts(cuts)[first::2]).to_file(temporary)


def wanted_files(scale: str) -> list[str]:
    """What a scale's data folder must hold."""
    layout = LAYOUTS[scale]
    names = [*layout["labelled"].split(), *layout["unlabelled"].split(), *layout["transcribed"].split()]
    sets = [f"{part}-{kind}" for part in ("dev", "test") for kind in SETS]
    return [*dict.fromkeys(f"{name}{SUFFIX}" for name in [*names, *sets]), "text.txt", "text-validation.txt"]


def prepared_study(
    scale: str, folder: Path, settings: Settings, main: Mapping[Unlabelled, Settings], data: Path
) -> Study:
    """A study on a folder of manifests and text."""
    from lhotse import CutSet

    layout = LAYOUTS[scale]
    if missing := [name for name in wanted_files(scale) if not (data / name).is_file()]:
        raise UserError(f"{data} lacks {', '.join(missing)}: prepare the {scale} scale's data there first")
    parts = {key: [data / f"{name}{SUFFIX}" for name in layout[key].split()] for key in layout}
    both = {key: folder / "both" / f"{key}{SUFFIX}" for key in ("unlabelled", "transcribed")}
    inputs = {path.name: path for key in both for path in parts[key]}
    with Stage(folder / "both", {}, inputs, keep_old=True).work() as todo:
        if todo:
            for key, out in both.items():
                with replacing(out) as temporary:
                    CutSet.from_cuts(cut for path in parts[key] for cut in read_cuts(path)).to_file(temporary)
    speech: dict[Unlabelled, tuple[Path, Path]] = {
        "clean": (parts["unlabelled"][0], parts["transcribed"][0]),
        "all": (both["unlabelled"], both["transcribed"]),
    }
    run_data = RunData(
        labelled=parts["labelled"][0],
        unlabelled=speech["clean"][0],
        text=data / "text.txt",
        held_out_text=data / "text-validation.txt",
        validation={f"dev-{kind}": data / f"dev-{kind}{SUFFIX}" for kind in SETS},
        test={f"test-{kind}": data / f"test-{kind}{SUFFIX}" for kind in SETS},
        topline=speech["clean"][1],
    )
    halves = dict(zip(SETS, parts["transcribed"], strict=True))
    return Study(folder, settings, run_data, speech, main, halves)
