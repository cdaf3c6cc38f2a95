import json
import math
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from tiny_run import file_limit

from priormatch.files import DiskFull
from priormatch.training import metrics
from priormatch.training.metrics import MetricsLog, move_lines


def lines(folder: Path, name: str = "metrics.jsonl") -> list[dict[str, float | str]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def test_means_are_of_the_updates_since_the_last_report_and_skip_what_is_not_finite(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, "supervised", 0)
    log.add({"loss": 1.0, "ratio": math.nan})
    log.add({"loss": 3.0, "ratio": 0.5, "norm": math.inf})
    assert log.means() == {"loss": 2.0, "ratio": 0.5}
    log.add({"loss": 7.0})
    assert log.means() == {"loss": 7.0}
    log.close()


def test_lines_after_the_checkpoint_are_taken_back_for_this_stage_alone(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, "lpm", 0)
    for update in (0, 10, 20, 30):
        log.write(update, {"loss": 1.0})
    log.close()
    other = MetricsLog(tmp_path, "prior", 0)
    other.write(30, {"perplexity": 9.0})
    other.close()
    MetricsLog(tmp_path, "lpm", 20).close()
    assert [(each["stage"], each["update"]) for each in lines(tmp_path)] == [
        ("lpm", 0),
        ("lpm", 10),
        ("lpm", 20),
        ("prior", 30),
    ]


def test_a_stage_that_begins_anew_leaves_no_line_of_its_first_validation(tmp_path: Path) -> None:
    MetricsLog(tmp_path, "lpm", 0).write(0, {"validation_score": 1.0})
    again = MetricsLog(tmp_path, "lpm", 0)
    again.write(0, {"validation_score": 1.0})
    again.close()
    assert len(lines(tmp_path)) == 1


def test_a_line_cut_off_by_a_kill_is_dropped(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, "lpm", 0)
    log.write(5, {"loss": 1.0})
    log.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"stage": "lpm", "upda')
    MetricsLog(tmp_path, "lpm", 5).close()
    assert [each["update"] for each in lines(tmp_path)] == [5]


def test_numbers_are_events_too(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = MetricsLog(tmp_path, "lpm", 0)
    log.write(5, {"loss": 1.5, "validation": {"dev": {"cer": 3.0}}})
    log.close()
    events = EventAccumulator(str(tmp_path / "tensorboard" / "lpm"))
    events.Reload()
    assert [(each.step, each.value) for each in events.Scalars("loss")] == [(5, 1.5)]


def test_without_tensorboard_there_are_lines_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "find_spec", lambda name: None)
    log = MetricsLog(tmp_path, "lpm", 0)
    log.write(5, {"loss": 1.5})
    log.close()
    assert [each["loss"] for each in lines(tmp_path)] == [1.5]
    assert not (tmp_path / "tensorboard").exists()


def test_events_are_taken_back_as_the_lines_are(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = tmp_path / "tensorboard" / "lpm"
    for begin, updates, loss in ((0, (0, 5, 10), 1.0), (5, (10, 15), 2.0)):
        log = MetricsLog(tmp_path, "lpm", begin)
        for update in updates:
            log.write(update, {"loss": loss})
        log.close()
        if begin == 0:  # files are read in the order of their names, which begin with the second
            (file,) = folder.iterdir()
            file.rename(folder / "events.out.tfevents.1.before")
    events = EventAccumulator(str(folder))
    events.Reload()
    expected = [(0, 1.0), (5, 1.0), (10, 2.0), (15, 2.0)]
    assert [(each.step, each.value) for each in events.Scalars("loss")] == expected
    assert [(each["update"], each["loss"]) for each in lines(tmp_path)] == expected


def test_lines_of_a_stage_made_anew_are_kept_as_old_ones(tmp_path: Path) -> None:
    for loss in (1.0, 2.0, 3.0):
        log = MetricsLog(tmp_path, "lpm", 0)
        log.write(0, {"validation_score": 50.0})
        log.write(5, {"loss": loss})
        log.close()
        other = MetricsLog(tmp_path, "prior", 5)
        other.write(5 + int(loss), {"perplexity": 9.0})
        other.close()
    assert [each["loss"] for each in lines(tmp_path) if "loss" in each] == [3.0]
    old = lines(tmp_path, "metrics.old.jsonl")
    assert [each["loss"] for each in old if "loss" in each] == [1.0, 2.0]
    assert {each["stage"] for each in old} == {"lpm"}
    assert len(old) == 4


def test_lines_undone_by_a_kill_are_not_kept(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, "lpm", 0)
    for update in (5, 10):
        log.write(update, {"loss": 1.0})
    log.close()
    MetricsLog(tmp_path, "lpm", 5).close()
    assert [each["update"] for each in lines(tmp_path)] == [5]
    assert not (tmp_path / "metrics.old.jsonl").exists()


def test_stages_side_by_side_lose_nothing(tmp_path: Path) -> None:
    def train(stage: str) -> None:
        for start in range(20):  # as if it were killed again and again
            log = MetricsLog(tmp_path, stage, start)
            log.write(start + 1, {"loss": 1.0})
            log.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(train, "abcd"))
    found = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    for stage in "abcd":
        assert [each["update"] for each in found if each["stage"] == stage] == list(range(1, 21))


def test_a_full_disk_names_the_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "find_spec", lambda name: None)  # whose thread would meet the limit too
    with closing(MetricsLog(tmp_path, "lpm", 0)) as log:
        log.write(1, {"loss": 0.5})
        before = (tmp_path / "metrics.jsonl").read_bytes()
        with file_limit(len(before)), pytest.raises(DiskFull, match=r"metrics\.jsonl cannot be written"):
            log.write(2, {"loss": 0.25})
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    "damaged",
    [b"\xff\xfe", b"[]", b"null", b"{}", b'{"stage": "lpm", "update": "x"}', b"[" * 100_000],
    ids=["bytes", "list", "null", "empty", "text", "deep"],
)
def test_damaged_lines_are_counted_and_kept_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damaged: bytes
) -> None:
    log = MetricsLog(tmp_path, "lpm", 0)
    for update in (10, 20, 30):
        log.write(update, {"loss": 1.0})
    log.close()
    file = tmp_path / "metrics.jsonl"
    first, *others = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(damaged + b"\n" + first + b"".join(others))
    before = file.read_bytes()
    MetricsLog(tmp_path, "lpm", 20).close()
    assert [each["update"] for each in lines(tmp_path)] == [10, 20]
    assert (tmp_path / "metrics.jsonl.1").read_bytes() == before
    assert "metrics.jsonl: 1 damaged lines removed" in capsys.readouterr().err


