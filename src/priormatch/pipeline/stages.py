"""The stages of a run, from settings alone: what each is made from, and which work of earlier runs it can use."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from priormatch.config import ORACLE, Settings, TokenizerSettings, changed
from priormatch.data.manifest import SUFFIX
from priormatch.decoding.fusion import feeds_back
from priormatch.decoding.tuning import MATCHING_RULE, NEVER_WORSE, is_worse_than_none, read_tuned
from priormatch.errors import UserError
from priormatch.old_names import existing_manifest
from priormatch.pipeline.recipe import (
    audible,
    recipe_of_fusion,
    recipe_of_matching,
    recipe_of_prior_stage,
    recipe_of_reading,
    recipe_of_schedule,
    recipe_of_tokenizer,
    recipe_of_training,
)
from priormatch.pipeline.run_data import RunData
from priormatch.progress import duration_text
from priormatch.recognizers.hub import identity_of, model_folder, origin_of
from priormatch.runs.results import BASE, START
from priormatch.runs.stage import MATCHING, Decision, Wanted, decide, kept_aside, name_of, recipe_of

FUSION = {False: "fusion", True: "fusion-matching"}
"""Names of the stages that tune the search with the prior, for decoding and for matching."""


def copy_of(model: Path, name: str) -> Path:
    """Where training keeps the copy `name` of a model; the best model if no name is given."""
    return model.parent / "kept" / name if name else model


def pinned(settings: Settings) -> Settings:
    """The settings with the commits of models on the Hub, so that all stages of a run read the same ones."""
    given = {
        "pretrained.recognizer": settings.pretrained.recognizer,
        "prior.pretrained": settings.prior.pretrained,
    }
    origins = {key: origin_of(model_folder(name).absolute()) for key, name in given.items() if name}
    return changed(settings, [f"{key}={'@'.join(each)}" for key, each in origins.items() if each is not None])


@dataclass(frozen=True)
class Stages:
    """What each stage of a run is made from; nothing is read but tuned values, and nothing is written."""

    folder: Path
    settings: Settings
    data: RunData
    shared: Path | None = None  # the folder with the tokenizer, if it is not the run's own

    @property
    def pretrained_recognizer(self) -> Path | None:
        """The Hugging Face recognizer that the settings name, downloaded if it is on the Hub; None if there is none."""
        given = self.settings.pretrained.recognizer
        return model_folder(given) if given else None

    @property
    def pieces(self) -> Path:
        """The folder of the tokenizer: that of the pretrained recognizer, or of a trained one."""
        return self.pretrained_recognizer or (self.shared or self.folder) / "tokenizer"

    @property
    def pieces_of_prior(self) -> Path:
        """The folder of the prior's tokenizer: the recognizer's, or one of its own."""
        return self.folder / "tokenizer-prior" if self.settings.prior.pieces else self.pieces

    def tokenizer(self) -> Wanted:
        """The tokenizer of the recognizer."""
        wanted = self.settings.tokenizer
        source = self.data.labeled if wanted.source == "transcripts" else self.data.text
        return Wanted("tokenizer", {"tokenizer": recipe_of_tokenizer(wanted)}, {"source": source})

    def tokenizer_of_prior(self) -> Wanted:
        """The prior's own tokenizer."""
        wanted = TokenizerSettings(self.settings.prior.pieces, "text")
        recipe = {"tokenizer": recipe_of_tokenizer(wanted)}
        return Wanted("tokenizer-prior", recipe, {"source": self.data.text})

    def prior(self) -> Wanted:
        """The prior."""
        inputs = {"text": self.data.text, "held_out": self.data.held_out_text}
        if self.settings.prior.kind == "conv":
            inputs["tokenizer"] = self.pieces_of_prior
        return Wanted("prior", recipe_of_prior_stage(self.settings), inputs)

    @property
    def pretrained_prior(self) -> Path | None:
        """The trained prior that the settings name, downloaded if it is on the Hub; None if the run trains one."""
        given = self.settings.prior.pretrained
        return model_folder(given) if given else None

    def read(self, prior: Path) -> tuple[dict[str, Any], dict[str, Path]]:
        """What a stage records of the prior that it uses, as settings and inputs: of a pretrained one what it is."""
        if self.pretrained_prior is None:
            return {}, {"prior": prior}
        return {"prior": identity_of(prior)}, {}

    def supervised(self, name: str, updates: int, more: Path | None = None) -> Wanted:
        """A recognizer trained on the labeled speech, and on `more` if given."""
        inputs = {"labeled": self.data.labeled, "tokenizer": self.pieces, **self.data.validation}
        if more is not None:
            inputs["more"] = more
        return Wanted(name, recipe_of_training(self.settings) | {"updates": updates}, inputs)

    def longer(self, start: Path) -> Wanted:
        """A recognizer trained further on the labeled speech."""
        inputs = {"labeled": self.data.labeled, "start": start, **self.data.validation}
        return Wanted("supervised-longer", recipe_of_schedule(self.settings), inputs)

    def lengths(self, model: Path) -> Wanted:
        """Greedy transcripts of the unlabeled speech."""
        inputs = {"model": model, "unlabeled": self.data.unlabeled}
        return Wanted("lengths", {"audio": audible(self.settings)}, inputs)

    def labels(self, transcripts: Path) -> Wanted:
        """The unlabeled speech labeled with transcripts."""
        return Wanted("labels", {}, {"unlabeled": self.data.unlabeled, "transcripts": transcripts})

    def fusion(self, model: Path, prior: Path, for_matching: bool) -> Wanted:
        """Tuned values for the search with the prior."""
        used, read = self.read(prior)
        recipe = {
            "fusion": recipe_of_fusion(self.settings.fusion),
            **used,
            **recipe_of_reading(self.settings.prior),
            "audio": audible(self.settings),
            "utterances": self.settings.training.validate_on,
            **({"rule": MATCHING_RULE} if for_matching else {}),
        }
        inputs = {"model": model, **read, **self.data.validation}
        older = Wanted(FUSION[for_matching], recipe, inputs)
        return older if self.is_good(older) else replace(older, settings={**recipe, "none": NEVER_WORSE})

    def is_good(self, older: Wanted) -> bool:
        """Whether an earlier version has tuned values that are no worse than none: they are used as they are."""
        folder = self.folder / older.name
        found = decide(folder, recipe_of(older.settings, older.inputs), kept_aside(folder))
        return (
            found.finished and found.place is not None and not is_worse_than_none(found.place / "fusion.yaml")
        )

    def lengths_with_prior(self, model: Path, prior: Path, fusion: Path) -> Wanted:
        """Transcripts of the unlabeled speech, decoded with the prior."""
        used, read = self.read(prior)
        inputs = {"model": model, **read, "fusion": fusion, "unlabeled": self.data.unlabeled}
        return Wanted("lengths-asr_lm", {"audio": audible(self.settings), **used}, inputs)

    def lengths_without_hearing(self) -> Wanted:
        """Reference lengths from the speaking rate or the true transcripts, as set."""
        source, data = self.settings.matching.reference_lengths, self.data
        known = data.labeled if source == "speaking_rate" else data.topline
        if known is None:
            raise UserError(
                "matching.reference_lengths=oracle needs the transcripts of the unlabeled speech: give"
                " topline=CUTS, or choose another source of reference lengths"
            )
        inputs = {"known": known, "unlabeled": data.unlabeled, "tokenizer": self.pieces}
        return Wanted(f"lengths-{source}", {}, inputs)

    def pseudo_label(self, model: Path, labels: Path) -> Wanted:
        """A recognizer trained on fixed pseudo-labels."""
        inputs = {"model": copy_of(model, self.settings.matching.start), "labeled": self.data.labeled}
        inputs |= {"pseudo_labeled": labels, **self.data.validation}
        return Wanted("pseudo_label", recipe_of_schedule(self.settings), inputs)

    def lpm(self, model: Path, prior: Path, lengths: Path, settings: Settings) -> Wanted:
        """Local prior matching; `settings` have the tuned values if the proposal searches with the prior."""
        matching, data = settings.matching, self.data
        used, read = self.read(self.judge(prior))
        inputs = {
            "model": copy_of(model, matching.start),
            "proposal": copy_of(model, matching.proposal),
            **read,
            "lengths": lengths,
            "labeled": data.labeled,
            "unlabeled": data.unlabeled,
            **data.validation,
        }
        if matching.prior == ORACLE and data.topline is not None:
            inputs["transcripts"] = data.topline
        return Wanted(MATCHING, recipe_of_matching(settings) | used, inputs)

    def judge(self, prior: Path) -> Path:
        """The copy of the prior that weighs hypotheses; an oracle has none, so the prior itself is for the rest."""
        name = self.settings.matching.prior
        return copy_of(prior, "" if name == ORACLE else name)

    def decoded(
        self, system: str, model: Path, prior: Path | None = None, fusion: Path | None = None
    ) -> Wanted:
        """Transcripts of the test sets, decoded greedily or with a prior and tuned values."""
        inputs = {"model": model, **{f"test/{name}": path for name, path in self.data.test.items()}}
        if prior is not None and fusion is not None:
            inputs |= {"prior": prior, "fusion": fusion}
        return Wanted(f"decoded/{system}", {"audio": audible(self.settings)}, inputs)

    def all(self) -> Iterator[Wanted]:
        """All stages of `priormatch run` with these settings but the data, in its order."""
        settings, matching = self.settings, self.settings.matching
        if self.pretrained_recognizer is None:
            yield self.tokenizer()
        yield self.supervised("supervised", settings.training.updates)
        given = self.pretrained_prior
        if given is None and settings.prior.pieces:
            yield self.tokenizer_of_prior()
        if given is None:
            yield self.prior()
        prior, first = given or self.folder / "prior" / "model", self.folder / "supervised" / "model"
        proposal, judge = copy_of(first, matching.proposal), self.judge(prior)
        yield self.lengths(proposal)
        systems = {BASE: first}
        if settings.longer_supervised:
            systems = {START: first, BASE: self.folder / "supervised-longer" / "model"}
        greedy = self.folder / "lengths" / "lengths.jsonl"
        yield from self.references(proposal, judge)
        yield from self.matching(first, prior)
        if settings.pseudo_labels:
            yield self.labels(greedy)
            yield self.pseudo_label(first, existing_manifest(self.folder / "labels", "labeled", SUFFIX))
            systems["pseudo_label"] = self.folder / "pseudo_label" / "model"
        if settings.longer_supervised:
            yield self.longer(first)
        systems["lpm"] = self.folder / MATCHING / "model"
        if self.data.topline is not None:
            yield self.supervised("topline", settings.training.updates + matching.updates, self.data.topline)
            systems["topline"] = self.folder / "topline" / "model"
        for system, model in systems.items():
            yield self.decoded(system, model)

    def references(self, model: Path, prior: Path) -> Iterator[Wanted]:
        """The stages of the reference lengths after the greedy transcripts, if any."""
        match self.settings.matching.reference_lengths:
            case "asr_lm":
                yield self.fusion(model, prior, False)
                yield self.lengths_with_prior(model, prior, self.folder / FUSION[False] / "fusion.yaml")
            case "speaking_rate" | "oracle":
                yield self.lengths_without_hearing()

    @property
    def reference_lengths(self) -> Path:
        """The file of the reference lengths."""
        source = self.settings.matching.reference_lengths
        return self.folder / ("lengths" if source == "greedy" else f"lengths-{source}") / "lengths.jsonl"

    def matching(self, model: Path, prior: Path) -> Iterator[Wanted]:
        """Matching, and before it the tuning of a proposal that searches with the prior."""
        matching, settings, after = self.settings.matching, self.settings, ""
        if matching.hypotheses == "asr_lm":
            after = FUSION[feeds_back(matching)]
            if not (
                after == FUSION[False] and matching.reference_lengths == "asr_lm"
            ):  # that one is there already
                yield self.fusion(copy_of(model, matching.proposal), self.judge(prior), feeds_back(matching))
            tuned = self.folder / after / "fusion.yaml"
            settings = changed(settings, read_tuned(tuned)) if tuned.is_file() else settings
        yield replace(self.lpm(model, prior, self.reference_lengths, settings), after=after)


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
