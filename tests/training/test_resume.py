"""Training that is stopped and gone on with ends with the same weights, to the bit."""

import json
import math
import multiprocessing
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from narrowing import present
from tiny_language import WORDS
from tiny_run import files

from priormatch.config import (
    AudioSettings,
    AugmentSettings,
    BatchSettings,
    ConvLMSettings,
    KeepSettings,
    MatchingSettings,
    ModelSettings,
    OptimizerSettings,
    PriorSettings,
    TrainingSettings,
)
from priormatch.data.corpus import Corpus
from priormatch.data.sentences import Sentences
from priormatch.data.tokenizer import Tokenizer
from priormatch.errors import UserError
from priormatch.matching import baselines
from priormatch.matching.baselines import AveragedProposal, CachedTargets
from priormatch.matching.kept import TargetsOfProposal
from priormatch.matching.lpm import BeamTargets, Policy, Proposal, TargetsOf, Weighing
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.stopwatch import Stopwatch
from priormatch.training.checkpoint import FILE, OLD, read_checkpoint
from priormatch.training.inspected import FILE as INSPECTED
from priormatch.training.inspected import Inspector, read_inspected
from priormatch.training.loop import Schedule, fit
from priormatch.training.matching_step import Matching
from priormatch.training.prior_step import PriorTraining
from priormatch.training.supervised_step import Supervised

UPDATES = 9
TRAINING = TrainingSettings(
    seed=3,
    batch=BatchSettings(utterances=2),
    window_updates=5,
    ctc_weight=0.5,
    input_sampling=0.2,
    piece_sampling=0.3,
    augment=AugmentSettings(1, 4, 1, 10, speeds=[0.9]),
)
ADAMW = OptimizerSettings("adamw", 0.01, clip=5.0, warm_up=2, weight_decay=0.01)
SGD = OptimizerSettings("sgd", 0.05, momentum=0.5, decay_every=3)


@pytest.fixture
def make_supervised(
    tiny_corpus: Callable[..., Path], tiny_model_settings: ModelSettings, tiny_tokenizer: Tokenizer
) -> Callable[..., Supervised]:
    path = tiny_corpus(5)

    def make(workers: int = 0) -> Supervised:
        torch.manual_seed(1)
        corpus = Corpus.load(path, AudioSettings(workers=workers))
        model = SpeechRecognizer(tiny_model_settings, tiny_tokenizer)
        return Supervised(model, corpus, {"dev": corpus}, TRAINING, TRAINING.batch)

    return make


@pytest.fixture
def make_prior(
    tiny_prior_settings: ConvLMSettings, tiny_tokenizer: Tokenizer, tiny_sentences: list[str]
) -> Callable[..., PriorTraining]:
    def make(context: bool = False) -> PriorTraining:
        torch.manual_seed(1)
        prior = ConvPrior(replace(tiny_prior_settings, context=context), tiny_tokenizer)
        text = Sentences.of(tiny_sentences[:30], tiny_tokenizer)
        held_out = Sentences.of(tiny_sentences[30:40], tiny_tokenizer)
        return PriorTraining(prior, text, held_out, PriorSettings(batch_tokens=60), seed=3)

    return make


@pytest.fixture
def make_matching(
    tiny_corpus: Callable[..., Path],
    tiny_model_settings: ModelSettings,
    tiny_tokenizer: Tokenizer,
    tiny_prior: ConvPrior,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Matching]:
    labeled, unlabeled = tiny_corpus(5, "labeled"), tiny_corpus(7, "unlabeled", transcribed=False)
    names = [f"unlabeled-{number}" for number in range(7)]

    def make(
        workers: int = 0,
        combine: Literal["alternate", "sum"] = "sum",
        policy: Policy = "better",
        baseline: str = "none",
        once: bool = False,
        merged: bool = False,
        in_context: bool = False,
        transcribed: Path | None = None,
        inspected: Path | None = None,
    ) -> Matching:
        torch.manual_seed(1)
        audio = AudioSettings(workers=workers)
        online = SpeechRecognizer(tiny_model_settings, tiny_tokenizer).eval()
        with torch.no_grad():
            present(online.decoder).output.bias[tiny_tokenizer.eos] += 1.2  # hypotheses of several lengths
        monkeypatch.setattr(baselines, "DECAY", 0.5)
        proposal = (AveragedProposal if baseline == "topipl" else Proposal)(online, 1e9, policy)
        contexts = {name: f"at {WORDS[row]}" for row, name in enumerate(names[1:])} if in_context else None
        targets: TargetsOf = BeamTargets(
            proposal, tiny_prior, 3, Weighing(merge_spellings=merged, contexts=contexts or {})
        )
        if baseline == "slimipl":
            targets = CachedTargets(targets, 0.3, tiny_tokenizer.eos)
        if once:
            targets = TargetsOfProposal(targets, tiny_tokenizer.eos, proposal)
        settings = MatchingSettings(
            batch=BatchSettings(utterances=4),
            mixing=[1, 2],
            combine=combine,
            loss_weight=0.5,
        )
        speech, more = Corpus.load(labeled, audio), Corpus.load(unlabeled, audio)
        known = None if transcribed is None else Corpus.load(transcribed, audio)
        inspector = None if inspected is None else Inspector(more, tiny_prior, 3, Weighing(), inspected)
        sets = {"dev": speech}
        return Matching(
            online,
            speech,
            more,
            sets,
            targets=targets,
            proposal=proposal,
            training=TRAINING,
            matching=settings,
            transcribed=known,
            inspector=inspector,
        )

    return make


