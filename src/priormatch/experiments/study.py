"""A study: one corpus and one seed, with the shared models and the systems of the tables."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Literal

from priormatch.config import Settings, changed, flat
from priormatch.data.manifest import SUFFIX, join_manifests
from priormatch.decoding.fusion import feeds_back
from priormatch.experiments.table import Labels, System, Unlabeled
from priormatch.experiments.trained import Models, Speech, recipe_of_models
from priormatch.matching.label_filters import LabelFilter
from priormatch.old_names import existing, existing_manifest
from priormatch.pipeline.label import ALL, label_cuts
from priormatch.pipeline.run_data import RunData
from priormatch.pipeline.stages import Run
from priormatch.runs.stage import Wanted, differences

Part = Literal["clean", "other"]
LABELS: dict[Part, LabelFilter] = {"clean": LabelFilter(keep_best=0.9), "other": LabelFilter(keep_best=0.4)}
"""The label filters of Kahn et al. for each part of the unlabeled speech."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """The folder of one scale and seed, its settings, and the subfolders of systems and models.

    The top level has what all systems share: tokenizer, prior, supervised model; `others/NAME` has further models that
    a few systems need. `unlabeled/NAME` has the files for a set of unlabeled speech, and `systems/NAME` a system with
    its transcripts and figures.
    """

    folder: Path
    settings: Settings
    main: Mapping[Unlabeled, Settings]
    """The settings of the main results, by unlabeled speech; `settings` are those of all other systems."""
    ensemble: int
    """The number of models in an ensemble."""
    known: dict[System, Settings] = field(default_factory=dict)

    def settings_of(self, system: System) -> Settings:
        """The settings that a system is trained with."""
        if system not in self.known:
            settings = changed(self.base_of(system), system.settings)
            weight = settings.matching.loss_weight * system.loss_scale
            self.known[system] = replace(settings, matching=replace(settings.matching, loss_weight=weight))
        return self.known[system]

    def base_of(self, system: System) -> Settings:
        """The settings that a system's own settings override: those of the scale, or of its main results."""
        return self.main[system.unlabeled] if system.main else self.settings

    def differs(self, system: System, setting: str) -> bool:
        """Whether a setting of a system differs from its base settings."""
        value = attrgetter(setting.partition("=")[0])
        return value(self.settings_of(system)) != value(self.base_of(system))

    def name_of(self, system: System) -> str:
        """The folder name of a system, from what differs from the scale's settings or those of its main results."""
        different = [each.removeprefix("matching.") for each in system.settings if self.differs(system, each)]
        words = [
            system.kind,
            "" if system.kind in ("start", "supervised") else system.unlabeled,
            system.labels or "",
            "ensemble" if system.ensemble else "",
            f"by={system.labeler}" if system.labeler else "",
            "" if system.filtered else "unfiltered",
            *(f"{each}best" if each.endswith("=") else each for each in different),
            f"loss_scale={system.loss_scale:g}" if system.loss_scale != 1 else "",
        ]
        name = system.recorded or "-".join(filter(None, words))
        return as_file_name(name if self.base_of(system) == self.settings else f"{name}-longer")

    def folder_of(self, system: System) -> Path:
        """The folder of a system."""
        new = self.folder / "systems" / self.name_of(system)
        return existing(new, new.with_name(new.name.replace("fusion.centered=", "fusion.centred=")))

    def settings_of_models(self, system: System) -> list[Settings]:
        """The settings of the models that a system needs: its start and, for an ensemble, the other members."""
        others = range(1, self.ensemble) if system.ensemble else ()
        seeds = [self.settings.training.seed + 1000 * number for number in others]
        members = [changed(self.settings, [f"training.seed={seed}"]) for seed in seeds]
        return [self.settings_of(system), *members]

    def folder_of_models(self, settings: Settings) -> Path:
        """The folder of models with these settings: the top level, or a folder in `others` named by the differences."""
        wanted = recipe_of_models(settings)
        different, values = differences(recipe_of_models(self.settings), wanted), flat(wanted)
        if not different:
            return self.folder
        name = as_file_name("-".join(f"{each.partition('.')[2]}={values[each]}" for each in different))
        return self.folder / "others" / name

    def is_tuned(self, system: System) -> bool:
        """Whether the search for hypotheses is tuned: it uses the prior, and the row sets no fusion values."""
        by_row = any(each.startswith("fusion.") for each in system.settings)
        return self.settings_of(system).matching.hypotheses == "asr_lm" and not by_row

    def feeds_back(self, system: System) -> bool:
        """Whether hypotheses influence later searches, which changes how the search is tuned."""
        return feeds_back(self.settings_of(system).matching)

    def source_of(self, system: System) -> Labels:
        """Whether the teachers of a system decode without or with the prior."""
        if system.labels is not None:
            return system.labels
        return "asr_lm" if self.settings_of(system).matching.reference_lengths == "asr_lm" else "asr"


