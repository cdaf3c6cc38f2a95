"""Models shared by systems, and their transcripts of unlabeled speech."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from priormatch.config import Settings
from priormatch.data.tokenizer import Tokenizer
from priormatch.experiments.table import Labels, Unlabeled
from priormatch.old_names import existing
from priormatch.pipeline import work
from priormatch.pipeline.recipe import recipe_of_prior, recipe_of_training
from priormatch.pipeline.run import Run
from priormatch.pipeline.run_data import RunData
from priormatch.runs.stage import plain

Result = TypeVar("Result")

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
    trained: dict[str, Any] = field(default_factory=dict)

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

    def tokenizer(self) -> Tokenizer:
        """Train the tokenizer unless that is done, and return it."""
        if self.first is not None:
            return self.first.tokenizer()
        return self._once("tokenizer", self.base.tokenizer)

    def prior(self) -> Path:
        """Train the prior unless that is done, and return its folder."""
        if self.judging is not self:
            return self.judging.prior()
        return self._once("prior", lambda: self.base.prior(self.tokenizer()))

    def supervised(self) -> Path:
        """Train the supervised model unless that is done, and return its folder."""
        if self.hearing is not self:
            return self.hearing.supervised()
        updates = self.settings.training.updates
        return self._once("supervised", lambda: self.base.supervised("supervised", self.tokenizer(), updates))

    def _once(self, name: str, train: Callable[[], Result]) -> Result:
        """Call `train` the first time only; a stage that is asked for again would report that it is reused."""
        if name not in self.trained:
            self.trained[name] = train()
        return cast(Result, self.trained[name])

    def greedy(self, unlabeled: Unlabeled, copy: str = "") -> Path:
        """Greedy transcripts of unlabeled speech by the supervised model or a kept copy."""
        if self.hearing is not self:
            return self.hearing.greedy(unlabeled, copy)
        return self.run_on(unlabeled, copy).lengths(work.kept_copy(self.supervised(), copy))

    def transcripts(self, source: Labels, unlabeled: Unlabeled, copy: str = "") -> Path:
        """Transcripts of unlabeled speech by the supervised model or a kept copy, without or with the prior."""
        if source == "asr":
            return self.greedy(unlabeled, copy)
        model = work.kept_copy(self.supervised(), copy)
        return self.run_on(unlabeled, copy).transcripts_with_prior(
            model, self.prior(), self.fusion(unlabeled, copy)
        )

    def fusion(self, unlabeled: Unlabeled, copy: str = "", for_matching: bool = False) -> Path:
        """Values for decoding or matching with the prior, tuned for the supervised model or a kept copy."""
        model = work.kept_copy(self.supervised(), copy)
        run = self.run(self.folder / "fusion" / (copy or "best"), unlabeled)
        return run.fusion(model, self.prior(), for_matching)

    def lengths(self, unlabeled: Unlabeled, settings: Settings) -> Path:
        """Reference lengths from the source in the settings, by the first proposal."""
        copy = settings.matching.proposal
        match settings.matching.reference_lengths:
            case "greedy":
                return self.greedy(unlabeled, copy)
            case "asr_lm":
                return self.transcripts("asr_lm", unlabeled, copy)
            case "speaking_rate" | "oracle":
                run = self.run_on(unlabeled, copy, settings)
                return run.lengths_without_hearing(self.tokenizer())

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