class Killed(Exception):
    pass


class Dying:
    """A task that is killed at an update."""

    def __init__(self, task: Matching | PriorTraining | Supervised, update: int) -> None:
        self.task, self.update = task, update

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    def backward(
        self, update: int, watch: Stopwatch
    ) -> tuple[torch.Tensor, Mapping[str, torch.Tensor | float]]:
        if update == self.update:
            raise Killed
        return self.task.backward(update, watch)


def schedule(
    optimizer: OptimizerSettings = ADAMW, checkpoint_seconds: float = 1e9, validate_first: bool = False
) -> Schedule:
    return Schedule(
        UPDATES, optimizer, 3, 3, validate_first, report_every=4, checkpoint_seconds=checkpoint_seconds
    )


def train(task: Any, folder: Path, how: Schedule) -> None:
    try:
        fit(task, how, folder, folder)
    finally:
        assert not multiprocessing.active_children(), "workers end with the training, however it ends"


def lines(folder: Path) -> list[dict[str, Any]]:
    """All that was reported but the folder's name and how long it took."""
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [
        {
            name: value
            for name, value in each.items()
            if not re.match("stage|seconds_per|audio_per|time_", name)
        }
        for each in found
    ]


def assert_same(one: Path, other: Path) -> None:
    """Two folders of training hold the same weights, state, best model and reports."""
    tensors, state = present(read_checkpoint(one))
    other_tensors, other_state = present(read_checkpoint(other))
    assert state == other_state
    assert tensors.keys() == other_tensors.keys()
    different = [name for name in tensors if not torch.equal(tensors[name], other_tensors[name])]
    assert not different
    weights = [(folder / "model" / "model.safetensors").read_bytes() for folder in (one, other)]
    assert weights[0] == weights[1]
    assert lines(one) == lines(other)


def assert_resumed_alike(
    make: Callable[..., Any] | Callable[..., PriorTraining] | Callable[..., Supervised],
    how: Schedule,
    folder: Path,
    kills: list[int],
) -> None:
    """Training that is killed at some updates ends as training that is not."""
    train(make(), folder / "straight", how)
    for update in kills:
        with pytest.raises(Killed):
            train(Dying(make(), update), folder / "killed", how)
    train(make(), folder / "killed", how)
    assert_same(folder / "straight", folder / "killed")


@pytest.mark.parametrize("every_update", [True, False], ids=["checkpoint each update", "at validations"])
def test_supervised(make_supervised: Callable[..., Supervised], tmp_path: Path, every_update: bool) -> None:
    how = schedule(checkpoint_seconds=-1.0 if every_update else 1e9)
    assert_resumed_alike(make_supervised, how, tmp_path, kills=[2, 5, 7])


def test_supervised_sgd(make_supervised: Callable[..., Supervised], tmp_path: Path) -> None:
    assert_resumed_alike(make_supervised, schedule(SGD), tmp_path, kills=[5])


def test_supervised_with_a_worker(make_supervised: Callable[..., Supervised], tmp_path: Path) -> None:
    assert_resumed_alike(lambda: make_supervised(workers=1), schedule(), tmp_path, kills=[5])


def test_workers_change_nothing(make_supervised: Callable[..., Supervised], tmp_path: Path) -> None:
    train(make_supervised(workers=0), tmp_path / "without", schedule())
    train(make_supervised(workers=1), tmp_path / "with", schedule())
    assert_same(tmp_path / "without", tmp_path / "with")


@pytest.mark.parametrize("optimizer", [ADAMW, SGD], ids=["adamw", "sgd"])
def test_prior(
    make_prior: Callable[..., PriorTraining], tmp_path: Path, optimizer: OptimizerSettings
) -> None:
    assert_resumed_alike(make_prior, schedule(optimizer, checkpoint_seconds=-1.0), tmp_path, kills=[1, 6])


