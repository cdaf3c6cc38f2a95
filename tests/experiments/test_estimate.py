"""What a training would take, by a clock that the tests turn."""

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Literal

import pytest
import torch
from torch.optim.sgd import SGD

from priormatch.config import Settings
from priormatch.experiments import estimate
from priormatch.experiments.scales import make_request
from priormatch.matching.lpm import is_paired
from priormatch.stopwatch import Stopwatch


@pytest.mark.parametrize(("combine", "expected"), [("alternate", 0.2 * 5.0 + 0.8 * 0.5), ("sum", 5.0)])
def test_a_probe_counts_each_kind_of_update_by_its_share_and_stops_early(
    monkeypatch: pytest.MonkeyPatch, combine: Literal["alternate", "sum"], expected: float
) -> None:
    now, made = [0.0], []

    def update(_task: SimpleNamespace, _optimizer: SGD, _clip: float, number: int, _watch: Stopwatch) -> None:
        made.append(number)
        now[0] += 5.0 if is_paired(number, 1, 4) else 0.5

    monkeypatch.setattr(estimate, "make_update", update)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    settings = Settings()
    settings.matching.combine, settings.matching.mixing = combine, [1, 4]
    settings.training.window_updates = 3  # an update on paired data
    task = SimpleNamespace(model=torch.nn.Linear(1, 1), close=lambda: None)
    assert estimate.seconds_an_update(task, settings) == pytest.approx(expected)
    slow, quick = [number for number in made if is_paired(number, 1, 4)], len(made)
    assert len(slow) == 1, "once is enough"
    assert quick - len(slow) == (2 * 4 if combine == "alternate" else 0), "two seconds of either"


def test_a_cpu_hears_a_part_of_a_large_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Settings] = []

    def probe_exactly(_step: str, settings: Settings, _device: torch.device) -> float:
        heard.append(settings)
        return 0.5

    monkeypatch.setattr(estimate, "probe_exactly", probe_exactly)
    settings = Settings(device="cpu")
    settings.training.batch.seconds, settings.training.batch.utterances = 300.0, 0
    settings.matching.batch.seconds, settings.matching.batch.utterances = 0.0, 16
    settings.prior.batch_tokens = 10 * estimate.FEW * (estimate.PIECES + 1)
    assert estimate.probe("supervised", settings) == 4 * 0.5
    assert estimate.probe("matching", settings) == 2 * 0.5
    assert estimate.probe("prior", settings) == 10 * 0.5
    supervised, matching, prior = heard
    assert supervised.training.batch.seconds == 75.0
    assert matching.matching.batch.utterances == 8
    assert prior.prior.batch_tokens == estimate.FEW * (estimate.PIECES + 1)
    assert settings.training.batch.seconds == 300.0, "what is trained with stays"
    settings.matching.batch.utterances = 4
    assert estimate.probe("matching", settings) == 0.5, "a small one is heard whole"


def test_all_rows_of_a_scale_are_listed_with_the_models_they_share_whether_or_not_their_speech_is_there() -> (
    None
):
    asked = ["7:13", "A4:5,10", "2:13", "X1:14"]
    request = make_request(asked, "paper", "0", None, 1, False)
    works = {each.name: each for each in estimate.work_of(request)}
    large, settings = "model.channels=_10,14,18_-model.blocks=_2,3,6_", request.places(0).settings
    trained = {
        "shared: prior": settings.prior.updates,
        "shared: supervised": settings.training.updates,
        f"matched-light-{large}-longer": 3_200_000,
        "matched-clean": 1_600_000,
    }
    assert {name: works[name].times for name in trained} == trained
    assert works["shared: prior"].step == "prior"
    assert [each.settings.prior.model.context for each in works.values() if each.step == "prior"] == [
        False,
        True,
    ]
    assert any(
        each.settings.model.blocks == [2, 3, 6] for each in works.values() if each.step == "supervised"
    )


def test_validations_are_counted_by_the_size_of_the_model() -> None:
    works = {
        each.name: each
        for each in estimate.work_of(make_request(["7:13", "2:13"], "paper", "0", None, 1, False))
    }
    small, large = works["validations with 9 blocks"], works["validations with 11 blocks"]
    supervised = 201  # 357,000 updates, every 1784
    assert (small.times, large.times) == (supervised + 1601, supervised + 3201)
    assert small.utterances == pytest.approx(2 * 2783 * 6.8 / 12.3)
    request = make_request(["7:13", "model.encoder=conformer"], "paper", "0", None, 1, False)
    assert "validations with 12 blocks" in {each.name for each in estimate.work_of(request)}
    few = replace(small.settings, training=replace(small.settings.training, validate_on=200))
    assert estimate.validated("small", few) == pytest.approx(2 * 200 * 4.2 / 12.3)
