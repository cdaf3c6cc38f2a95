"""`priormatch run`: all stages from data to a table of results."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from priormatch.config import ORACLE, Settings, TokenizerSettings, changed, to_yaml
from priormatch.data.corpus import durations_of, ids_of, open_cuts, read_cuts
from priormatch.data.manifest import SUFFIX
from priormatch.data.normalizer import normalizer_of
from priormatch.data.text_files import SentenceFiles
from priormatch.data.tokenizer import Tokenizer
from priormatch.decoding.fusion import feeds_back
from priormatch.decoding.tuning import read_tuned
from priormatch.device import find_device, use_threads
from priormatch.distributed import is_main, ranks
from priormatch.errors import Refused, UserError
from priormatch.files import replace_text
from priormatch.matching.reference_lengths import lengths_by_rate, oracle_lengths, pieces_a_second
from priormatch.old_names import existing_manifest
from priormatch.pipeline import work
from priormatch.pipeline.cards import add_results
from priormatch.pipeline.label import ALL, label_cuts
from priormatch.pipeline.match import MatchJob, require_inputs, require_recordings, train_on_pseudo_labels
from priormatch.pipeline.pool import Beside
from priormatch.pipeline.preflight import require_sound
from priormatch.pipeline.run_data import (
    RunData,
    demo_data,
    demo_stage,
    make_demo_data,
    make_own_data,
    own_data,
    own_stage,
)
from priormatch.pipeline.run_results import facts_of, finish, validation_size
from priormatch.pipeline.stages import FUSION, Stages, decisions, in_words, pinned
from priormatch.progress import say
from priormatch.recognizers.load import load_tokenizer
from priormatch.runs.lock import RUN_LOCK, alone_in
from priormatch.runs.results import BASE, START, score_systems
from priormatch.runs.stage import DECODED, MATCHING, Decision, Stage, Wanted, name_of, put_aside
from priormatch.runs.verdict import LITTLE_VALIDATION, too_little_validation, verdict
from priormatch.training.checkpoint import FILE as CHECKPOINT
from priormatch.training.checkpoint import update_of
from priormatch.training.wandb_log import wandb_plan


@dataclass(frozen=True)
class Run:
    """The folder, settings and data of a run; each method is a stage, which is skipped if nothing changed."""

    folder: Path
    settings: Settings
    data: RunData
    shared: Path | None = None  # the folder with the tokenizer, if it is not the run's own
    stages: dict[str, Stage] = field(default_factory=dict)

    @property
    def wanted(self) -> Stages:
        """What the stages are made from."""
        return Stages(self.folder, self.settings, self.data, self.shared)

    def stage(self, name: str, settings: Mapping[str, Any], inputs: Mapping[str, Path]) -> Stage:
        """A stage in the run's folder; if its settings changed, the old results are kept under another name."""
        self.stages[name] = Stage(self.folder / name, settings, inputs, keep_old=True)
        return self.stages[name]

    def begin(self, wanted: Wanted) -> Stage:
        """The stage that makes what is wanted."""
        return self.stage(wanted.name, wanted.settings, wanted.inputs)

    def tokenizer(self) -> Tokenizer:
        """Train the tokenizer on the transcripts or the text, unless the recognizer is pretrained."""
        wanted, out = self.settings.tokenizer, self.wanted.pieces
        if self.wanted.pretrained_recognizer is not None:
            return load_tokenizer(out, self.settings.pretrained)
        with self.begin(self.wanted.tokenizer()).work() as todo:
            if todo:
                from_text = wanted.source == "text"
                source = self.data.text if from_text else self.data.labeled
                sentences = SentenceFiles([source]) if from_text else work.transcripts_of(source)
                work.make_tokenizer(sentences, wanted, out, normalizer_of(self.settings.language))
        return Tokenizer.load(out)

    def tokenizer_of_prior(self) -> Path:
        """The folder of the prior's tokenizer: the recognizer's, or one of its own trained on the text."""
        out = self.wanted.pieces_of_prior
        if out == self.wanted.pieces:
            return out
        with self.begin(self.wanted.tokenizer_of_prior()).work() as todo:
            if todo:
                wanted = TokenizerSettings(self.settings.prior.pieces, "text")
                normalizer = normalizer_of(self.settings.language)
                work.make_tokenizer(SentenceFiles([self.data.text]), wanted, out, normalizer)
        return out

    def prior(self, tokenizer: Tokenizer) -> Path:
        """Train the prior, with the recognizer's tokenizer unless it has one of its own or reads words.

        A pretrained one is used as it is.
        """
        if (given := self.wanted.pretrained_prior) is not None:
            return given
        out, text, held_out = self.folder / "prior", self.data.text, self.data.held_out_text
        if self.settings.prior.kind == "ngram":
            with self.begin(self.wanted.prior()).work() as todo:
                if todo:
                    work.estimate_prior(text, held_out, self.settings, out)
            return out / "model"
        pieces = self.tokenizer_of_prior()
        with self.begin(self.wanted.prior()).work(together=True) as todo:
            if todo:
                tokenizer = tokenizer if pieces == self.wanted.pieces else Tokenizer.load(pieces)
                work.train_prior(text, held_out, tokenizer, self.settings, out, self.folder)
        return out / "model"

    def supervised(self, name: str, tokenizer: Tokenizer, updates: int, more: Path | None = None) -> Path:
        """Train a recognizer, new or pretrained, on the labeled speech, and on `more` if given."""
        out = self.folder / name
        with self.begin(self.wanted.supervised(name, updates, more)).work(together=True) as todo:
            if todo:
                labeled = [self.data.labeled] if more is None else [self.data.labeled, more]
                work.train_supervised(
                    labeled,
                    self.data.validation,
                    tokenizer,
                    self.settings,
                    out,
                    self.folder,
                    updates=updates,
                )
        return out / "model"

    def topline(self, tokenizer: Tokenizer) -> Path:
        """Train a recognizer on all speech with its true transcripts, for as many updates as the other systems."""
        updates = self.settings.training.updates + self.settings.matching.updates
        return self.supervised("topline", tokenizer, updates, self.data.topline)

    def longer(self, start: Path, tokenizer: Tokenizer) -> Path:
        """Train the supervised recognizer further, for as many updates as matching, on the labeled speech only."""
        wanted = self.wanted.longer(start)
        out = self.folder / wanted.name
        with self.begin(wanted).work(together=True) as todo:
            if todo:
                work.train_supervised(
                    [self.data.labeled],
                    self.data.validation,
                    tokenizer,
                    self.settings,
                    out,
                    self.folder,
                    start=start,
                )
        return out / "model"

    def lengths(self, model: Path) -> Path:
        """Greedy transcripts of the unlabeled speech, which give the reference lengths."""
        out = self.folder / "lengths" / "lengths.jsonl"
        with self.begin(self.wanted.lengths(model)).work(together=True) as todo:
            if todo:
                work.decode_to(model, self.data.unlabeled, self.settings, out)
        return out

    def labels(self, transcripts: Path) -> Path:
        """The unlabeled speech labeled with transcripts; utterances with an empty one are left out."""
        out, cuts = existing_manifest(self.folder / "labels", "labeled", SUFFIX), self.data.unlabeled
        with self.begin(self.wanted.labels(transcripts)).work() as todo:
            if todo:
                label_cuts(cuts, [transcripts], out, ALL)
        return out

    def fusion(self, model: Path, prior: Path, for_matching: bool = False) -> Path:
        """Tune the search with the prior on the validation sets, for decoding or for matching."""
        from priormatch.pipeline.tune import tune

        out = self.folder / FUSION[for_matching] / "fusion.yaml"
        with self.begin(self.wanted.fusion(model, prior, for_matching)).work(together=True) as todo:
            if todo:
                tune(model, prior, self.data.validation, self.settings, out, for_matching)
        return out

    def transcripts_with_prior(self, model: Path, prior: Path, fusion: Path) -> Path:
        """Transcripts of the unlabeled speech, decoded with the prior."""
        out = self.folder / "lengths-asr_lm" / "lengths.jsonl"
        stage = self.begin(self.wanted.lengths_with_prior(model, prior, fusion))
        with stage.work(together=True) as todo:
            if todo:
                tuned = changed(self.settings, read_tuned(fusion))
                work.decode_to(model, self.data.unlabeled, tuned, out, prior=prior)
        return out

    def reference_lengths(self, tokenizer: Tokenizer, greedy: Path, model: Path, prior: Path) -> Path:
        """The reference length of each unlabeled utterance, from the source in the settings."""
        match self.settings.matching.reference_lengths:
            case "greedy":
                return greedy
            case "asr_lm":
                return self.transcripts_with_prior(model, prior, self.fusion(model, prior))
            case "speaking_rate" | "oracle":
                return self.lengths_without_hearing(tokenizer)

    def lengths_without_hearing(self, tokenizer: Tokenizer) -> Path:
        """Reference lengths without decoding: from the speaking rate or the true transcripts, as set."""
        wanted = self.wanted.lengths_without_hearing()
        out, known = self.folder / wanted.name / "lengths.jsonl", wanted.inputs["known"]
        with self.begin(wanted).work() as todo:
            if todo:
                if self.settings.matching.reference_lengths == "oracle":
                    lengths = oracle_lengths(read_cuts(known), tokenizer)
                else:
                    rate = pieces_a_second(read_cuts(known), tokenizer)
                    say(f"{wanted.name}: {rate:.2f} {tokenizer.unit}s per second")
                    cuts = open_cuts(self.data.unlabeled)
                    lengths = lengths_by_rate(ids_of(cuts), durations_of(cuts), rate)
                work.write_lengths(lengths, out)
        return out

    def pseudo_label(self, model: Path, labels: Path) -> Path:
        """Train a recognizer on fixed pseudo-labels, from `model` or from the copy that matching starts from."""
        out, start = self.folder / "pseudo_label", work.kept_copy(model, self.settings.matching.start)
        with self.begin(self.wanted.pseudo_label(model, labels)).work(together=True) as todo:
            if todo:
                train_on_pseudo_labels(
                    start,
                    self.data.labeled,
                    labels,
                    self.data.validation,
                    settings=self.settings,
                    out=out,
                    log=self.folder,
                )
        return out / "model"

    def judge(self, prior: Path) -> Path:
        """The copy of the prior that weighs hypotheses; an oracle has none, so the prior itself is for the rest."""
        name = self.settings.matching.prior
        return work.kept_copy(prior, "" if name == ORACLE else name)

    def lpm(self, model: Path, prior: Path, lengths: Path, fusion: Path | None = None) -> Path:
        """Run local prior matching from `model`, or from copies kept during its training.

        `fusion` holds the tuned values if the proposal searches with the prior.
        """
        matching, data = self.settings.matching, self.data
        start, proposal = (work.kept_copy(model, name) for name in (matching.start, matching.proposal))
        judge = self.judge(prior)
        settings = self.settings if fusion is None else changed(self.settings, read_tuned(fusion))
        with self.begin(self.wanted.lpm(model, prior, lengths, settings)).work(together=True) as todo:
            if todo:
                MatchJob.from_files(
                    model=start,
                    labeled=data.labeled,
                    unlabeled=data.unlabeled,
                    validation=data.validation,
                    settings=settings,
                    out=self.folder / MATCHING,
                    log=self.folder,
                    prior=judge,
                    lengths=lengths,
                    proposal=proposal,
                    transcribed=data.topline,
                ).run()
        return self.folder / MATCHING / "model"

    def decode(
        self, system: str, model: Path, prior: Path | None = None, fusion: Path | None = None
    ) -> dict[str, Path]:
        """Transcribe the test sets, greedily or with a prior and tuned values."""
        out = self.folder / DECODED / system
        settings = self.settings
        if prior is not None and fusion is not None:
            settings = changed(settings, read_tuned(fusion))
        with self.begin(self.wanted.decoded(system, model, prior, fusion)).work(together=True) as todo:
            if todo:
                for name, cuts in self.data.test.items():
                    work.decode_to(model, cuts, settings, out / f"{name}.jsonl", prior=prior, words=True)
        return {name: out / f"{name}.jsonl" for name in self.data.test}


