"""A study: one corpus and one seed, with the models that all systems of the tables share, and the systems."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Literal

from priormatch.config import Settings, changed, flat
from priormatch.data.manifest import SUFFIX, join_manifests
from priormatch.decoding.fusion import feeds_back
from priormatch.experiments.systems import Labels, System, Unlabeled
from priormatch.experiments.trained import Models, Speech, recipe_of_models
from priormatch.matching.label_filters import LabelFilter
from priormatch.pipeline.label import ALL, label_cuts
from priormatch.pipeline.run import Run
from priormatch.pipeline.run_data import RunData
from priormatch.runs.stage import differences

Part = Literal["clean", "other"]
LABELS: dict[Part, LabelFilter] = {"clean": LabelFilter(keep_best=0.9), "other": LabelFilter(keep_best=0.4)}
"""What Kahn et al. keep of the labels of each part of the unlabeled speech."""


@dataclass(frozen=True)
class Plan:
    """The settings of a scale and seed: of most systems, and of the main results by their unlabeled speech."""

    settings: Settings
    main: Mapping[Unlabeled, Settings]
    known: dict[System, Settings] = field(default_factory=dict)

    def settings_of(self, system: System) -> Settings:
        """The settings that a system is trained with."""
        if system not in self.known:
            settings = changed(self.base_of(system), system.settings)
            weight = settings.matching.loss_weight * system.loss_scale
            self.known[system] = replace(settings, matching=replace(settings.matching, loss_weight=weight))
        return self.known[system]

    def base_of(self, system: System) -> Settings:
        """The settings that a system's own change: the scale's, or those of its main results."""
        return self.main[system.unlabeled] if system.main else self.settings

    def differs(self, system: System, setting: str) -> bool:
        """Whether a setting of a system is not what it has anyway."""
        value = attrgetter(setting.partition("=")[0])
        return value(self.settings_of(system)) != value(self.base_of(system))

    def name_of(self, system: System) -> str:
        """A name for a system's folder: what differs from the scale's settings, or from those of its main results."""
        if system.recorded:
            return system.recorded
        different = [each for each in system.settings if self.differs(system, each)]
        words = [
            system.kind,
            *([] if system.kind == "supervised" else [system.unlabeled]),
            *([system.labels] if system.labels else []),
            *(["ensemble"] if system.ensemble else []),
            *([f"by={system.labeler}"] if system.labeler else []),
            *([] if system.filtered else ["unfiltered"]),
            *(
                f"{each}{'best' if each.endswith('=') else ''}".removeprefix("matching.")
                for each in different
            ),
            *([f"loss_scale={system.loss_scale:g}"] if system.loss_scale != 1 else []),
            *(["longer"] if self.base_of(system) != self.settings else []),
        ]
        return as_file_name("-".join(words))

    def members(self, count: int) -> list[Settings]:
        """The settings of the models of an ensemble, which differ in their seeds."""
        seeds = [self.settings.training.seed + 1000 * number for number in range(count)]
        return [changed(self.settings, [f"training.seed={seed}"]) for seed in seeds]


@dataclass(frozen=True)
class Places:
    """A folder with the work of one scale and seed: what lies where in it, and with which settings it is made.

    What all systems share lies at its top: tokenizer, prior, supervised model; `others/NAME` has further models that
    a few systems need. `unlabeled/NAME` holds what belongs to a set of unlabeled speech, and `systems/NAME` a system,
    its transcripts and its figures.
    """

    folder: Path
    plan: Plan
    ensemble: int
    """How many models an ensemble has."""

    @property
    def settings(self) -> Settings:
        """The settings of most systems."""
        return self.plan.settings

    def settings_of(self, system: System) -> Settings:
        """The settings that a system is trained with."""
        return self.plan.settings_of(system)

    def folder_of(self, system: System) -> Path:
        """Where a system is trained."""
        return self.folder / "systems" / self.plan.name_of(system)

    def settings_of_models(self, system: System) -> list[Settings]:
        """The settings of the models that a system needs: those it starts from, and with them those of an ensemble."""
        members = self.plan.members(self.ensemble)[1:] if system.ensemble else []
        return [self.settings_of(system), *members]

    def folder_of_models(self, settings: Settings) -> Path:
        """Where models of these settings lie: at the top, or beside the shared ones, named by what differs."""
        wanted = recipe_of_models(settings)
        different, values = differences(recipe_of_models(self.settings), wanted), flat(wanted)
        if not different:
            return self.folder
        name = as_file_name("-".join(f"{each.partition('.')[2]}={values[each]}" for each in different))
        return self.folder / "others" / name

    def is_tuned(self, system: System) -> bool:
        """Whether a search for hypotheses is tuned: one with the prior, by no values of the row's own."""
        by_row = any(each.startswith("fusion.") for each in system.settings)
        return self.settings_of(system).matching.hypotheses == "asr_lm" and not by_row

    def feeds_back(self, system: System) -> bool:
        """Whether a search is tuned for hypotheses that come back in later ones."""
        return feeds_back(self.settings_of(system).matching)

    def source_of(self, system: System) -> Labels:
        """Whether its teachers hear by themselves or with the prior."""
        if system.labels is not None:
            return system.labels
        return "asr_lm" if self.settings_of(system).matching.reference_lengths == "asr_lm" else "asr"


