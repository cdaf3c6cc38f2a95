"""What a training would take, by a clock that the tests turn."""

from types import SimpleNamespace

import pytest
import torch

from priormatch.config import Settings
from priormatch.matching.mixing import is_paired
from priormatch.tables import estimate


@pytest.mark.parametrize(("combine", "expected"), [("alternate", 0.2 * 5.0 + 0.8 * 0.5), ("sum", 5.0)])
def test_a_probe_counts_each_kind_of_update_by_its_share_and_stops_early(monkeypatch, combine, expected):
    now, made = [0.0], []

    def update(_task, _optimizer, _clip, number, _watch):
        made.append(number)
        now[0] += 5.0 if is_paired(number, 1, 4) else 0.5

    monkeypatch.setattr(estimate, "make_update", update)
    monkeypatch.setattr(estimate.time, "perf_counter", lambda: now[0])
    settings = Settings()
    settings.matching.combine, settings.matching.mixing = combine, [1, 4]
    settings.training.window_updates = 3  # an update on paired data
    task = SimpleNamespace(model=torch.nn.Linear(1, 1), close=lambda: None)
    assert estimate.seconds_an_update(task, settings) == pytest.approx(expected)
    slow, quick = [number for number in made if is_paired(number, 1, 4)], len(made)
    assert len(slow) == 2, "once to warm up, once to count"
    assert quick - len(slow) == (2 * 4 if combine == "alternate" else 0), "two seconds of either"


def test_a_cpu_hears_a_part_of_a_large_batch(monkeypatch):
    heard = []
    monkeypatch.setattr(
        estimate, "probe_exactly", lambda step, settings, device: heard.append(settings) or 0.5
    )
    settings = Settings(device="cpu")
    settings.training.batch.seconds, settings.training.batch.utterances = 300.0, 0
    settings.matching.batch.seconds, settings.matching.batch.utterances = 0.0, 16
    assert estimate.probe("matching", settings) == 4 * 0.5
    (smaller,) = heard
    assert (smaller.training.batch.seconds, smaller.matching.batch.utterances) == (75.0, 4)
    assert settings.training.batch.seconds == 300.0, "what is trained with stays"
    settings.training.batch.seconds, settings.matching.batch.utterances = 48.0, 4
    assert estimate.probe("matching", settings) == 0.5, "a small one is heard whole"