def run(settings: Settings, force: bool = False) -> Path:
    """Run all unfinished stages, then write results.json, a table, a chart and a report.

    Problems that the checks find beforehand stop it unless forced.
    """
    use_threads(threads_of(settings))
    settings = pinned(settings)
    check_first(settings)
    folder = Path(settings.runs) / settings.name
    folder.mkdir(parents=True, exist_ok=True)
    with alone_in(folder, RUN_LOCK):  # before anything is read or written
        run_in(folder, settings, force)
    return folder


def check_first(settings: Settings) -> None:
    """Raise an error for what would stop the run later, before anything is written."""
    wandb_plan(settings)
    find_device(settings.device)
    if settings.parallel and ranks() > 1:
        raise UserError("parallel=true starts a second process itself: omit it with torchrun")
    require_inputs("trained", "made", settings)
    stages_of(settings)  # paths of data, and settings that need others


def stages_of(settings: Settings) -> list[Wanted]:
    """All stages of a run with these settings; raise an error for missing data."""
    folder = Path(settings.runs) / settings.name
    if settings.corpus == "demo":
        first, data = demo_stage(settings), demo_data(folder)
    else:
        first, data = own_stage(settings), own_data(settings, folder)
    return [first, *Stages(folder, settings, data).all()]


def unfinished(settings: Settings) -> set[str]:
    """The names of the stages that are still to be made."""
    return {name_of(each.folder) for each in planned(settings) if not each.finished}


