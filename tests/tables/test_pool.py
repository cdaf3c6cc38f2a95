"""Tasks one after another, or side by side."""

from functools import partial

import pytest

from priormatch.errors import UserError
from priormatch.tables.pool import Pool, Task


def test_a_task_that_fails_does_not_stop_the_others(tmp_path, capsys):
    done = []

    def fail():
        raise UserError("no text: give some")

    tasks = {
        name: Task(name, work, tmp_path / name)
        for name, work in (("a", lambda: done.append("a")), ("b", fail), ("c", lambda: done.append("c")))
    }
    with Pool(1) as pool:
        assert pool.perform(tasks, "letters") == {"b": "UserError: no text: give some"}
    assert done == ["a", "c"]
    assert "letters: 3/3" in capsys.readouterr().err


def test_a_stop_is_no_failure(tmp_path):
    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Pool(1) as pool:
        pool.perform({"a": Task("a", stop, tmp_path / "a")}, "letters")


def note(file, name):
    with file.open("a") as log:
        log.write(f"{name}\n")


def task(file, name, *after, work=note):
    return Task(name, partial(work, file, name), file.with_name(f"{name}.log"), frozenset(after))


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_task_waits_for_those_before_it_and_fails_with_them(tmp_path, jobs):
    file = tmp_path / "done"
    tasks = {
        "last": task(file, "last", "lost", "b"),
        "b": task(file, "b", "a"),
        "a": task(file, "a"),
        "lost": Task(
            "lost", partial(note, tmp_path / "nowhere/done", "lost"), tmp_path / "lost.log", frozenset({"a"})
        ),
        "next": task(file, "next", "b"),
    }
    with Pool(jobs) as pool:
        failed = pool.perform(tasks, "letters")
    assert file.read_text().split() == ["a", "b", "next"]
    assert set(failed) == {"lost", "last"}
    assert failed["last"] == failed["lost"]
    assert "No such file" in failed["lost"]