def test_an_invalid_byte_in_a_line_of_another_stage_is_kept(tmp_path: Path) -> None:
    other = b'{"stage": "prior", "update": 30, "note": "\xff"}\n'
    (tmp_path / "metrics.jsonl").write_bytes(other + b'{"stage": "lpm", "update": 30}\n')
    MetricsLog(tmp_path, "lpm", 20).close()
    assert (tmp_path / "metrics.jsonl").read_bytes() == other


def test_a_pipe_in_the_place_of_the_metrics_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics.jsonl")
    with pytest.raises(OSError, match="not a regular file"):
        MetricsLog(tmp_path, "lpm", 20)


def test_the_lines_of_a_stage_move_to_another_folder_and_back(tmp_path: Path) -> None:
    aside = tmp_path / "lpm.1"
    aside.mkdir()
    for stage in ("prior", "lpm"):
        log = MetricsLog(tmp_path, stage, 0)
        log.write(10, {"loss": 1.0})
        log.close()
    before = lines(tmp_path)
    move_lines("lpm", tmp_path, aside)
    assert (lines(tmp_path), lines(aside)) == (before[:1], before[1:])
    move_lines("supervised", tmp_path, aside)
    move_lines("lpm", aside, tmp_path)
    assert (lines(tmp_path), lines(aside)) == (before, [])
    move_lines("lpm", tmp_path / "nowhere", aside)