def planned(settings: Settings) -> list[Decision]:
    """What a run with these settings would do about each stage, from the records on disk; nothing is changed."""
    return decisions(Path(settings.runs) / settings.name, stages_of(settings))


def run_in(folder: Path, settings: Settings, force: bool = False) -> None:
    """Run all stages in a folder that this process has locked."""
    if is_main():
        found = planned(settings)
        for line in in_words(found):
            say(line)
        require_sound(settings, found, force)
        replace_text(folder / "settings.yaml", to_yaml(settings))
    data = make_demo_data(settings, folder) if settings.corpus == "demo" else make_own_data(settings, folder)
    warn_of_little_validation(data, settings)
    this = Run(folder, settings, data)
    try:
        make_all(this)
    except KeyboardInterrupt:
        say(saved_in_words([*([] if data.stage is None else [data.stage]), *this.stages.values()]))
        raise


def saved_in_words(stages: Sequence[Stage]) -> str:
    """What an interrupted run has saved, and where its unfinished stage resumes."""
    done = [each.name for each in stages if each.finished]
    words = [f"saved: {', '.join(done)}"] if done else []
    for stage in (each for each in stages if not each.finished):
        update = update_of(stage.folder / CHECKPOINT)
        parts = any([*stage.folder.rglob("*.partial"), *stage.folder.rglob("*.trials.jsonl")])
        where = f"resumes after update {update}" if update else "resumes" if parts else "starts again"
        words.append(f"{stage.name} {where}")
    return "; ".join(words)


