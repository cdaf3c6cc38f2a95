"""A run's folder, whole, unfinished or damaged."""

import math
from pathlib import Path
from typing import Any

import pytest
from narrowing import present
from tiny_report import make_run, matching_lines, write_metrics, write_stage

from priormatch.config import flat
from priormatch.errors import UserError
from priormatch.report.run_folder import read_run, read_scores, values


@pytest.fixture
def run(tmp_path: Path) -> Any:
    return make_run(tmp_path / "tiny")


def test_a_whole_run(run: Any) -> None:
    record = read_run(run)
    assert record.missing == []
    assert record.name == "tiny"
    assert {each.name: (each.value, each.default) for each in record.changes} == {
        "training.seed": ("7", "0"),
        "training.updates": ("30", "357000"),
    }
    assert record.data["unlabeled"].utterances == 2
    assert record.sentences == {"text": 3}
    assert list(record.stages) == ["data", "prior", "lpm"]
    assert [line["update"] for line in record.matching] == sorted(line["update"] for line in matching_lines())
    assert [each.update for each in record.inspected] == [0, 0, 0, 20, 20, 20]


def test_scores_by_hand(run: Any) -> None:
    scores = read_scores(run).tests["test"]
    assert [scores[system].wer.value for system in ("supervised", "lpm", "topline")] == pytest.approx(
        [100 * errors / 9 for errors in (3, 1, 0)]
    )
    recovered = present(scores["lpm"].werr)
    assert recovered.value == pytest.approx(200 / 3)
    assert recovered.low <= recovered.value <= recovered.high
    assert scores["supervised"].werr is None and scores["topline"].werr is None
    assert scores["lpm"].cer.low + scores["lpm"].cer.high > 0


def test_systems_scored_on_other_utterances_have_no_share_of_the_gap(run: Any) -> None:
    path = run / "decoded" / "topline" / "test.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    scores = read_scores(run)
    assert scores.tests["test"]["lpm"].werr is None
    assert len(scores.differences) == 1
    assert "local prior matching is 22.22 points of WER below supervised" in scores.differences[0]


def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "tiny", finished=False)
    write_stage(folder, "topline", finished=False)
    write_stage(folder, "lpm.1", finished=False)  # set aside when settings changed
    record = read_run(folder)
    assert record.missing == [
        "The run is not finished (topline not yet done): this report covers its progress so far."
    ]
    assert "lpm.1" not in record.stages


def test_a_run_that_has_only_begun(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("name: begun\n")
    record = read_run(tmp_path)
    assert (record.name, record.scores.tests, record.inspected, record.metrics) == ("begun", {}, [], {})
    assert any("metrics.jsonl is missing" in sentence for sentence in record.missing)


def test_a_folder_of_matching_alone(tmp_path: Path) -> None:
    """As `priormatch match --out mine` leaves it, whose stage has the folder's name."""
    write_metrics(tmp_path, [{**line, "stage": "mine"} for line in matching_lines()])
    record = read_run(tmp_path)
    assert record.matching_stage == "mine"
    assert len(record.matching) == len(matching_lines())


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("results.json", "{", "results.json is damaged"),
        ("results.json", "[]", "results.json contains no results"),
        ("results.json", '{"peak_memory_mb": "much"}', "results.json contains no results"),
        (
            "prior/stage.json",
            '{"recipe": {}, "finished": true, "seconds": "long"}',
            "stage.json is damaged (seconds is long)",
        ),
        ("settings.yaml", "a: [", "settings.yaml is damaged"),
        ("settings.yaml", "- a", "settings.yaml contains no settings"),
        ("lpm/inspected.jsonl", "{}\n", "inspected.jsonl is damaged"),
        ("lpm/inspected.jsonl", '{"update": 0,', "inspected.jsonl is damaged"),
        ("lpm/stage.json", "{", "stage.json is damaged"),
        ("decoded/lpm/test.jsonl", "what\n", "test.jsonl"),
        ("data/unlabeled.jsonl.gz", "not gzip", "is not a usable manifest of cuts"),
    ],
)
def test_what_is_damaged_is_named_and_the_rest_is_read(run: Any, name: Any, content: Any, word: Any) -> None:
    (run / name).write_text(content)
    record = read_run(run)
    assert any(word in sentence for sentence in record.missing), record.missing
    assert record.matching


def test_what_cannot_be_opened_is_named_and_the_rest_is_read(run: Any) -> None:
    (run / "lpm/stage.json").unlink()
    (run / "lpm/stage.json").mkdir()
    record = read_run(run)
    assert any("not a regular file" in sentence for sentence in record.missing), record.missing
    assert record.matching


def test_damaged_metrics_are_counted_and_left_out(run: Any) -> None:
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(
            b'\xff\xfe\n[1]\n{"stage": 3, "update": 1}\n{"stage": "lpm", "update": "x"}\n{"stage": "lpm", "up'
        )
    record = read_run(run)
    assert [sentence.split("has ")[1] for sentence in record.missing] == [
        "5 unreadable lines, left out here."
    ]
    assert len(record.matching) == len(matching_lines())


def test_only_numbers_are_drawn() -> None:
    found = [1, 2.5, math.nan, math.inf, None, "3", True]
    lines = [{"update": update, "loss": value} for update, value in enumerate(found)]
    assert values(lines, "loss") == [(0, 1), (1, 2.5)]


def test_leaves_by_dotted_names() -> None:
    assert flat({"a": {"b": 1, "c": {}}, "d": [2]}) == {"a.b": 1, "a.c": {}, "d": [2]}


@pytest.mark.parametrize(
    "make", [lambda path: None, lambda path: path.mkdir(), lambda path: path.write_text("x")]
)
def test_what_is_no_run_is_refused(tmp_path: Path, make: Any) -> None:
    make(tmp_path / "stranger")
    with pytest.raises(UserError, match="stranger is not the folder of a run"):
        read_run(tmp_path / "stranger")
