"""Several runs side by side: all measures with intervals, one name for a system, and the settings that differ."""

import pytest
import yaml
from tiny_report import make_run

from priormatch.report.comparison import compared, differing
from priormatch.report.run_folder import read_run
from priormatch.runs.results import NAMES


@pytest.fixture
def records(tmp_path):
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


def test_each_system_has_the_scores_of_the_runs_that_have_one(records):
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


def test_settings_that_differ(records):
    assert differing(records) == {
        "training.seed": ["7", "8", "unknown"],
        "matching.refresh": ["–", "never", "unknown"],
    }
    assert differing(records[:1]) == {}
