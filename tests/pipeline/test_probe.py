"""What an update takes, by a clock that the tests turn."""

import time
from functools import partial
from types import SimpleNamespace
from typing import Literal

import pytest
import torch
from torch.optim.sgd import SGD

from priormatch.config import Settings
from priormatch.matching.lpm import is_paired
from priormatch.pipeline import probe
from priormatch.stopwatch import Stopwatch


@pytest.mark.parametrize(("combine", "expected"), [("alternate", 0.2 * 5.0 + 0.8 * 0.5), ("sum", 5.0)])
def test_a_probe_counts_each_kind_of_update_by_its_share_and_stops_early(
    monkeypatch: pytest.MonkeyPatch, combine: Literal["alternate", "sum"], expected: float
) -> None:
    now, made = [0.0], []

    def update(_task: SimpleNamespace, _optimizer: SGD, _clip: float, number: int, _watch: Stopwatch) -> None:
        made.append(number)
        now[0] += 5.0 if is_paired(number, 1, 4) else 0.5

    monkeypatch.setattr(probe, "make_update", update)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(time, "process_time", lambda: now[0])
    settings = Settings()
    settings.matching.combine, settings.matching.mixing = combine, [1, 4]
    settings.training.window_updates = 3  # an update on paired data
    task = SimpleNamespace(model=torch.nn.Linear(1, 1), close=lambda: None)
    assert probe.seconds_an_update(task, settings) == pytest.approx(expected)
    slow, quick = [number for number in made if is_paired(number, 1, 4)], len(made)
    assert len(slow) == 1, "once is enough"
    assert quick - len(slow) == (2 * 4 if combine == "alternate" else 0), "two seconds of either"


def test_a_cpu_hears_a_part_of_a_large_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Settings] = []

    def probe_exactly(_step: str, settings: Settings, _device: torch.device) -> float:
        heard.append(settings)
        return 0.5

    monkeypatch.setattr(probe, "probe_exactly", probe_exactly)
    settings = Settings(device="cpu")
    settings.training.batch.seconds, settings.training.batch.utterances = 300.0, 0
    settings.matching.batch.seconds, settings.matching.batch.utterances = 0.0, 16
    settings.prior.batch_tokens = 10 * probe.FEW * (probe.PIECES + 1)
    assert probe.probe("supervised", settings).seconds == 4 * 0.5
    assert probe.probe("matching", settings).seconds == 2 * 0.5
    assert probe.probe("prior", settings).seconds == 10 * 0.5
    supervised, matching, prior = heard
    assert supervised.training.batch.seconds == 75.0
    assert matching.matching.batch.utterances == 8
    assert prior.prior.batch_tokens == probe.FEW * (probe.PIECES + 1)
    assert settings.training.batch.seconds == 300.0, "what is trained with stays"
    settings.matching.batch.utterances = 4
    assert probe.probe("matching", settings).seconds == 0.5, "a small one is heard whole"


def test_time_that_other_programs_take_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten seconds that pass during an update, this process computes for one."""
    clock = {"perf_counter": 0.0, "process_time": 0.0}

    def update() -> None:
        clock["perf_counter"] += 10.0
        clock["process_time"] += 1.0

    for name in clock:
        monkeypatch.setattr(time, name, partial(clock.__getitem__, name))
    assert probe.steady_seconds(update, torch.device("cpu")) == 1.0


def test_one_of_several_gpus_has_its_share_of_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Settings] = []

    def at_once(_step: str, settings: Settings) -> probe.Taken:
        heard.append(settings)
        return probe.Taken(1.0, 0)

    monkeypatch.setattr(probe, "probe", at_once)
    settings = Settings()
    settings.training.batch.utterances = settings.matching.batch.utterances = 128
    settings.prior.batch_tokens = 6400
    measure = probe.Probe(gpus=64)
    for step in ("supervised", "matching", "prior", "matching"):
        measure(probe.Work(step, step, 10, settings))
    assert len(heard) == 3, "each kind once"
    assert [each.training.batch.utterances for each in heard] == [2] * 3
    assert [each.matching.batch.utterances for each in heard] == [2] * 3
    assert [each.prior.batch_tokens for each in heard] == [100] * 3