def make_all(this: Run) -> None:
    """Run the stages after the data, up to the results."""
    settings, data = this.settings, this.data
    if settings.matching.context:
        require_recordings(read_cuts(data.unlabeled), str(data.unlabeled))
    with Beside(settings.parallel, this.folder / "beside.log") as beside:
        train_and_score(this, beside)


def train_and_score(this: Run, beside: Beside) -> None:
    """Train the models of a run, some of them beside the others, and score all systems."""
    settings, matching = this.settings, this.settings.matching
    todo = unfinished(settings) if settings.parallel else set()

    def begin(stage: str) -> None:
        if stage in todo:
            beside.begin(stage, partial(make_beside, stage, settings, this.data))

    tokenizer = this.tokenizer()
    begin("prior")
    if this.data.topline is not None:
        begin("topline")
    first = this.supervised("supervised", tokenizer, settings.training.updates)
    if settings.longer_supervised:
        begin("supervised-longer")
    beside.wait_for("prior")
    prior = this.prior(tokenizer)
    proposal, judge = work.kept_copy(first, matching.proposal), this.judge(prior)
    lengths = this.lengths(proposal)
    known = this.reference_lengths(tokenizer, lengths, proposal, judge)
    searched = matching.hypotheses == "asr_lm"
    fusion = this.fusion(proposal, judge, feeds_back(matching)) if searched else None
    matched, refusal = first, None
    try:
        matched = this.lpm(first, prior, known, fusion)
    except Refused as refused:
        say(f"lpm: {refused}\nthe other systems are trained and scored without it")
        refusal = refused
    else:
        begin(f"{DECODED}/{MATCHING}")
    systems = {START: first, BASE: first} if settings.longer_supervised else {BASE: first}
    if settings.pseudo_labels:
        systems["pseudo_label"] = this.pseudo_label(first, this.labels(lengths))
    if settings.longer_supervised:
        beside.wait_for("supervised-longer")
        systems[BASE] = this.longer(first, tokenizer)
    if refusal is not None:
        score_without_matching(this, systems, str(refusal))
        raise refusal
    beside.wait_for_all()
    systems["lpm"] = matched
    if this.data.topline is not None:
        systems["topline"] = this.topline(tokenizer)
    score(this, systems)


