"""The loop itself, on a task of one number."""

import json
import math
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from signal import Signals
from typing import Any

import pytest
import torch
from narrowing import present
from safetensors.torch import save_file
from torch import nn

from priormatch import processes
from priormatch.config import KeepSettings, OptimizerSettings
from priormatch.errors import UserError
from priormatch.pipeline import work
from priormatch.progress import Meter
from priormatch.stopwatch import Stopwatch
from priormatch.training import loop
from priormatch.training.checkpoint import FILE, OLD, read_checkpoint, write_checkpoint
from priormatch.training.health import MOST_BAD_UPDATES
from priormatch.training.loop import Schedule, fit, is_late, over_processes, seed_of

SGD = OptimizerSettings("sgd", 0.1, clip=1.0)


class OneNumber:
    """Pulls a weight down by 0.1 an update; validation scores and losses can be set."""

    def __init__(
        self, scores: dict[int, float] | tuple[Any, ...] = (), losses: dict[int, float] | None = None
    ) -> None:
        self.model = nn.Linear(1, 1, bias=False)
        nn.init.constant_(self.model.weight, 1.0)
        self.scores, self.losses = dict(scores), losses or {}
        self.saved: list[float] = []
        self.noise: list[float] = []
        self.modes: list[bool] = []

    @property
    def ids(self) -> list[str]:
        return [f"speech-{number}" for number in range(7)]

    def backward(self, update: int, watch: Stopwatch) -> tuple[torch.Tensor, dict[str, float]]:
        self.noise.append(torch.rand(()).item())
        self.modes.append(self.model.training)
        loss = self.losses.get(update, 1.0) * self.model.weight.sum()
        loss.backward()
        return loss.detach(), {"figure": float(update)}

    def validate(self, update: int) -> tuple[float, dict[str, Any]]:
        self.modes.append(self.model.training)
        return self.scores.get(update, 1.0), {"validation": {"dev": update}}

    def close(self) -> None:
        pass

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        value = round(self.model.weight.item(), 3)
        if folder.name == "model":
            self.saved.append(value)
        (folder / "model.safetensors").write_text(str(value))

    def state(self) -> tuple[dict[Any, Any], dict[Any, Any]]:
        return {}, {}

    def restore(self, tensors: dict[Any, Any], state: dict[Any, Any] | None) -> None:
        pass


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def run(task: Any, folder: Path, **changes: Any) -> None:
    how = {"updates": 6, "optimizer": SGD, "seed": 0, "validate_every": 2, "report_every": 3, **changes}
    fit(task, Schedule(**how), folder, folder)


def test_the_best_model_is_kept_and_a_tie_keeps_the_first(tmp_path: Path) -> None:
    task = OneNumber({2: 5.0, 4: 3.0, 6: 3.0})
    run(task, tmp_path)
    assert task.saved == [0.8, 0.6]
    assert present(read_checkpoint(tmp_path))[1]["best"] == 3.0


def test_no_best_is_told_before_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = []
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_NOTES", -1.0)
    monkeypatch.setattr(Meter, "advance", lambda self, note: notes.append(note))
    run(OneNumber({2: 5.0}), tmp_path, updates=2)
    assert notes == ["loss 1", "loss 0.9, best validation score 5.00"]


def test_a_trained_model_can_be_the_best_from_the_start(tmp_path: Path) -> None:
    task = OneNumber({0: 1.0, 2: 5.0, 4: 3.0, 6: 3.0})
    run(task, tmp_path, validate_first=True)
    assert task.saved == [1.0]
    assert lines(tmp_path)[0] == {
        "stage": tmp_path.name,
        "update": 0,
        "validation_score": 1.0,
        "validation": {"dev": 0},
    }


