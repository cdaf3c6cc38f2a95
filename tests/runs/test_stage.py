import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from narrowing import present

from priormatch.config import OptimizerSettings, load_settings
from priormatch.errors import UserError
from priormatch.files import TEMPORARY, set_aside
from priormatch.pipeline.recipe import recipe_of_matching, recipe_of_schedule, recipe_of_training
from priormatch.recognizers.card import CARD
from priormatch.runs import stage as module
from priormatch.runs.stage import (
    FILE,
    Stage,
    decide,
    differences,
    fingerprint,
    kept_aside,
    read_record,
    recipe_of,
)
from priormatch.training.checkpoint import FILES as CHECKPOINTS


def do(
    folder: Path,
    settings: dict[str, Any],
    inputs: dict[str, Path] | tuple[Any, ...] = (),
    keep_old: bool = False,
    text: str = "work",
) -> bool:
    """One stage that writes a file; tells whether there was anything to do."""
    with Stage(folder, settings, dict(inputs), keep_old).work() as todo:
        if todo:
            (folder / "work.txt").write_text(text)
    return todo


def test_work_is_done_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "runs" / "stage"
    assert do(out, {"updates": 3})
    assert not do(out, {"updates": 3}, text="other")
    assert (out / "work.txt").read_text() == "work"
    assert "finished before, reused" in capsys.readouterr().err
    assert list(tmp_path.rglob(f"{TEMPORARY}*")) == []


def test_work_that_another_process_did_meanwhile_is_reused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late = Stage(tmp_path / "stage", {"updates": 3}, {})
    assert do(tmp_path / "stage", {"updates": 3})
    with late.work() as todo:
        assert not todo
    assert late.finished
    assert "finished by another process, reused" in capsys.readouterr().err


def test_the_record_tells_settings_time_memory_and_versions(tmp_path: Path) -> None:
    do(tmp_path / "stage", {"optimizer": OptimizerSettings(clip=3.0), "updates": 5})
    record = json.loads((tmp_path / "stage" / FILE).read_text())
    assert record["finished"] is True
    assert record["recipe"]["settings"]["updates"] == 5
    assert record["recipe"]["settings"]["optimizer"]["clip"] == 3.0
    assert record["seconds"] >= 0
    assert record["peak_memory_mb"] > 1
    assert {"python", "torch", "lhotse"} <= record["versions"].keys()
    assert record["device"].startswith("CPU (")


def test_whole_settings_can_be_remembered(tmp_path: Path) -> None:
    settings = {"training": load_settings(None).training, "matching": load_settings(None).matching}
    assert do(tmp_path / "stage", settings)
    assert not do(tmp_path / "stage", settings)


def test_other_settings_set_the_old_work_aside_in_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "stage"
    do(out, {"matching": {"beam_size": 4, "updates": 9}})
    assert do(out, {"matching": {"beam_size": 8, "updates": 9}}, keep_old=True, text="new")
    assert do(out, {"matching": {"beam_size": 2, "updates": 9}}, keep_old=True, text="newer")
    assert (tmp_path / "stage.1" / "work.txt").read_text() == "work"
    assert (tmp_path / "stage.2" / "work.txt").read_text() == "new"
    assert (out / "work.txt").read_text() == "newer"
    assert "matching.beam_size changed" in capsys.readouterr().err


def test_work_that_was_set_aside_is_used_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "stage"
    for updates in (1, 2, 3):
        assert do(out, {"updates": updates}, keep_old=True, text=f"work {updates}")
    first = recipe_of({"updates": 1}, {})
    assert decide(out, first, kept_aside(out)).place == tmp_path / "stage.1"
    assert not do(out, {"updates": 1}, keep_old=True)
    assert (out / "work.txt").read_text() == "work 1"
    assert (tmp_path / "stage.3" / "work.txt").read_text() == "work 3"
    assert not (tmp_path / "stage.1").exists()
    said = " ".join(capsys.readouterr().err.split())
    assert "stage: stage.1 has these settings and is used again; the other folder is kept as" in said
    assert not do(out, {"updates": 1}, text="other")


def test_work_that_was_begun_and_set_aside_goes_on_unless_other_is_finished(tmp_path: Path) -> None:
    out, wanted = tmp_path / "stage", {"updates": 1}
    with pytest.raises(KeyboardInterrupt), Stage(out, wanted, {}).work():
        (out / "work.txt").write_text("half")
        raise KeyboardInterrupt
    do(out, {"updates": 2}, keep_old=True)
    found = decide(out, recipe_of(wanted, {}), kept_aside(out))
    assert (found.place, found.finished, found.reason) == (tmp_path / "stage.1", False, "updates changed")
    assert do(out, wanted, keep_old=True, text="whole")
    assert not (tmp_path / "stage.1").exists()
    (tmp_path / "stage.1").mkdir()
    (tmp_path / "stage.1" / FILE).write_text("{damaged")
    (tmp_path / "stage.1" / "work.txt").write_text("x")
    assert decide(out, recipe_of({"updates": 2}, {}), kept_aside(out)).place == tmp_path / "stage.2"