@dataclass(frozen=True)
class Study(Places):
    """The same with its data; every method does what is not done yet."""

    data: RunData
    speech: Speech
    parts: Mapping[Part, tuple[Path, Path]]
    """The cuts of the clean and of the other part of all unlabeled speech, without and with their transcripts."""
    others: dict[Path, Models] = field(default_factory=dict)

    @cached_property
    def models(self) -> Models:
        """The models that most systems share."""
        return Models(self.folder, self.settings, self.data, self.speech)

    def models_with(self, settings: Settings) -> Models:
        """Models of these settings: the shared ones, or others beside them."""
        folder = self.folder_of_models(settings)
        if folder == self.folder:
            return self.models
        made = Models(folder, settings, self.data, self.speech, self.models)
        return self.others.setdefault(folder, made)

    def models_of(self, system: System) -> list[Models]:
        """The models that a system needs: those it starts from, and with them those of an ensemble."""
        return [self.models_with(each) for each in self.settings_of_models(system)]

    def teachers(self, system: System) -> list[tuple[Models, str]]:
        """Who hears the unlabeled speech for a system: models, and which copy of their recognizer."""
        models = self.models_of(system)
        if system.kind == "pseudo_labels":
            return [(each, system.labeler) for each in models]
        copy = self.settings_of(system).matching.proposal
        return [(models[0], copy)] if system.kind == "matched" else []

    def heard_by(self, teacher: Models, system: System) -> Path:
        """What a teacher hears for a system: transcripts to be labels, or reference lengths."""
        if system.labels is not None:
            return teacher.transcripts(system.labels, system.unlabeled, system.labeler)
        return teacher.lengths(system.unlabeled, self.settings_of(system))

    def needs(self, system: System) -> list[tuple[Models, Literal["prior", "supervised"]]]:
        """The models that must be there before a system can be trained; a topline begins from nothing."""
        if system.kind == "topline":
            return []
        models = self.models_of(system)
        needed: list[tuple[Models, Literal["prior", "supervised"]]] = []
        needed += [(each.hearing, "supervised") for each in models]
        if system.kind == "matched" or system.labels == "asr_lm":
            needed += [(each.judging, "prior") for each in models]
        return needed

    def fusion(self, system: System) -> Path | None:
        """Tuned values for the proposal's search with the prior, where a system has such hypotheses."""
        if not self.is_tuned(system):
            return None
        copy = self.settings_of(system).matching.proposal
        return self.models_of(system)[0].fusion(system.unlabeled, copy, self.feeds_back(system))

    def prepare(self, system: System) -> Path | None:
        """Make what a system shares with others: what it learns unlabeled speech by, labels or reference lengths."""
        heard = [self.heard_by(teacher, system) for teacher, _ in self.teachers(system)]
        if not heard:
            return None
        return self.labels(system, heard) if system.kind == "pseudo_labels" else heard[0]

    def train(self, system: System) -> Path:
        """Train a system."""
        taught_by, settings = self.prepare(system), self.settings_of(system)
        models, *_ = self.models_of(system)
        run = self.models.run(self.folder_of(system), system.unlabeled, settings)
        run.folder.mkdir(parents=True, exist_ok=True)
        if system.kind == "supervised":
            return run.longer(models.supervised, models.tokenizer)
        if taught_by is None:
            updates = settings.training.updates + settings.matching.updates
            return run.supervised("topline", models.tokenizer, updates, run.data.topline)
        if system.kind == "matched":
            return run.lpm(models.supervised, models.prior, taught_by, self.fusion(system))
        return run.pseudo_label(models.supervised, taught_by)

    def labels(self, system: System, transcripts: Sequence[Path]) -> Path:
        """The pseudo-labels of a system, each part of the speech filtered as Kahn et al. do, or none."""
        pieces, place = self.filtered_parts(system), self.place_of_labels(system)
        run = self.models.run_on(system.unlabeled, system.labeler)
        out = place / f"labeled{SUFFIX}"
        inputs = {f"unlabeled-{part}": cuts for part, (cuts, _) in pieces.items()}
        inputs |= {f"transcripts-{number}": path for number, path in enumerate(transcripts)}
        filters = {f"filter-{part}": keep for part, (_, keep) in pieces.items()}
        with run.stage(place.name, filters, inputs).work() as todo:
            if todo:
                made = {part: out.with_name(f"{part}{SUFFIX}") for part in pieces}
                for part, (cuts, keep) in pieces.items():
                    label_cuts(cuts, transcripts, made[part], keep)
                join_manifests(list(made.values()), out)
        return out

    def place_of_labels(self, system: System) -> Path:
        """Where the pseudo-labels of a system lie."""
        ends = [*(["ensemble"] if system.ensemble else []), *([] if system.filtered else ["unfiltered"])]
        folder = self.models.run_on(system.unlabeled, system.labeler).folder
        return folder / "-".join(["labels", str(system.labels), *ends])

    def filtered_parts(self, system: System) -> dict[str, tuple[Path, LabelFilter]]:
        """The speech to label, part by part, with the filter of each."""
        if not system.filtered:
            return {"whole": (self.speech[system.unlabeled][0], ALL)}
        parts: Sequence[Part] = ("clean",) if system.unlabeled == "clean" else ("clean", "other")
        return {part: (self.parts[part][0], LABELS[part]) for part in parts}

    def decode(self, system: System, part: str, with_prior: bool = False) -> dict[str, Path]:
        """Transcripts of the dev or of the test sets, greedy ones or with the prior, tuned for this system."""
        model = self.train(system)
        sets = self.data.validation if part == "dev" else self.data.test
        run = Run(self.folder_of(system), self.settings, replace(self.data, test=sets), self.folder)
        if not with_prior:
            return run.decode(part, model)
        prior = self.models.prior
        return run.decode(f"{part}-with-prior", model, prior, run.fusion(model, prior))

    def heard(self, system: System) -> Path:
        """Greedy transcripts of the unlabeled speech by the last proposal of a matched system."""
        proposal = self.train(system).with_name("proposal")
        return self.models.run(self.folder_of(system), system.unlabeled).lengths(proposal)


def as_file_name(words: str) -> str:
    """The same with an underscore for whatever does not belong into the name of a folder."""
    return re.sub(r"[^\w.=,+\-]+", "_", words)
