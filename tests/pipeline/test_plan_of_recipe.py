"""What a run would take."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_run import command, files, make_folders

from priormatch.config import KeepSettings, Settings, load_settings, recipe_path
from priormatch.pipeline import estimate, plan
from priormatch.pipeline.estimate import Cluster
from priormatch.pipeline.plan import PUBLISHED, Amount, amounts_of
from priormatch.pipeline.probe import SECONDS, Probe, Taken, Work

LARGE = recipe_path("librilight-60kh")


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every update takes half a second and 3 GB, whatever it is."""
    monkeypatch.setattr(Probe, "__call__", lambda *_: Taken(0.5, 3_000_000_000))


def test_stages_data_hours_and_money_of_the_largest_run(steady: None) -> None:
    found = plan.plan(load_settings(LARGE), Cluster(64), price=2.0)
    lines = {each.name: each for each in found.lines}
    assert {"prior", "supervised", "lpm", "validations", "lengths"} <= lines.keys()
    assert lines["lpm"].times == 3_200_000
    heard = PUBLISHED["librilight-60kh"].hours * 3600 / SECONDS
    assert lines["lengths"].seconds == pytest.approx(heard * 0.5 / 64), "shared by all GPUs"
    each = 0.5 + Cluster(64).seconds_to_sum(estimate.weights_of("matching", load_settings(LARGE)))
    assert lines["lpm"].hours == pytest.approx(3_200_000 * each / 3600)
    assert found.gpu_hours == pytest.approx(64 * sum(each.hours for each in found.lines))
    assert found.as_json()["money"] == pytest.approx(2 * found.gpu_hours)
    assert 0 < found.communication < 1
    assert found.memory == 3_000_000_000
    assert 17_300_000 * 150 < found.host_memory < 17_300_000 * 400, (
        "utterances are on disk, lengths in memory"
    )
    assert found.disk["speech as FLAC"] == pytest.approx(60e6 * (57_706.4 + 100.6 + 5.4 + 5.3 + 5.4 + 5.1))


def test_communication_grows_with_the_model_and_beyond_a_machine_and_is_none_alone() -> None:
    assert Cluster(1).seconds_to_sum(10**8) == 0
    inside, across = Cluster(8).seconds_to_sum(10**8), Cluster(16).seconds_to_sum(10**8)
    assert inside == pytest.approx(2 * 7 / 8 * 4e8 / 150e9 + 6 * 120e-6)
    assert across == pytest.approx(2 * 15 / 16 * 4e8 / 12.5e9 + 8 * 120e-6)
    assert Cluster(16, bandwidth=25.0).seconds_to_sum(10**9) < across * 10 / 1.9
    assert Cluster(16, per_machine=16).seconds_to_sum(10**8) < across


def test_a_busy_machine_is_measured_with_its_free_threads_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = torch.get_num_threads()
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.setattr("os.getloadavg", lambda: (2.6, 0.0, 0.0))
    torch.set_num_threads(4)
    try:
        with estimate.free_threads(torch.device("cpu")):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 4
        assert "load 2.6 on 4 cores" in capsys.readouterr().err
        monkeypatch.setattr("os.getloadavg", lambda: (0.3, 0.0, 0.0))
        with estimate.free_threads(torch.device("cpu")):
            assert torch.get_num_threads() == 4
        assert capsys.readouterr().err == ""
    finally:
        torch.set_num_threads(before)


def test_gpus_without_an_utterance_are_counted(capsys: pytest.CaptureFixture[str], steady: None) -> None:
    settings = load_settings(recipe_path("librispeech-100h-360h"))
    plan.note_idle(plan.of_run(settings, {}), Cluster(16))
    assert capsys.readouterr().err == ""
    plan.note_idle(plan.of_run(settings, {}), Cluster(64))
    assert "supervised: 16 utterances per update, so 48 of 64 GPUs are idle" in capsys.readouterr().err


