"""Tasks one after another, or side by side."""

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