def test_a_start_that_does_not_count_is_told_and_not_kept(tmp_path: Path) -> None:
    task = OneNumber({0: 1.0, 2: 5.0, 4: 3.0, 6: 3.0})
    run(task, tmp_path, validate_first=True, start_counts=False)
    assert task.saved == [0.8, 0.6]
    assert present(read_checkpoint(tmp_path))[1]["best"] == 3.0
    told = [(each["update"], each["validation_score"]) for each in lines(tmp_path) if "validation" in each]
    assert told == [(0, 1.0), (2, 5.0), (4, 3.0), (6, 3.0)]


def test_copies_are_kept_at_their_moments_and_never_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep = {
        "late": KeepSettings(update=3),
        "good": KeepSettings(score=3.5),
        "better": KeepSettings(score=1.0),
    }
    run(OneNumber({2: 5.0, 4: 3.0, 6: 2.0, 8: 1.5}), tmp_path, updates=6, keep=keep)
    run(OneNumber({8: 1.5}), tmp_path, updates=8, keep=keep)  # gone on with
    kept = {each.name: (each / "model.safetensors").read_text() for each in (tmp_path / "kept").iterdir()}
    assert kept == {"late": "0.6", "good": "0.6"}, "of the first validation that reached them"
    assert capsys.readouterr().err.count("late and good are the same model: validate more often") == 1


def test_a_score_that_is_not_a_number_is_kept_only_until_there_is_one(tmp_path: Path) -> None:
    task = OneNumber({2: math.nan, 4: 7.0, 6: math.nan})
    run(task, tmp_path)
    assert task.saved == [0.8, 0.6]
    assert present(read_checkpoint(tmp_path))[1]["best"] == 7.0


def test_the_last_update_is_validated_though_it_is_not_due(tmp_path: Path) -> None:
    task = OneNumber()
    run(task, tmp_path, updates=5)
    assert [each["update"] for each in lines(tmp_path) if "validation_score" in each] == [2, 4, 5]
    assert present(read_checkpoint(tmp_path))[1]["update"] == 5


def test_reports_are_means_since_the_last(tmp_path: Path) -> None:
    run(OneNumber(), tmp_path)
    reports = [each for each in lines(tmp_path) if "loss" in each]
    assert [(each["update"], each["figure"]) for each in reports] == [(3, 1.0), (6, 4.0)]
    assert [each["loss"] for each in reports] == pytest.approx([0.9, 0.6])
    assert [each["learning_rate"] for each in reports] == pytest.approx([0.1, 0.1])


def test_seconds_per_update_count_the_updates_since_the_resumption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(1000))
    task = OneNumber()
    run(task, tmp_path, updates=4, report_every=6)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    run(task, tmp_path, updates=6, report_every=6, checkpoint_seconds=1e9)
    (report,) = [each for each in lines(tmp_path) if "loss" in each]
    took = report["seconds_per_update"]
    assert took >= 1  # every look at the clock is a second, and each update looks at least once
    assert report["figure"] == 2.5, "a mean over the updates before and after"


def test_a_checkpoint_of_an_older_version_resumes(tmp_path: Path) -> None:
    task = OneNumber()
    run(task, tmp_path, updates=4, report_every=6)
    tensors, state = present(read_checkpoint(tmp_path))
    write_checkpoint(tmp_path, tensors, {name: state[name] for name in ("update", "best", "bad", "task")})
    run(task, tmp_path, updates=6, report_every=6)
    (report,) = [each for each in lines(tmp_path) if "loss" in each]
    assert report["figure"] == 4.5, "it knew of no update before"


def test_dropout_is_on_in_training_and_off_in_validation(tmp_path: Path) -> None:
    task = OneNumber()
    run(task, tmp_path, updates=2)
    assert task.modes == [True, True, False]


def test_the_gradient_is_clipped(tmp_path: Path) -> None:
    task = OneNumber(losses={0: 100.0})
    run(task, tmp_path, updates=1, report_every=1)
    assert task.model.weight.item() == pytest.approx(0.9, abs=1e-4)
    assert lines(tmp_path)[0]["gradient_norm"] == pytest.approx(100.0)