def test_stages_follow_the_settings() -> None:
    settings = Settings(longer_supervised=False, pseudo_labels=True, topline="cuts.jsonl.gz")
    settings.training.validate_on = 100
    known = {"validation": [Amount(1000, 10.0)], "test": [Amount(500, 1.0)]}
    works = {each.name: each for each in plan.of_run(settings, known)}
    trainings = ["prior", "supervised", "pseudo_label", "lpm", "topline"]
    assert list(works) == [*trainings, "validations", "decoding of the test sets"]
    assert works["validations"].utterances == pytest.approx(3600 / SECONDS), "a tenth of ten hours"
    assert works["validations"].times == sum(works[name].validations for name in trainings)
    assert works["decoding of the test sets"].times == 4


def test_finished_stages_take_nothing() -> None:
    known = {"unlabeled": [Amount(1000, 10.0)], "test": [Amount(500, 1.0)]}
    done = {"prior", "supervised", "lengths", "decoded/supervised", "decoded/supervised_start"}
    works = {each.name: each for each in plan.of_run(Settings(), known, done)}
    assert list(works) == ["supervised-longer", "lpm", "decoding of the test sets"]
    assert works["decoding of the test sets"].times == 1
    assert plan.of_run(Settings(longer_supervised=False), known, done | {"lpm", "decoded/lpm"}) == []
    assert estimate.lines_of([], Cluster()) == []


def test_the_disk_holds_two_checkpoints_the_best_model_and_copies() -> None:
    settings = Settings()
    weights = estimate.weights_of("matching", settings)
    assert estimate.bytes_kept(Work("lpm", "matching", 1, settings)) == 4 * weights * (2 * 2 + 2)
    settings.training.keep = {"B": KeepSettings(update=5)}
    settings.training.optimizer = replace(settings.training.optimizer, kind="adamw")
    assert estimate.bytes_kept(Work("supervised", "supervised", 1, settings)) == 4 * weights * (2 * 3 + 2)
    assert estimate.bytes_kept(Work("decoding", "validation", 1, settings)) == 0


def test_speech_that_is_there_is_counted_and_other_speech_is_known_by_its_name(tmp_path: Path) -> None:
    make_folders(tmp_path)
    settings = Settings(labeled=str(tmp_path / "labeled"), unlabeled="nowhere/train-clean-360.jsonl.gz")
    found = amounts_of(settings)
    assert found["labeled"][0].utterances == 24
    assert found["validation"][0].utterances == 2, "a tenth of it"
    assert found["unlabeled"] == [PUBLISHED["train-clean-360"]]
    settings.test = {"clean": "data/test-clean.jsonl.gz", "mine": "data/mine.jsonl.gz"}
    assert "test" not in amounts_of(settings), "one of them is unknown"


def test_a_dry_run_and_a_plan_have_the_same_figures_and_write_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], steady: None
) -> None:
    make_folders(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = files(tmp_path)
    words = ("tiny.yaml", "labeled=labeled", "unlabeled=unlabeled", "text=text.txt", "test.clean=test")
    assert command("run", *words, "--dry-run") == 0
    dry = capsys.readouterr().out
    assert command("plan", *words) == 0
    figures = [line for line in capsys.readouterr().out.splitlines() if "│" in line or "time:" in line]
    assert len(figures) == 8
    assert set(figures) <= set(dry.splitlines())
    assert "to run: data, tokenizer, supervised, prior" in dry
    assert command("run", *words, "--dry-run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["finished"] == []
    assert command("plan", *words, "--gpus", "2", "--price", "3", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["money"] == pytest.approx(3 * found["gpu_hours"])
    assert found["hours_of_data"]["labeled"] == pytest.approx(0.01, abs=0.01)
    assert files(tmp_path) == before


def test_a_whole_plan_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a real probe, of one update of each kind."""
    make_folders(tmp_path)
    monkeypatch.setattr("priormatch.pipeline.probe.COUNTED", 1)
    monkeypatch.setattr("priormatch.pipeline.probe.WARM_UP", 1)
    settings = load_settings(tmp_path / "tiny.yaml", [f"labeled={tmp_path / 'labeled'}"])
    found = plan.plan(settings, Cluster(2))
    trainings = [
        each for each in found.lines if each.name not in ("validations", "decoding of the test sets")
    ]
    assert all(each.seconds > each.communication > 0 for each in trainings)
    assert found.cluster.unit == "CPU"