def test_prior_with_context(make_prior: Callable[..., PriorTraining], tmp_path: Path) -> None:
    how = schedule(checkpoint_seconds=-1.0)
    assert_resumed_alike(lambda: make_prior(context=True), how, tmp_path / "context", kills=[1, 6])
    train(make_prior(), tmp_path / "plain", how)
    one, other = (present(read_checkpoint(tmp_path / name))[0] for name in ("context/straight", "plain"))
    assert any(not torch.equal(one[name], other[name]) for name in one if name.startswith("model/"))


@pytest.mark.parametrize("combine", ["sum", "alternate"])
def test_matching(make_matching: Callable[..., Matching], tmp_path: Path, combine: str) -> None:
    how = schedule(ADAMW if combine == "sum" else SGD, validate_first=True)
    assert_resumed_alike(lambda: make_matching(combine=combine), how, tmp_path, kills=[1, 5, 8])
    history = present(read_checkpoint(tmp_path / "killed"))[1]["task"]["proposal"]["history"]
    assert [each["update"] for each in history] == [3, 6, 9]
    assert history[0]["taken"]


@pytest.mark.parametrize(
    "how",
    [
        {"policy": "on_policy"},
        {"policy": "always"},
        {"policy": "never"},
        {"baseline": "topipl"},
        {"baseline": "slimipl"},
        {"baseline": "slimipl", "merged": True, "in_context": True},
        {"once": True, "policy": "always"},
        {"workers": 1},
    ],
    ids=str,
)
def test_every_policy_and_baseline_resumes_alike(
    make_matching: Callable[..., Matching], tmp_path: Path, how: dict[str, int | str]
) -> None:
    plan = schedule(checkpoint_seconds=-1, validate_first=True)
    assert_resumed_alike(lambda: make_matching(**how), plan, tmp_path, kills=[1, 5, 8])


@pytest.mark.parametrize("baseline", ["none", "topipl"])
def test_known_transcripts_are_scored_and_change_nothing(
    make_matching: Callable[..., Matching], tiny_corpus: Callable[..., Path], tmp_path: Path, baseline: str
) -> None:
    how = schedule(validate_first=True)
    known = tiny_corpus(4, "unlabeled-known")
    train(make_matching(baseline=baseline), tmp_path / "without", how)
    assert_resumed_alike(
        lambda: make_matching(baseline=baseline, transcribed=known), how, tmp_path, kills=[4, 7]
    )
    with_transcripts = tmp_path / "straight" / "metrics.jsonl"
    told = [json.loads(line) for line in with_transcripts.read_text().splitlines()]
    assert {each["update"] for each in told if "label_wer" in each} >= {0, 3}
    without = [{name: each[name] for name in each if name != "label_wer"} for each in told]
    with_transcripts.write_text("".join(f"{json.dumps(each)}\n" for each in without))
    assert_same(tmp_path / "without", tmp_path / "straight")


@pytest.mark.parametrize("baseline", ["none", "topipl"])
@pytest.mark.parametrize("every_update", [True, False], ids=["checkpoint each update", "at validations"])
def test_beams_are_kept_and_change_nothing(
    make_matching: Callable[..., Matching], tmp_path: Path, baseline: str, every_update: bool
) -> None:
    how = schedule(checkpoint_seconds=-1 if every_update else 1e9, validate_first=True)
    train(make_matching(baseline=baseline), tmp_path / "without", how)
    files = {name: tmp_path / name / INSPECTED for name in ("straight", "killed")}
    train(make_matching(baseline=baseline, inspected=files["straight"]), tmp_path / "straight", how)
    for update in (1, 4, 5, 8):
        with pytest.raises(Killed):
            train(
                Dying(make_matching(baseline=baseline, inspected=files["killed"]), update),
                tmp_path / "killed",
                how,
            )
    train(make_matching(baseline=baseline, inspected=files["killed"]), tmp_path / "killed", how)
    for name in files:
        assert_same(tmp_path / "without", tmp_path / name)
    assert files["straight"].read_text() == files["killed"].read_text()
    updates = [each.update for each in read_inspected(files["killed"])]
    assert updates == [0] * 7 + [updates[-1]] * 7
    assert updates[-1] in ((9,) if baseline == "topipl" else (3, 6, 9))


def test_matching_with_a_worker(make_matching: Callable[..., Matching], tmp_path: Path) -> None:
    assert_resumed_alike(lambda: make_matching(workers=1), schedule(validate_first=True), tmp_path, kills=[4])


