"""Files appear whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from priormatch.files import replace_text, replacing


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_takes_its_place_at_the_end_alone(tmp_path: Path) -> None:
    path = tmp_path / "cuts.jsonl.gz"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert temporary.parent == tmp_path
        assert temporary.name.endswith(".jsonl.gz")
    assert path.read_text() == "new"
    assert names(tmp_path) == ["cuts.jsonl.gz"]


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, failure: type[BaseException]) -> None:
    path = tmp_path / "text.txt"
    path.write_text("old")
    with pytest.raises(failure), replacing(path) as temporary:
        temporary.write_text("half of the")
        raise failure
    assert path.read_text() == "old"
    assert names(tmp_path) == ["text.txt"]


def test_what_a_kill_left_behind_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    with replacing(path) as temporary:
        temporary.write_text("complete")
    temporary.write_text("left behind by a process that was killed")
    replace_text(path, "another\n")
    assert path.read_bytes() == b"another\n"
    assert names(tmp_path) == ["text.txt"]


def test_the_failure_that_is_told_is_the_first_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        replace_text(tmp_path / "nowhere" / "text.txt", "a")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        replace_text(tmp_path / "folder", "a")
    assert names(tmp_path) == ["folder"]


def test_letters_beyond_ascii_are_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    replace_text(tmp_path / "text.txt", "naïve\n")
    assert (tmp_path / "text.txt").read_bytes() == b"na\xc3\xafve\n"


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o007, 0o660), (0o077, 0o600)])
def test_the_umask_says_who_may_read_whatever_wrote_the_file(tmp_path: Path, mask: int, mode: int) -> None:
    path = tmp_path / "model.safetensors"
    path.with_name(".tmp-model.safetensors").touch(mode=0o400)  # left behind by a kill
    with umask(mask), replacing(path) as temporary:
        temporary.touch(mode=0o600)  # as safetensors does
    assert path.stat().st_mode & 0o777 == mode


def test_what_was_never_written_is_no_empty_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "text.txt"):
        pass
    assert names(tmp_path) == []