def test_an_update_with_a_gradient_that_is_not_finite_is_skipped_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = OneNumber(losses={1: math.nan, 3: math.inf})
    run(task, tmp_path)
    assert task.model.weight.item() == pytest.approx(0.6)
    said = " ".join(capsys.readouterr().err.split())
    names = "speech-0, speech-1, speech-2, speech-3, speech-4 and 2 more"
    assert f"update 1 skipped: its gradient is not finite (utterances {names})" in said


def test_skips_in_a_row_stop_the_training(tmp_path: Path) -> None:
    all_bad = OneNumber(losses=dict.fromkeys(range(1000, 1100), math.nan))
    with pytest.raises(UserError, match=r"20 updates in a row .* not finite: .*speech-4 and 2 more"):
        run(all_bad, tmp_path, updates=1100, validate_every=1000)
    assert len(all_bad.noise) == 1000 + MOST_BAD_UPDATES


@pytest.mark.parametrize("killed", [False, True], ids=["straight", "resumed"])
def test_a_share_of_skips_stops_the_training(tmp_path: Path, killed: bool) -> None:
    every_third = OneNumber(losses=dict.fromkeys(range(0, 100, 3), math.nan))
    if killed:
        run(every_third, tmp_path, updates=31)
    with pytest.raises(UserError, match=r"20 of the last 58 updates .* lower the learning rate"):
        run(every_third, tmp_path, updates=100)
    assert len(every_third.noise) == 58


def test_few_skips_are_endured_and_old_ones_forgotten(tmp_path: Path) -> None:
    few = OneNumber(losses=dict.fromkeys(range(0, 2500, 25), math.nan))  # 4 %
    run(few, tmp_path, updates=2500, validate_every=500, report_every=500)
    assert len(present(read_checkpoint(tmp_path))[1]["skipped"]) == 40


class Stopping(OneNumber):
    """Sends this process a signal in the middle of some updates."""

    def __init__(self, number: Signals, *updates: int) -> None:
        super().__init__()
        self.number, self.updates = number, updates

    def backward(self, update: int, watch: Stopwatch) -> tuple[torch.Tensor, dict[str, float]]:
        if update in self.updates:
            signal.raise_signal(self.number)
            if len(self.updates) == 1:
                signal.raise_signal(self.number)
        return super().backward(update, watch)


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def stop_signal(request: pytest.FixtureRequest) -> Iterator[Signals]:
    """A signal that stops the process, by raising KeyboardInterrupt as the command line lets it."""
    before = signal.signal(request.param, signal.default_int_handler)
    yield request.param
    assert signal.getsignal(request.param) is signal.default_int_handler
    signal.signal(request.param, before)


