"""Alarms, one for each thing that can go wrong, and the comparison of several runs."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_report import make_run, matching_lines

from priormatch.report.curves import compared, differing, largest_entropy, matching_alarms, skipped_updates
from priormatch.report.run_folder import read_run
from priormatch.runs.results import NAMES

SETTINGS = {"matching.beam_size": 4}


def changed(**figures: Any) -> Any:
    """The metrics of a calm run with other figures at its end."""
    lines = sorted(matching_lines(), key=lambda line: line["update"])
    for name, value in figures.items():
        [line for line in lines if name in line][-1][name] = value
    return lines


def test_a_calm_run_raises_none() -> None:
    assert list(matching_alarms(changed(), SETTINGS)) == []
    assert list(skipped_updates({"lpm": changed()})) == []
    assert list(matching_alarms([], {})) == []


@pytest.mark.parametrize(
    ("figures", "word"),
    [
        ({"length_ratio": 0.85}, "0.85 times as long"),
        ({"share_without_survivor": 0.6}, "60% of the unlabeled utterances"),
        ({"local_prior_entropy": 1.3}, "entropy 1.30 of at most 1.39 nats"),
        ({"validation_score": 17.0}, "ends at a validation CER of 17.0 %, after 15.0 % at its best"),
        ({"label_wer": 31.0}, "The labels got worse, from 30.0 to 31.0 % WER"),
    ],
)
def test_each_alarm(figures: Any, word: Any) -> None:
    (alarm,) = matching_alarms(changed(**figures), SETTINGS)
    assert word in alarm


@pytest.mark.parametrize("figures", [{"share_without_survivor": 0.6}, {"validation_score": 17.0}])
@pytest.mark.parametrize("hypotheses", ["asr", "asr_lm"])
def test_where_the_prior_searches_along_a_search_without_it_is_advised(figures: Any, hypotheses: Any) -> None:
    (alarm,) = matching_alarms(changed(**figures), SETTINGS | {"matching.hypotheses": hypotheses})
    assert ("let the proposal search without the prior" in alarm) == (hypotheses == "asr_lm")


def test_a_proposal_that_was_never_replaced() -> None:
    lines = [
        {**line, "proposal_refreshed": False} if "proposal_refreshed" in line else line for line in changed()
    ]
    (alarm,) = matching_alarms(lines, SETTINGS)
    assert "No online model has replaced the proposal" in alarm
    assert list(matching_alarms([line for line in lines if line["update"] == 0], SETTINGS)) == []


@pytest.mark.parametrize("how", [{"matching.refresh": "never"}, {"matching.baseline": "topipl"}])
def test_a_proposal_that_is_to_stay_or_an_average_need_not_be_replaced(how: Any) -> None:
    lines = [
        {**line, "proposal_refreshed": False} if "proposal_refreshed" in line else line for line in changed()
    ]
    assert list(matching_alarms(lines, SETTINGS | how)) == []


def test_skipped_updates_of_any_stage() -> None:
    lines = [
        {"stage": "prior", "update": 100, "skipped": 0.0},
        {"stage": "prior", "update": 200, "skipped": 0.01},
    ]
    (alarm,) = skipped_updates({"lpm": [], "prior": lines})
    assert alarm.startswith("prior: updates were skipped before update 200")


@pytest.mark.parametrize("beam", [None, "four", 0, True])
def test_the_entropy_of_an_unknown_beam(beam: Any) -> None:
    assert largest_entropy({"matching.beam_size": beam}) == 0.0
    assert list(matching_alarms(changed(local_prior_entropy=9.0), {"matching.beam_size": beam})) == []


@pytest.fixture
def records(tmp_path: Path) -> Any:
    """Two runs and one that has only begun."""
    one, other = make_run(tmp_path / "one"), make_run(tmp_path / "other", "other")
    settings = yaml.safe_load((other / "settings.yaml").read_text())
    settings["training"]["seed"] = 8
    settings["matching"]["refresh"] = "never"
    (other / "settings.yaml").write_text(yaml.safe_dump(settings))
    for file in (other / "decoded" / "topline").iterdir():
        file.unlink()
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "metrics.jsonl").touch()
    return [read_run(each) for each in (one, other, begun)]


def test_each_system_has_the_scores_of_the_runs_that_have_one(records: Any) -> None:
    (found,) = compared(dict(zip(("one", "other", "begun"), records, strict=True)))
    assert found.test == "test"
    assert {system: list(scores) for system, scores in found.systems.items()} == {
        "supervised": ["one", "other"],
        "lpm": ["one", "other"],
        "topline": ["one"],
    }
    assert [chart.title for chart in found.charts] == [
        "test: word error rate, %",
        "test: character error rate, %",
        "test: share of the gap closed (WERR), %",
    ]
    wer, _, werr = found.charts
    assert [heading.label for heading in wer.headings] == [NAMES[system] for system in found.systems]
    assert [bar.name for bar in wer.bars] == ["one", "other", "one", "other", "one"]
    assert [bar.name for bar in werr.bars] == ["one"], "the other has no topline"


def test_settings_that_differ(records: Any) -> None:
    assert differing(records) == {
        "training.seed": ["7", "8", "unknown"],
        "matching.refresh": ["–", "never", "unknown"],
    }
    assert differing(records[:1]) == {}