@dataclass(frozen=True, kw_only=True)
class Study(Places):
    """A folder with its data; every method runs the unfinished work that it needs."""

    data: RunData
    speech: Speech
    parts: Mapping[Part, tuple[Path, Path | None]]
    """The cuts of the clean and the other part of all unlabeled speech, without and, if known, with transcripts."""
    shared: dict[Path, Models] = field(default_factory=dict)

    @property
    def models(self) -> Models:
        """The models that most systems share."""
        made = Models(self.folder, self.settings, self.data, self.speech)
        return self.shared.setdefault(self.folder, made)

    def models_with(self, settings: Settings) -> Models:
        """The models with these settings: those that most systems share, or others."""
        folder = self.folder_of_models(settings)
        if folder == self.folder:
            return self.models
        made = Models(folder, settings, self.data, self.speech, self.models)
        return self.shared.setdefault(folder, made)

    def models_of(self, system: System) -> list[Models]:
        """The models that a system needs: its start and, for an ensemble, the other members."""
        return [self.models_with(each) for each in self.settings_of_models(system)]

    def teachers(self, system: System) -> list[tuple[Models, str]]:
        """The teachers that decode the unlabeled speech for a system: models, and the copy of their recognizer."""
        models = self.models_of(system)
        if system.kind == "pseudo_labels":
            return [(each, system.labeler) for each in models]
        copy = self.settings_of(system).matching.proposal
        return [(models[0], copy)] if system.kind == "matched" else []

    def heard_by(self, teacher: Models, system: System) -> Path:
        """The output of a teacher for a system: transcripts for labels, or reference lengths."""
        if system.labels is not None:
            return teacher.transcripts(system.labels, system.unlabeled, system.labeler)
        return teacher.lengths(system.unlabeled, self.settings_of(system))

    def needs(self, system: System) -> list[tuple[Models, Literal["prior", "supervised"]]]:
        """The models that a system needs before its training; none for a topline, which is trained from scratch."""
        if system.kind == "topline":
            return []
        models = self.models_of(system)
        needed: list[tuple[Models, Literal["prior", "supervised"]]] = []
        needed += [(each.hearing, "supervised") for each in models]
        if system.kind == "matched" or system.labels == "asr_lm":
            needed += [(each.judging, "prior") for each in models]
        return needed

    def fusion(self, system: System) -> Path | None:
        """The tuned values for the proposal's search with the prior; None if the search is not tuned."""
        if not self.is_tuned(system):
            return None
        copy = self.settings_of(system).matching.proposal
        return self.models_of(system)[0].fusion(system.unlabeled, copy, self.feeds_back(system))

    def prepare(self, system: System) -> Path | None:
        """Make the inputs that a system may share with others: pseudo-labels or reference lengths."""
        heard = [self.heard_by(teacher, system) for teacher, _ in self.teachers(system)]
        if not heard:
            return None
        return self.labels(system, heard) if system.kind == "pseudo_labels" else heard[0]

    def train(self, system: System) -> Path:
        """Train a system."""
        if system.kind == "start":
            return self.models_of(system)[0].supervised()
        taught_by, settings = self.prepare(system), self.settings_of(system)
        models, *_ = self.models_of(system)
        run = self.models.run(self.folder_of(system), system.unlabeled, settings)
        run.folder.mkdir(parents=True, exist_ok=True)
        if system.kind == "supervised":
            return run.make(run.longer(models.supervised()))
        if taught_by is None:
            models.tokenizer()
            return run.make(run.topline())
        if system.kind == "matched":
            return run.make(run.lpm(models.supervised(), models.prior(), taught_by, self.fusion(system)))
        return run.make(run.pseudo_label(models.supervised(), taught_by))

    def labels(self, system: System, transcripts: Sequence[Path]) -> Path:
        """Make the pseudo-labels of a system, each part of the speech filtered as in Kahn et al., or unfiltered."""
        pieces, place = self.filtered_parts(system), self.place_of_labels(system)
        run = self.models.run_on(system.unlabeled, system.labeler)
        out = existing_manifest(place, "labeled", SUFFIX).name
        inputs = {f"unlabeled-{part}": cuts for part, (cuts, _) in pieces.items()}
        inputs |= {f"transcripts-{number}": path for number, path in enumerate(transcripts)}
        filters = {f"filter-{part}": keep for part, (_, keep) in pieces.items()}

        def make(folder: Path) -> None:
            made = {part: folder / f"{part}{SUFFIX}" for part in pieces}
            for part, (cuts, keep) in pieces.items():
                label_cuts(cuts, transcripts, made[part], keep)
            join_manifests(list(made.values()), folder / out)

        return run.make(Wanted(place.name, filters, inputs, make, out))

    def place_of_labels(self, system: System) -> Path:
        """The folder with the pseudo-labels of a system."""
        ends = [*(["ensemble"] if system.ensemble else []), *([] if system.filtered else ["unfiltered"])]
        folder = self.models.run_on(system.unlabeled, system.labeler).folder
        return folder / "-".join(["labels", str(system.labels), *ends])

    def filtered_parts(self, system: System) -> dict[str, tuple[Path, LabelFilter]]:
        """The parts of the speech to label, with their filters."""
        if not system.filtered:
            return {"whole": (self.speech[system.unlabeled][0], ALL)}
        parts: Sequence[Part] = ("clean",) if system.unlabeled == "clean" else ("clean", "other")
        return {part: (self.parts[part][0], LABELS[part]) for part in parts}

    def decode(self, system: System, part: str, with_prior: bool = False) -> dict[str, Path]:
        """Decode the dev or test sets, greedily or with the prior, tuned for this system."""
        model, data = self.train(system), replace(self.data, test=self.sets(part))
        run = Run(self.folder_of(system), self.settings, data, self.folder)
        if not with_prior:
            return run.decode(part, model)
        prior = self.models.prior()
        return run.decode(f"{part}-with-prior", model, prior, run.make(run.fusion(model, prior)))

    def sets(self, part: str) -> dict[str, Path]:
        """The cuts of the dev or test sets by name."""
        return self.data.validation if part == "dev" else self.data.test

    def heard(self, system: System) -> Path:
        """Greedy transcripts of the unlabeled speech by the last proposal of a matched system."""
        proposal = self.train(system).with_name("proposal")
        run = self.models.run(self.folder_of(system), system.unlabeled)
        return run.make(run.lengths(proposal))


def as_file_name(words: str) -> str:
    """Replace characters that do not belong in a folder name by underscores."""
    return re.sub(r"[^\w.=,+\-]+", "_", words)