def test_the_first_stop_saves_and_training_resumes_there(
    tmp_path: Path, stop_signal: Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    task = Stopping(stop_signal, 2, 99)
    with pytest.raises(KeyboardInterrupt):
        run(task, tmp_path, validate_every=6)
    assert len(task.noise) == 3
    assert present(read_checkpoint(tmp_path))[1]["update"] == 3
    said = capfd.readouterr().err
    assert "stopping after this update, which is then saved; Ctrl-C again stops at once" in said
    assert "saved at update 3 of 6" in said
    run(task, tmp_path, validate_every=6)
    assert len(task.noise) == 6


def test_the_second_stop_stops_at_once(
    tmp_path: Path, stop_signal: Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "MOMENT", 0.0)  # so that it counts as another one
    task = Stopping(stop_signal, 2)
    with pytest.raises(KeyboardInterrupt):
        run(task, tmp_path, validate_every=6)
    assert len(task.noise) == 2
    assert read_checkpoint(tmp_path) is None


def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run(Stopping(signal.SIGINT, 2), tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)
    assert present(read_checkpoint(tmp_path))[1]["update"] == 6


@pytest.mark.parametrize("score", [math.inf, math.nan])
def test_a_training_that_diverged_is_no_success(tmp_path: Path, score: float) -> None:
    task = OneNumber(dict.fromkeys((2, 4, 6), score))
    for _ in range(2):  # nor is it one when it is asked for again
        with pytest.raises(
            UserError, match=r"no validation score is finite.* lower its optimizer\.learning_rate"
        ):
            run(task, tmp_path)
    assert len(task.noise) == 6


def test_randomness_is_that_of_seed_and_update(tmp_path: Path) -> None:
    one, same, other = OneNumber(), OneNumber(), OneNumber()
    run(one, tmp_path / "one", seed=1)
    run(same, tmp_path / "same", seed=1, validate_every=1)
    run(other, tmp_path / "other", seed=2)
    assert one.noise == same.noise
    assert len({*one.noise, *other.noise}) == 12


def test_seeds_differ_in_the_bits_the_generator_looks_at() -> None:
    seeds = [seed_of(seed, update) & 0xFFFFFFFF for seed in range(30) for update in range(30)]
    assert len(set(seeds)) == 900


def test_a_short_training_that_skipped_most_updates_is_not_finished(tmp_path: Path) -> None:
    task = OneNumber(losses=dict.fromkeys(range(4), math.nan))
    for _ in range(2):  # also when it is called again
        with pytest.raises(
            UserError, match=r"4 of the last 6 updates .* not finite: lower the learning rate"
        ):
            run(task, tmp_path)
    run(OneNumber(losses=dict.fromkeys(range(3), math.nan)), tmp_path / "half")


def old_checkpoint(folder: Path, weight: torch.Tensor, **state: int | None) -> None:
    """Write a checkpoint as earlier versions did, without hashes."""
    known: dict[str, Any] = {"update": 2, "best": 1.0, "bad": 0, "task": {}, **state}
    save_file({"model/weight": weight}, folder / FILE, metadata={"state": json.dumps(known)})


@pytest.mark.parametrize(
    ("weight", "state"),
    [((2, 2), {}), ((1, 1), {"task": None, "best": None}), ((1, 1), {"update": None})],
    ids=["shape", "best", "update"],
)
def test_a_checkpoint_of_another_training_is_one_sentence(
    tmp_path: Path, weight: tuple[int, int], state: dict[str, None]
) -> None:
    old_checkpoint(tmp_path, torch.ones(weight), **state)
    with pytest.raises(UserError, match=r"is from another training .* remove checkpoint"):
        run(OneNumber(), tmp_path)


def test_an_old_checkpoint_with_nan_falls_back_to_the_older_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old_checkpoint(tmp_path, torch.full((1, 1), 0.8))
    os.replace(tmp_path / FILE, tmp_path / OLD)
    old_checkpoint(tmp_path, torch.full((1, 1), math.nan), update=4)
    task = OneNumber()
    run(task, tmp_path)
    assert task.model.weight.item() == pytest.approx(0.4)
    assert "contains NaN or infinity" in capsys.readouterr().err


def test_checkpoints_are_frequent_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def written(until: int, most: float) -> list[int]:
        saved, times = 0, []
        for now in range(until):
            monkeypatch.setattr(time, "monotonic", lambda now=now: float(now))
            if is_late(0.0, float(saved), most):
                saved = now
                times.append(now)
        return times

    assert written(400, 120) == [11, 23, 47, 95, 191, 312]
    assert written(8, 2) == [3, 6]
    assert written(3, -1) == [0, 1, 2]


def test_progress_names_the_score_that_is_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_NOTES", -1.0)
    monkeypatch.setattr(Meter, "advance", lambda self, amount=1, note="": notes.append(note))
    run(OneNumber({2: 71.68}), tmp_path, updates=2, score=work.CER)
    assert "best validation CER 71.68 %" in notes[-1]
    run(OneNumber({2: 9.5}), tmp_path / "prior", updates=2, score=work.PERPLEXITY)
    assert "best validation perplexity 9.50" in notes[-1]


def test_metrics_are_those_of_all_processes_also_of_one_that_had_nothing_to_learn_from() -> None:
    found = over_processes([{"audio_seconds": 2.0}, {"audio_seconds": 3.0, "loss": 1.0}])
    assert found == {"audio_seconds": 5.0, "loss": 1.0}