def test_kept_work_with_a_missing_file_is_not_used(tmp_path: Path) -> None:
    out = tmp_path / "stage"
    for updates in (1, 2):
        do(out, {"updates": updates}, keep_old=True)
    (tmp_path / "stage.1" / "work.txt").write_text("changed")
    found = decide(out, recipe_of({"updates": 1}, {}), kept_aside(out))
    assert (found.place, found.reason) == (None, "updates changed")


def test_the_fingerprint_of_a_planned_stage_is_that_of_the_finished_one(tmp_path: Path) -> None:
    out = tmp_path / "stage"
    recipe = recipe_of({"updates": 1}, {})
    before = fingerprint(out / "model", {out: recipe})
    do(out, {"updates": 1})
    assert fingerprint(out / "model") == before
    assert fingerprint(out / "model", {out: recipe_of({"updates": 2}, {})}) != before


def test_other_settings_are_refused_for_a_single_verb(tmp_path: Path) -> None:
    out = tmp_path / "stage"
    do(out, {"matching": {"beam_size": 4}})
    with pytest.raises(UserError, match=r"stage was made with other settings \(matching.beam_size\)"):
        do(out, {"matching": {"beam_size": 8}})
    assert (out / "work.txt").read_text() == "work"


def test_another_format_makes_it_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    do(tmp_path / "stage", {})
    monkeypatch.setattr(module, "FORMAT", 99)
    assert do(tmp_path / "stage", {}, keep_old=True)


def test_an_input_that_changed_makes_it_anew(tmp_path: Path) -> None:
    source, out = tmp_path / "text.txt", tmp_path / "stage"
    source.write_text("one")
    do(out, {}, {"text": source})
    assert not do(out, {}, {"text": source})
    source.write_text("another")
    with pytest.raises(UserError, match=r"inputs\.text"):
        do(out, {}, {"text": source})
    assert do(out, {}, {"text": source}, keep_old=True)


def test_an_input_of_the_same_size_but_another_time_has_changed(tmp_path: Path) -> None:
    source = tmp_path / "text.txt"
    source.write_text("one")
    before = fingerprint(source)
    os.utime(source, (1, 1))
    assert fingerprint(source) != before


def test_an_input_folder_is_told_by_all_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "audio"
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "a.wav").write_text("a")
    before = fingerprint(folder)
    assert fingerprint(folder) == before
    (folder / "below" / "b.wav").write_text("b")
    assert fingerprint(folder) != before


def test_the_card_of_a_model_is_no_part_of_it(tmp_path: Path) -> None:
    given, out = tmp_path / "given", tmp_path / "stage"
    given.mkdir()
    (given / "model.yaml").write_text("kind: prior")
    before = fingerprint(given)
    (given / CARD).write_text("what it is")
    assert fingerprint(given) == before
    with Stage(out, {}, {}).work():
        (out / CARD).write_text("what it is")
    (out / CARD).write_text("what it is, in my own words")
    assert not do(out, {})


def test_work_of_a_stage_is_told_by_what_it_was_made_from(tmp_path: Path) -> None:
    """A model made again under the same settings is the same model, whenever its file was written."""
    first = tmp_path / "first"
    do(first, {"updates": 3})
    before = fingerprint(first / "work.txt")
    (first / "work.txt").write_text("the same, written later")
    assert fingerprint(first / "work.txt") == before
    assert fingerprint(first / "model") != before
    do(first, {"updates": 4}, keep_old=True)
    assert fingerprint(first / "work.txt") != before


def test_seconds_add_up_over_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    out = tmp_path / "stage"
    with pytest.raises(KeyboardInterrupt), Stage(out, {}, {}).work():
        (out / "work.txt").write_text("half")
        clock[0] += 7.0
        raise KeyboardInterrupt
    assert present(read_record(out))["seconds"] == 7.0
    assert present(read_record(out))["finished"] is False
    clock[0] += 1000.0
    with Stage(out, {}, {}).work() as todo:
        assert todo
        assert (out / "work.txt").read_text() == "half"  # gone on with, not thrown away
        clock[0] += 5.0
    assert present(read_record(out))["seconds"] == 12.0
    assert present(read_record(out))["finished"] is True


def test_work_that_came_to_nothing_is_no_hindrance(tmp_path: Path) -> None:
    """A mistyped path or a refused proposal leaves a record alone; the next try may ask for other things."""
    out = tmp_path / "stage"
    with pytest.raises(UserError, match="no such"), Stage(out, {"bar": 60}, {}).work():
        raise UserError("no such file")
    assert do(out, {"bar": 90})
    assert [each.name for each in tmp_path.iterdir()] == ["stage"]


