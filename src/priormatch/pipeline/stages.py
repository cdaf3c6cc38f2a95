"""The stages of a run: what each is made from, and its work."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from priormatch.config import ORACLE, Settings, TokenizerSettings, changed
from priormatch.data.corpus import durations_of, ids_of, open_cuts, read_cuts
from priormatch.data.manifest import SUFFIX
from priormatch.data.normalizer import normalizer_of
from priormatch.data.text_files import SentenceFiles
from priormatch.decoding.fusion import feeds_back
from priormatch.decoding.tuning import MATCHING_RULE, NEVER_WORSE, is_worse_than_none, read_tuned
from priormatch.errors import UserError
from priormatch.matching.reference_lengths import lengths_by_rate, oracle_lengths, pieces_a_second
from priormatch.old_names import existing_manifest
from priormatch.pipeline import work
from priormatch.pipeline.label import ALL, label_cuts
from priormatch.pipeline.match import train_on_pseudo_labels
from priormatch.pipeline.match_files import MatchFiles
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
from priormatch.progress import say
from priormatch.recognizers.hub import identity_of, model_folder, origin_of
from priormatch.recognizers.load import load_tokenizer
from priormatch.runs.results import BASE, START
from priormatch.runs.stage import DECODED, MATCHING, Stage, Wanted, decide, kept_aside, recipe_of

FUSION = {False: "fusion", True: "fusion-matching"}
"""Names of the stages that tune the search with the prior, for decoding and for matching."""
LENGTHS = "lengths.jsonl"
COPIES = ("model", "proposal", "prior")
"""Inputs of stages that may be copies kept during a training."""


def pinned(settings: Settings) -> Settings:
    """The settings with the commits of models on the Hub, so that all stages of a run read the same ones."""
    given = {
        "pretrained.recognizer": settings.pretrained.recognizer,
        "prior.pretrained": settings.prior.pretrained,
    }
    origins = {key: origin_of(model_folder(name).absolute()) for key, name in given.items() if name}
    return changed(settings, [f"{key}={'@'.join(each)}" for key, each in origins.items() if each is not None])


@dataclass(frozen=True)
class Run:
    """The folder, settings and data of a run, and the stages `made` so far.

    Most methods describe a stage, or several in order; they read nothing but tuned values, and write nothing. `make`
    makes a stage that is described.
    """

    folder: Path
    settings: Settings
    data: RunData
    shared: Path | None = None  # the folder with the tokenizer, if it is not the run's own
    made: dict[str, Stage] = field(default_factory=dict)

    def make(self, wanted: Wanted) -> Path:
        """Make a stage unless it is finished, and return its output; if its settings changed, old work is set aside."""
        for name in COPIES:
            path = wanted.inputs.get(name)
            if path is not None and path.parent.name == work.KEPT:
                work.require_kept(path)
        stage = Stage(self.folder / wanted.name, wanted.settings, wanted.inputs, keep_old=True)
        self.made[wanted.name] = stage
        with stage.work(wanted.together) as todo:
            if todo:
                wanted.make(stage.folder)
        return self.output(wanted)

    def output(self, wanted: Wanted) -> Path:
        """Where a stage has its output."""
        return self.folder / wanted.name / wanted.output

    def model(self, stage: str) -> Path:
        """Where a stage has its model."""
        return self.folder / stage / "model"

    def all(self) -> Iterator[Wanted]:
        """All stages of `priormatch run` with these settings but the data, in its order."""
        yield from self.trainings()
        for system, model in self.systems.items():
            yield self.decoded(system, model)

    @property
    def systems(self) -> dict[str, Path]:
        """The models of the systems to score."""
        stages = {START: "supervised", BASE: "supervised-longer"}
        if not self.settings.longer_supervised:
            stages = {BASE: "supervised"}
        more = {
            "pseudo_label": self.settings.pseudo_labels,
            MATCHING: True,
            "topline": self.data.topline is not None,
        }
        stages |= {name: name for name, trained in more.items() if trained}
        return {system: self.model(stage) for system, stage in stages.items()}

    def trainings(self) -> Iterator[Wanted]:
        """The stages before the systems are scored.

        They are found one by one as they are made, because tuned values become settings of matching.
        """
        if self.pretrained_recognizer is None:
            yield self.tokenizer()
        yield self.supervised()
        yield from self.priors()
        first, prior = self.model("supervised"), self.pretrained_prior or self.model("prior")
        proposal, judge = work.copy_of(first, self.settings.matching.proposal), self.judge(prior)
        greedy = self.lengths(proposal)
        yield greedy
        yield from self.references(proposal, judge)
        yield from self.matching(first, prior)
        if self.settings.pseudo_labels:
            labels = self.labels(self.output(greedy))
            yield labels
            yield self.pseudo_label(first, self.output(labels))
        if self.settings.longer_supervised:
            yield self.longer(first)
        if self.data.topline is not None:
            yield self.topline()

    @property
    def pretrained_recognizer(self) -> Path | None:
        """The Hugging Face recognizer that the settings name, downloaded if it is on the Hub; None if there is none."""
        given = self.settings.pretrained.recognizer
        return model_folder(given) if given else None

    @property
    def pretrained_prior(self) -> Path | None:
        """The trained prior that the settings name, downloaded if it is on the Hub; None if the run trains one."""
        given = self.settings.prior.pretrained
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
        """The tokenizer of the recognizer, from the transcripts or the text."""
        wanted = self.settings.tokenizer
        return self._tokenizer(
            "tokenizer", wanted, self.data.labeled if wanted.source == "transcripts" else self.data.text
        )

    def _tokenizer(self, name: str, wanted: TokenizerSettings, source: Path) -> Wanted:
        def make(out: Path) -> None:
            from_text = wanted.source == "text"
            sentences = SentenceFiles([source]) if from_text else work.transcripts_of(source)
            work.make_tokenizer(sentences, wanted, out, normalizer_of(self.settings.language))

        recipe = {"tokenizer": recipe_of_tokenizer(wanted)}
        return Wanted(name, recipe, {"source": source}, make, output="")

    def priors(self) -> Iterator[Wanted]:
        """The prior, and before it its tokenizer if it has one of its own; nothing if it is pretrained."""
        if self.pretrained_prior is not None:
            return
        if self.settings.prior.pieces:
            wanted = TokenizerSettings(self.settings.prior.pieces, "text")
            yield self._tokenizer("tokenizer-prior", wanted, self.data.text)
        yield self.prior()

    def prior(self) -> Wanted:
        """The prior."""
        settings, text, held_out = self.settings, self.data.text, self.data.held_out_text
        recipe, inputs = recipe_of_prior_stage(settings), {"text": text, "held_out": held_out}
        if settings.prior.kind == "ngram":
            return Wanted("prior", recipe, inputs, partial(work.estimate_prior, text, held_out, settings))
        pieces = self.pieces_of_prior

        def make(out: Path) -> None:
            tokenizer = load_tokenizer(pieces, settings.pretrained)
            work.train_prior(text, held_out, tokenizer, settings, out, self.folder)

        return Wanted("prior", recipe, {**inputs, "tokenizer": pieces}, make, together=True)

    def supervised(self) -> Wanted:
        """A recognizer, new or pretrained, trained on the labeled speech."""
        return self._supervised("supervised", self.settings.training.updates)

    def topline(self) -> Wanted:
        """A recognizer trained on all speech with its true transcripts, for as many updates as the other systems."""
        updates = self.settings.training.updates + self.settings.matching.updates
        more = {} if self.data.topline is None else {"more": self.data.topline}
        return self._supervised("topline", updates, more)

    def _supervised(self, name: str, updates: int, more: Mapping[str, Path] | None = None) -> Wanted:
        recipe = recipe_of_training(self.settings) | {"updates": updates}
        inputs = {
            "labeled": self.data.labeled,
            "tokenizer": self.pieces,
            **self.data.validation,
            **(more or {}),
        }
        labeled = [self.data.labeled, *(more or {}).values()]

        def make(out: Path) -> None:
            sets, log = self.data.validation, self.folder
            work.train_supervised(labeled, sets, self.pieces, self.settings, out, log, updates=updates)

        return Wanted(name, recipe, inputs, make, together=True)

    def longer(self, start: Path) -> Wanted:
        """A recognizer trained further, for as many updates as matching, on the labeled speech only."""
        inputs = {"labeled": self.data.labeled, "start": start, **self.data.validation}

        def make(out: Path) -> None:
            labeled, sets, log = [self.data.labeled], self.data.validation, self.folder
            work.train_supervised(labeled, sets, self.pieces, self.settings, out, log, start=start)

        return Wanted("supervised-longer", recipe_of_schedule(self.settings), inputs, make, together=True)

    def lengths(self, model: Path) -> Wanted:
        """Greedy transcripts of the unlabeled speech, which give the reference lengths."""
        settings, speech = self.settings, self.data.unlabeled
        return Wanted(
            "lengths",
            {"audio": audible(settings)},
            {"model": model, "unlabeled": speech},
            lambda out: work.decode_to(model, speech, settings, out / LENGTHS),
            LENGTHS,
            together=True,
        )

    def references(self, model: Path, prior: Path) -> Iterator[Wanted]:
        """The stages of the reference lengths after the greedy transcripts, if any."""
        match self.settings.matching.reference_lengths:
            case "asr_lm":
                tuned = self.fusion(model, prior)
                yield tuned
                yield self.lengths_with_prior(model, prior, self.output(tuned))
            case "speaking_rate" | "oracle":
                yield self.lengths_without_hearing()

    @property
    def reference_lengths(self) -> Path:
        """The file of the reference lengths."""
        source = self.settings.matching.reference_lengths
        return self.folder / ("lengths" if source == "greedy" else f"lengths-{source}") / LENGTHS

    def lengths_with_prior(self, model: Path, prior: Path, fusion: Path) -> Wanted:
        """Transcripts of the unlabeled speech, decoded with the prior."""
        speech = self.data.unlabeled

        def make(out: Path) -> None:
            tuned = changed(self.settings, read_tuned(fusion))
            work.decode_to(model, speech, tuned, out / LENGTHS, prior=prior)

        used, read = self.read(prior)
        recipe = {"audio": audible(self.settings), **used}
        inputs = {"model": model, **read, "fusion": fusion, "unlabeled": speech}
        return Wanted("lengths-asr_lm", recipe, inputs, make, LENGTHS, together=True)

    def lengths_without_hearing(self) -> Wanted:
        """Reference lengths from the speaking rate or the true transcripts, as set."""
        source, unlabeled = self.settings.matching.reference_lengths, self.data.unlabeled
        name = f"lengths-{source}"
        known = self.data.labeled if source == "speaking_rate" else self.data.topline
        if known is None:
            raise UserError(
                "matching.reference_lengths=oracle needs the transcripts of the unlabeled speech: give"
                " topline=CUTS, or choose another source of reference lengths"
            )

        def make(out: Path) -> None:
            tokenizer = load_tokenizer(self.pieces, self.settings.pretrained)
            if source == "oracle":
                lengths = oracle_lengths(read_cuts(known), tokenizer)
            else:
                rate = pieces_a_second(read_cuts(known), tokenizer)
                say(f"{name}: {rate:.2f} {tokenizer.unit}s per second")
                cuts = open_cuts(unlabeled)
                lengths = lengths_by_rate(ids_of(cuts), durations_of(cuts), rate)
            work.write_lengths(lengths, out / LENGTHS)

        inputs = {"known": known, "unlabeled": unlabeled, "tokenizer": self.pieces}
        return Wanted(name, {}, inputs, make, LENGTHS)

    def read(self, prior: Path) -> tuple[dict[str, Any], dict[str, Path]]:
        """What a stage records of the prior that it uses, as settings and inputs: of a pretrained one what it is."""
        if self.pretrained_prior is None:
            return {}, {"prior": prior}
        return {"prior": identity_of(prior)}, {}

    def judge(self, prior: Path) -> Path:
        """The copy of the prior that weighs hypotheses; an oracle has none, so the prior itself is for the rest."""
        name = self.settings.matching.prior
        return work.copy_of(prior, "" if name == ORACLE else name)

    def fusion(self, model: Path, prior: Path, for_matching: bool = False) -> Wanted:
        """Tuned values for the search with the prior, for decoding or for matching."""

        def make(out: Path) -> None:
            from priormatch.pipeline.tune import tune

            tune(model, prior, self.data.validation, self.settings, out / "fusion.yaml", for_matching)

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
        older = Wanted(FUSION[for_matching], recipe, inputs, make, "fusion.yaml", together=True)
        return older if self.is_good(older) else replace(older, settings={**recipe, "none": NEVER_WORSE})

    def is_good(self, older: Wanted) -> bool:
        """Whether an earlier version has tuned values that are no worse than none: they are used as they are."""
        folder = self.folder / older.name
        found = decide(folder, recipe_of(older.settings, older.inputs), kept_aside(folder))
        return (
            found.finished and found.place is not None and not is_worse_than_none(found.place / older.output)
        )

    def tuned(self, fusion: Path | None) -> Settings:
        """The settings with the tuned values of a file, if there is one."""
        return (
            self.settings
            if fusion is None or not fusion.is_file()
            else changed(self.settings, read_tuned(fusion))
        )

    def matching(self, model: Path, prior: Path) -> Iterator[Wanted]:
        """Matching, and before it the tuning of a proposal that searches with the prior."""
        matching = self.settings.matching
        if matching.hypotheses != "asr_lm":
            yield self.lpm(model, prior, self.reference_lengths)
            return
        proposal = work.copy_of(model, matching.proposal)
        tuning = self.fusion(proposal, self.judge(prior), feeds_back(matching))
        if feeds_back(matching) or matching.reference_lengths != "asr_lm":  # else it is there already
            yield tuning
        matched = self.lpm(model, prior, self.reference_lengths, self.output(tuning))
        yield replace(matched, after=tuning.name)

    def lpm(self, model: Path, prior: Path, lengths: Path, fusion: Path | None = None) -> Wanted:
        """Local prior matching from `model`, or from copies kept during its training.

        `fusion` holds the tuned values if the proposal searches with the prior.
        """
        settings, data = self.tuned(fusion), self.data
        matching = settings.matching
        start, judge = work.copy_of(model, matching.start), self.judge(prior)
        proposal = work.copy_of(model, matching.proposal)

        def make(out: Path) -> None:
            files = MatchFiles(
                model=start,
                labeled=data.labeled,
                unlabeled=data.unlabeled,
                validation=data.validation,
                prior=judge,
                lengths=lengths,
                proposal=proposal,
                transcribed=data.topline,
            )
            files.job(settings, out, self.folder).run()

        used, read = self.read(judge)
        inputs = {
            "model": start,
            "proposal": proposal,
            **read,
            "lengths": lengths,
            "labeled": data.labeled,
            "unlabeled": data.unlabeled,
            **data.validation,
        }
        if matching.prior == ORACLE and data.topline is not None:
            inputs["transcripts"] = data.topline
        return Wanted(MATCHING, recipe_of_matching(settings) | used, inputs, make, together=True)

    def labels(self, transcripts: Path) -> Wanted:
        """The unlabeled speech labeled with transcripts; utterances with an empty one are left out."""
        speech = self.data.unlabeled
        name = existing_manifest(self.folder / "labels", "labeled", SUFFIX).name
        return Wanted(
            "labels",
            {},
            {"unlabeled": speech, "transcripts": transcripts},
            lambda out: label_cuts(speech, [transcripts], out / name, ALL),
            name,
        )

    def pseudo_label(self, model: Path, labels: Path) -> Wanted:
        """A recognizer trained on fixed pseudo-labels, from `model` or from the copy that matching starts from."""
        settings, data = self.settings, self.data
        start = work.copy_of(model, settings.matching.start)

        def make(out: Path) -> None:
            sets = data.validation
            train_on_pseudo_labels(
                start, data.labeled, labels, sets, settings=settings, out=out, log=self.folder
            )

        inputs = {"model": start, "labeled": data.labeled, "pseudo_labeled": labels, **data.validation}
        return Wanted("pseudo_label", recipe_of_schedule(settings), inputs, make, together=True)

    def decoded(
        self, system: str, model: Path, prior: Path | None = None, fusion: Path | None = None
    ) -> Wanted:
        """Transcripts of the test sets, decoded greedily or with a prior and tuned values."""

        def make(out: Path) -> None:
            settings = self.tuned(fusion)
            for name, cuts in self.data.test.items():
                work.decode_to(model, cuts, settings, out / f"{name}.jsonl", prior=prior, words=True)

        inputs = {"model": model, **{f"test/{name}": path for name, path in self.data.test.items()}}
        if prior is not None and fusion is not None:
            inputs |= {"prior": prior, "fusion": fusion}
        recipe = {"audio": audible(self.settings)}
        return Wanted(f"{DECODED}/{system}", recipe, inputs, make, output="", together=True)

    def decode(
        self, system: str, model: Path, prior: Path | None = None, fusion: Path | None = None
    ) -> dict[str, Path]:
        """Transcribe the test sets; return the transcripts of each."""
        out = self.make(self.decoded(system, model, prior, fusion))
        return {name: out / f"{name}.jsonl" for name in self.data.test}
