"""Errors by speaker, and the worst utterances, counted by hand."""

from pathlib import Path

import pytest
from tiny_report import make_run

from priormatch.report.run_folder import read_scores
from priormatch.report.test_sets import cuts_of_test


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "tiny")


def test_speakers_have_rates_of_all_systems_the_worst_of_ours_first(run: Path) -> None:
    found = read_scores(run)
    assert found.judged == "lpm"
    carl, bea = found.speakers["test"]
    assert (carl.name, carl.words, bea.name, bea.words) == ("<carl>", 4, "bea", 5)
    assert carl.rates == {"supervised": 50.0, "lpm": 25.0, "topline": 0.0}
    assert bea.rates == {"supervised": 20.0, "lpm": 0.0, "topline": 0.0}


def test_errors_are_counted_by_kind(run: Path) -> None:
    kinds = read_scores(run).tests["test"]["supervised"].kinds
    assert (kinds.substituted, kinds.deleted, kinds.inserted) == (3, 0, 0)


def test_the_worst_utterances_are_those_of_ours_with_their_audio(run: Path) -> None:
    (worst,) = read_scores(run).worst["test"]
    assert (worst.aligned.id, worst.aligned.errors, worst.hypothesis) == ("t3", 1, "monday")
    assert worst.cut is not None and worst.cut["id"] == "t3"


def test_without_matching_the_supervised_system_is_judged(run: Path) -> None:
    (run / "decoded" / "lpm" / "test.jsonl").unlink()
    found = read_scores(run)
    assert found.judged == "supervised"
    assert [each.aligned.id for each in found.worst["test"]] == ["t3", "t0", "t1"]


def test_unknown_speakers_are_not_listed(run: Path) -> None:
    (run / "data" / "test.jsonl.gz").unlink()
    assert read_scores(run).speakers == {"test": []}


def test_the_test_sets_of_own_data_are_found_by_their_names(run: Path) -> None:
    data = run / "data"
    (data / "test.jsonl.gz").rename(data / "test-calls.jsonl.gz")
    assert cuts_of_test(data, "calls").keys() == {"t0", "t1", "t2", "t3"}
    (data / "test-calls.jsonl.gz").write_bytes(b"damaged")
    assert cuts_of_test(data, "calls") == {}