def test_a_kill_before_the_first_record_is_no_hindrance(tmp_path: Path) -> None:
    out = tmp_path / "stage"
    out.mkdir()
    (out / f"{TEMPORARY}{FILE}").write_text('{"half')
    assert do(out, {})


def test_what_a_kill_left_half_written_is_removed(tmp_path: Path) -> None:
    out = tmp_path / "stage"
    with pytest.raises(KeyboardInterrupt), Stage(out, {}, {}).work():
        (out / "model").mkdir()
        for name in (".tmp-model.safetensors", ".tmphZ1xgD", ".tmp", "model.yaml"):
            (out / "model" / name).write_text("half")
        raise KeyboardInterrupt
    assert do(out, {})
    assert sorted(present(read_record(out))["files"]) == ["model/.tmp", "model/model.yaml", "work.txt"]


def test_a_foreign_folder_is_refused_and_left_alone(tmp_path: Path) -> None:
    for keep_old in (False, True):
        out = tmp_path / f"thesis-{keep_old}"
        out.mkdir()
        (out / "chapter.txt").write_text("years of work")
        with pytest.raises(UserError, match="was not made by priormatch"):
            do(out, {}, keep_old=keep_old)
        assert [each.name for each in out.iterdir()] == ["chapter.txt"]


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("something")
    with pytest.raises(UserError, match="is a file"):
        do(tmp_path / "out", {})
    assert (tmp_path / "out").read_text() == "something"


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert do(tmp_path / "out", {})


@pytest.mark.parametrize("content", [b"{half", b"\xff\xfe", b""])
def test_a_damaged_record_names_itself(tmp_path: Path, content: bytes) -> None:
    do(tmp_path / "stage", {})
    (tmp_path / "stage" / FILE).write_bytes(content)
    with pytest.raises(UserError, match=r"stage\.json is damaged .*remove"):
        do(tmp_path / "stage", {}, keep_old=True)
    assert (tmp_path / "stage" / "work.txt").exists()


@pytest.mark.parametrize("content", ["[1, 2]", '{"scene": 1}', "3"])
def test_a_record_of_something_else_is_foreign(tmp_path: Path, content: str) -> None:
    out = tmp_path / "theatre"
    out.mkdir()
    (out / FILE).write_text(content)
    (out / "play.txt").write_text("text")
    with pytest.raises(UserError, match="was not made by priormatch"):
        do(out, {})


def test_differences_are_dotted() -> None:
    old = {"settings": {"a": {"b": 1, "c": [1, 2]}, "d": 3}, "inputs": {"text": "x"}}
    new = {"settings": {"a": {"b": 2, "c": [1, 2]}, "e": 3}, "inputs": {"text": "y"}}
    assert sorted(differences(old, new)) == ["a.b", "d", "e", "inputs.text"]
    assert differences(old, old) == []


def test_setting_aside_takes_the_first_free_number(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / "file.json").write_text(str(number))
        set_aside(tmp_path / "file.json")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file.json.1", "file.json.2", "file.json.3"]
    assert (tmp_path / "file.json.2").read_text() == "1"


def test_what_was_set_aside_is_found_by_its_number(tmp_path: Path) -> None:
    for name in ("file", "file.1", "file.2", "file.10", "file.old", "other.3", "file.2.1", ".tmp-file.4"):
        (tmp_path / name).touch()
    assert [each.name for each in kept_aside(tmp_path / "file")] == ["file.10", "file.2", "file.1"]
    assert kept_aside(tmp_path / "nowhere" / "file") == []


def test_unfinished_work_is_told_by_its_files(tmp_path: Path) -> None:
    """A model that is still being trained is not the one that will stand there in the end."""
    out = tmp_path / "stage"
    with pytest.raises(KeyboardInterrupt), Stage(out, {}, {}).work():
        (out / "work.txt").write_text("half")
        raise KeyboardInterrupt
    before = fingerprint(out / "work.txt")
    do(out, {}, text="whole")
    assert fingerprint(out / "work.txt") != before


def test_work_whose_file_is_gone_or_changed_is_done_again_and_the_rest_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "stage"
    for number, harm in enumerate((lambda file: file.unlink(), lambda file: file.write_text("wor")), 1):
        with Stage(out, {}, {}).work() as todo:
            assert todo
            (out / "model").mkdir()
            (out / "model" / "weights").write_text("work")
            (out / "metrics.jsonl").write_text("{}")
        assert not Stage(out, {}, {}).missing()
        harm(out / "model" / "weights")
        again = Stage(out, {}, {})
        assert not again.finished
        assert "rerun because model/weights is missing or changed" in " ".join(
            capsys.readouterr().err.split()
        )
        assert (tmp_path / f"stage.{number}" / "metrics.jsonl").read_text() == "{}"
    with again.work() as todo:
        assert todo
        assert not (out / "metrics.jsonl").exists()


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_finished_stage_does_without_its_checkpoint(tmp_path: Path, name: str) -> None:
    out = tmp_path / "stage"
    with Stage(out, {}, {}).work():
        (out / name).write_text("large")
        (out / "work.txt").write_text("work")
    (out / name).unlink()
    assert not do(out, {})


