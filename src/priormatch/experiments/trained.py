"""Models shared by systems, and their transcripts of unlabeled speech."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from priormatch.config import Settings
from priormatch.experiments.table import Labels, Unlabeled
from priormatch.old_names import existing
from priormatch.pipeline import work
from priormatch.pipeline.recipe import recipe_of_prior, recipe_of_training
from priormatch.pipeline.run_data import RunData
from priormatch.pipeline.stages import Run
from priormatch.runs.stage import Wanted, plain

Speech = Mapping[Unlabeled, tuple[Path, Path | None]]
"""Unlabeled cuts, and the same cuts with transcripts if there are any."""


@dataclass(frozen=True)
class Models:
    """A tokenizer, a prior and a supervised model, whose training also keeps copies that other systems start from.

    Further models, which a few systems need, reuse from the `first` models of a study what their settings do not
    change: always the tokenizer, and either the prior or the supervised model.
    """

    folder: Path
    settings: Settings
    data: RunData
    speech: Speech
    first: "Models | None" = None
    trained: set[str] = field(default_factory=set)

    @property
    def own(self) -> list[str]:
        """The models that are trained here: `prior`, `supervised`, or both."""
        return trained_for(self.settings, (self.first or self).settings)

    @property
    def hearing(self) -> "Models":
        """The models that own the supervised model: these or the first ones."""
        return self if self.first is None or "supervised" in self.own else self.first

    @property
    def judging(self) -> "Models":
        """The models that own the prior: these or the first ones."""
        return self if self.first is None or "prior" in self.own else self.first

    @property
    def base(self) -> Run:
        """The run that trains them."""
        return Run(self.folder, self.settings, self.data, self.first.folder if self.first else None)

    def tokenizer(self) -> Path:
        """Train the tokenizer unless that is done, and return its folder."""
        if self.first is not None:
            return self.first.tokenizer()
        if self.base.pretrained_recognizer is None:
            self._once(self.base.tokenizer())
        return self.base.pieces

    def prior(self) -> Path:
        """Train the prior unless that is done, and return its folder."""
        if self.judging is not self:
            return self.judging.prior()
        self.tokenizer()
        for each in self.base.priors():
            self._once(each)
        return self.base.pretrained_prior or self.base.model("prior")

    def supervised(self) -> Path:
        """Train the supervised model unless that is done, and return its folder."""
        if self.hearing is not self:
            return self.hearing.supervised()
        self.tokenizer()
        return self._once(self.base.supervised())

    def _once(self, wanted: Wanted) -> Path:
        """Make a stage the first time only; one that is asked for again would report that it is reused."""
        if wanted.name not in self.trained:
            self.base.make(wanted)
            self.trained.add(wanted.name)
        return self.base.output(wanted)

    def greedy(self, unlabeled: Unlabeled, copy: str = "") -> Path:
        """Greedy transcripts of unlabeled speech by the supervised model or a kept copy."""
        if self.hearing is not self:
            return self.hearing.greedy(unlabeled, copy)
        run = self.run_on(unlabeled, copy)
        return run.make(run.lengths(work.kept_copy(self.supervised(), copy)))

    def transcripts(self, source: Labels, unlabeled: Unlabeled, copy: str = "") -> Path:
        """Transcripts of unlabeled speech by the supervised model or a kept copy, without or with the prior."""
        if source == "asr":
            return self.greedy(unlabeled, copy)
        run, model = self.run_on(unlabeled, copy), work.kept_copy(self.supervised(), copy)
        return run.make(run.lengths_with_prior(model, self.prior(), self.fusion(unlabeled, copy)))

    def fusion(self, unlabeled: Unlabeled, copy: str = "", for_matching: bool = False) -> Path:
        """Values for decoding or matching with the prior, tuned for the supervised model or a kept copy."""
        model = work.kept_copy(self.supervised(), copy)
        run = self.run(self.folder / "fusion" / (copy or "best"), unlabeled)
        return run.make(run.fusion(model, self.prior(), for_matching))

    def lengths(self, unlabeled: Unlabeled, settings: Settings) -> Path:
        """Reference lengths from the source in the settings, by the first proposal."""
        copy = settings.matching.proposal
        match settings.matching.reference_lengths:
            case "greedy":
                return self.greedy(unlabeled, copy)
            case "asr_lm":
                return self.transcripts("asr_lm", unlabeled, copy)
            case "speaking_rate" | "oracle":
                self.tokenizer()
                run = self.run_on(unlabeled, copy, settings)
                return run.make(run.lengths_without_hearing())

    def run_on(self, unlabeled: Unlabeled, copy: str = "", settings: Settings | None = None) -> Run:
        """The run for a model's transcripts of a set of unlabeled speech."""
        name = f"{unlabeled}-by-{copy}" if copy else unlabeled
        place = existing(self.folder / "unlabeled", self.folder / "unlabelled")
        return self.run(place / name, unlabeled, settings)

    def run(self, folder: Path, unlabeled: Unlabeled, settings: Settings | None = None) -> Run:
        """A run with the given unlabeled speech and the shared tokenizer."""
        cuts, transcribed = self.speech[unlabeled]
        data = replace(self.data, unlabeled=cuts, topline=transcribed)
        first = self if self.first is None else self.first
        return Run(folder, settings or self.settings, data, first.folder)


def trained_for(settings: Settings, first: Settings) -> list[str]:
    """The models to train for these settings: those that differ from the first ones; both if none differs."""
    mine, theirs = recipe_of_models(settings), recipe_of_models(first)
    return [name for name in mine if mine[name] != theirs[name]] or list(mine)


def recipe_of_models(settings: Settings) -> dict[str, Any]:
    """Settings that the prior and the supervised model of a study depend on; all priors have the first one's seed."""
    supervised = {name: plain(value) for name, value in recipe_of_training(settings).items()}
    return {"prior": recipe_of_prior(settings.prior), "supervised": supervised}