def make_beside(stage: str, settings: Settings, data: RunData) -> None:
    """Make a stage that `train_and_score` does not wait for, in a second process.

    After training a system it also decodes the test sets, so that both processes have about as much to do.
    """
    use_threads(threads_of(settings))
    this = Run(Path(settings.runs) / settings.name, settings, data)
    tokenizer = load_tokenizer(this.wanted.pieces, settings.pretrained)
    first = this.folder / "supervised" / "model"
    match stage:
        case "prior":
            this.prior(tokenizer)
        case "topline":
            this.decode("topline", this.topline(tokenizer))
        case "supervised-longer":
            this.decode(BASE, this.longer(first, tokenizer))
            this.decode(START, first)
        case _:
            this.decode("lpm", this.folder / MATCHING / "model")


def threads_of(settings: Settings) -> int:
    """The CPU threads of each process: as set, or half of the cores for each of two."""
    return settings.threads or (max((os.cpu_count() or 2) // 2, 1) if settings.parallel else 0)


def warn_of_little_validation(data: RunData, settings: Settings) -> None:
    """Warn below a useful size of the validation sets, by which models and proposals are chosen."""
    size = validation_size(data.validation, settings.training.validate_on)
    if size.seconds < LITTLE_VALIDATION:
        say(f"warning: {'; '.join(too_little_validation(size))}")


def score_without_matching(this: Run, systems: Mapping[str, Path], refusal: str) -> None:
    """Score the other systems of a run whose matching was refused; transcripts of an earlier matching make room."""
    del this.stages[MATCHING]
    old = this.folder / DECODED / MATCHING
    if is_main() and old.exists():
        say(f"{name_of(old)}: the old folder is kept as {put_aside(old)}")
    score(this, systems, refusal)


def score(this: Run, systems: Mapping[str, Path], refusal: str = "") -> None:
    """Decode the test sets with all systems, score them, and write the results and the verdict."""
    decoded = {system: this.decode(system, model) for system, model in systems.items()}
    if not is_main():
        return
    results = score_systems(decoded)
    for stage in [*([] if this.data.stage is None else [this.data.stage]), *this.stages.values()]:
        stage.require_unchanged()
    judged = verdict(facts_of(this.folder, this.settings, this.data, results, decoded, refusal=refusal))
    finish(this, results, judged)
    add_results(systems, results)