def test_the_record_lists_the_files_of_finished_work(tmp_path: Path) -> None:
    out = tmp_path / "stage"
    with Stage(out, {}, {}).work():
        (out / "below").mkdir()
        (out / "below" / "work.txt").write_text("work")
        assert present(read_record(out))["files"] == {}
    assert present(read_record(out))["files"] == {"below/work.txt": 4}


HOLD = """
import sys
from pathlib import Path
from priormatch.runs.stage import Stage

folder = Path(sys.argv[1])
with Stage(folder, {}, {}).work():
    (folder / "work.txt").write_text("half")
    print("at work", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_locked_out_until_the_first_has_ended(tmp_path: Path) -> None:
    out = tmp_path / "stage"
    source = str(Path(__file__).parents[2] / "src")
    command = [sys.executable, "-c", HOLD, str(out)]
    environment = {**os.environ, "PYTHONPATH": source}
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, env=environment, text=True) as first:
        assert present(first.stdout).readline() == "at work\n"
        before = (out / FILE).read_bytes()
        with pytest.raises(
            UserError,
            match=r"another process is at work in .*stage \(process \d+ on .*\): wait for it, or stop it",
        ):
            do(out, {})
        with pytest.raises(UserError, match="another process is at work"):
            do(out, {"other": 1}, keep_old=True)  # its folder is not moved from under it
        assert [each.name for each in tmp_path.iterdir()] == ["stage"]
        assert (out / "work.txt").read_text() == "half"
        assert (out / FILE).read_bytes() == before
        first.kill()
    assert do(out, {})


@pytest.mark.parametrize("recipe", [recipe_of_training, recipe_of_schedule, recipe_of_matching])
def test_settings_that_change_nothing_learned_redo_nothing(
    tmp_path: Path, recipe: Callable[..., Any]
) -> None:
    def redone(*overrides: str) -> bool:
        return do(tmp_path / "stage", recipe(load_settings(None, overrides)), keep_old=True)

    assert redone()
    assert not redone("training.report_every=3", "training.checkpoint_seconds=1")
    assert not redone(
        "audio.workers=1", "audio.max_bad_share=0.5", "threads=1", "prior.updates=7", "name=other"
    )
    assert redone("training.seed=7")
    assert redone("training.seed=7", "audio.longest=20")


def test_each_kind_of_training_depends_on_its_own_part_of_matching() -> None:
    def changes(override: str) -> list[bool]:
        recipes = (recipe_of_training, recipe_of_schedule, recipe_of_matching)
        old, new = load_settings(None), load_settings(None, [override])
        return [
            Stage(Path("none"), each(old), {}).recipe != Stage(Path("none"), each(new), {}).recipe
            for each in recipes
        ]

    assert changes("matching.updates=7") == [False, True, True]
    assert changes("matching.beam_size=7") == [False, False, True]
    assert changes("model.dropout=0.7") == [True, True, True]


def test_the_commit_is_that_of_the_clone_and_tells_of_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = ("git", "-C", str(tmp_path), "-c", "user.name=A", "-c", "user.email=a@b.c")
    monkeypatch.setattr(module, "__file__", str(tmp_path / "src/priormatch/runs/stage.py"))
    commit = module.commit.__wrapped__
    (tmp_path / "pyproject.toml").write_text("one\n")
    assert commit() is None, "no clone"
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"], ["tag", "v1"]):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
    assert commit() == head[:12]
    (tmp_path / "pyproject.toml").write_text("two\n")
    assert commit() == f"{head[:12]}-dirty"


def test_records_of_hostile_content_are_named_and_not_waited_for(tmp_path: Path) -> None:
    whole = {"recipe": {}, "finished": True, "seconds": 1.0}
    for content in (
        "[" * 100_000,
        "9" * 5000,
        json.dumps({**whole, "seconds": "x"}),
        json.dumps({**whole, "files": [1]}),
        json.dumps({**whole, "recipe": None}),
    ):
        (tmp_path / FILE).write_text(content)
        with pytest.raises(UserError, match=r"stage\.json is damaged"):
            read_record(tmp_path)
    (tmp_path / FILE).unlink()
    os.mkfifo(tmp_path / FILE)
    with pytest.raises(UserError, match="not a regular file"):
        read_record(tmp_path)


def test_an_input_of_links_in_a_circle_has_a_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert fingerprint(tmp_path / "loop").startswith(str(tmp_path))