def test_a_kill_while_the_checkpoint_is_written_loses_only_that_checkpoint(
    make_prior: Callable[..., PriorTraining], tmp_path: Path
) -> None:
    train(make_prior(), tmp_path / "straight", schedule())
    with pytest.raises(Killed):
        train(Dying(make_prior(), 5), tmp_path / "killed", schedule())
    (tmp_path / "killed" / f".tmp-{FILE}").write_bytes(b"half of a checkpoint")
    (tmp_path / "killed" / "model" / ".tmp-model.safetensors").write_bytes(b"half of a model")
    train(make_prior(), tmp_path / "killed", schedule())
    assert_same(tmp_path / "straight", tmp_path / "killed")


@pytest.mark.parametrize("stage", ["supervised", "prior", "matching"])
@pytest.mark.parametrize("every_update", [True, False], ids=["checkpoint each update", "at validations"])
def test_a_damaged_checkpoint_changes_nothing(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    stage: str,
    every_update: bool,
) -> None:
    make = request.getfixturevalue(f"make_{stage}")
    how = schedule(checkpoint_seconds=-1 if every_update else 1e9, validate_first=stage == "matching")
    how = replace(how, keep={"early": KeepSettings(update=2), "late": KeepSettings(update=6)})
    folders = tmp_path / "straight", tmp_path / "killed"

    def task(folder: Path) -> Matching | PriorTraining | Supervised:
        return make(inspected=folder / INSPECTED) if stage == "matching" else make()

    train(task(folders[0]), folders[0], how)
    with pytest.raises(Killed):
        train(Dying(task(folders[1]), 7), folders[1], how)
    content = bytearray((folders[1] / FILE).read_bytes())
    content[len(content) * 2 // 3] ^= 4
    (folders[1] / FILE).write_bytes(content)
    train(task(folders[1]), folders[1], how)
    assert f"resuming from {OLD}, written at update {6 if every_update else 3}" in " ".join(
        capsys.readouterr().err.split()
    )
    assert_same(*folders)
    assert files(folders[0] / "kept") == files(folders[1] / "kept")
    if stage == "matching":
        assert (folders[0] / INSPECTED).read_text() == (folders[1] / INSPECTED).read_text()


def test_a_damaged_checkpoint_stops_before_anything_is_trained(
    make_prior: Callable[..., PriorTraining], tmp_path: Path
) -> None:
    with pytest.raises(Killed):
        train(Dying(make_prior(), 5), tmp_path, schedule())
    file = tmp_path / FILE
    assert not (tmp_path / OLD).exists()
    file.write_bytes(file.read_bytes()[:200])
    before = (tmp_path / "metrics.jsonl").read_text()
    with pytest.raises(UserError, match="is damaged"):
        train(make_prior(), tmp_path, schedule())
    assert (tmp_path / "metrics.jsonl").read_text() == before


def test_a_task_knows_the_utterances_of_its_last_update(
    make_supervised: Callable[..., Supervised],
    make_matching: Callable[..., Matching],
    make_prior: Callable[..., PriorTraining],
) -> None:
    watch = Stopwatch(torch.device("cpu"))
    supervised, matching, prior = make_supervised(), make_matching(), make_prior()
    for task in (supervised, matching, prior):
        for update in range(2):
            task.backward(update, watch)
    fresh = make_supervised().stream
    fresh.take()
    assert supervised.ids == fresh.take()[0].ids
    assert {name.split("-")[0] for name in matching.ids} == {"labeled", "unlabeled"}
    assert not prior.ids


def test_a_diverged_prior_is_told_and_not_finished(
    make_prior: Callable[..., PriorTraining], tmp_path: Path
) -> None:
    task = make_prior()
    with torch.no_grad():
        for each in task.model.parameters():
            each.mul_(30)  # beyond what floats hold of a perplexity
    assert task.validate(0)[0] == math.inf
    with pytest.raises(UserError, match="no validation score is finite"):
        train(task, tmp_path, replace(schedule(), optimizer=replace(SGD, learning_rate=1e-9)))


def test_another_seed_gives_other_weights(make_prior: Callable[..., PriorTraining], tmp_path: Path) -> None:
    train(make_prior(), tmp_path / "3", schedule())
    train(make_prior(), tmp_path / "4", replace(schedule(), seed=4))
    one, other = (present(read_checkpoint(tmp_path / seed))[0] for seed in "34")
    assert any(not torch.equal(one[name], other[name]) for name in one if name.startswith("model/"))


def test_a_finished_training_is_left_as_it_is(
    make_prior: Callable[..., PriorTraining], tmp_path: Path
) -> None:
    train(make_prior(), tmp_path, schedule())
    before = {path: path.read_bytes() for path in tmp_path.glob("*.*")}
    train(Dying(make_prior(), 0), tmp_path, schedule())
    assert {path: path.read_bytes() for path in tmp_path.glob("*.*")} == before
