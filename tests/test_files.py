"""Files appear whole or not at all."""

import gzip
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tiny_run import file_limit

from priormatch.errors import UserError
from priormatch.files import DiskFull, replace_text, replacing, writing
from priormatch.tensor_files import save_tensors


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


def refused_write(path: Path, limit: int, write: Callable[[Path], object], size: int = 0) -> str:
    """What a writer is told where files cannot grow beyond a limit, as on a full disk."""
    with file_limit(limit), pytest.raises(DiskFull) as caught, replacing(path, size) as temporary:
        write(temporary)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{path} cannot be written: ")
    assert message.endswith("free some space and run the same command again: files already written are kept")
    return message


def write_gzip(path: Path) -> None:
    with gzip.open(path, "wb") as file:
        file.write(np.random.default_rng(0).bytes(100_000))


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_bytes(bytes(100_000)),
        lambda path: save_file({"a": torch.zeros(25_000)}, path),
        lambda path: save_tensors(path, {"a": torch.zeros(25_000)}, {}),
        write_gzip,
    ],
    ids=["bytes", "safetensors", "tensors", "gzip"],
)
def test_a_full_disk_is_one_sentence_and_leaves_the_old_file(
    tmp_path: Path, write: Callable[[Path], object]
) -> None:
    path = tmp_path / "x.safetensors"
    path.write_text("old")
    message = refused_write(path, 50_000, write, 100_000)
    assert re.search(r"\(it needs 100 kB; [\d,.]+ [kMG]B free on that disk\)", message)
    assert names(tmp_path) == ["x.safetensors"]
    assert path.read_text() == "old"
    with replacing(path) as temporary:
        write(temporary)
    assert path.stat().st_size >= 50_000


def test_what_is_appended_to_on_a_full_disk_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with (
        file_limit(1000),
        pytest.raises(DiskFull, match=f"^{path} cannot be written"),
        writing(path),
        path.open("a") as file,
    ):
        file.write("x" * 2000)


def test_other_failures_are_not_called_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="digits"), replacing(tmp_path / "x"):
        raise ValueError("28 digits")
    with pytest.raises(UserError, match=r"^the Hub says: No space left on device"), writing(tmp_path / "x"):
        raise UserError("the Hub says: No space left on device")


def test_content_is_synced_before_the_name_changes_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    sync, replace = os.fsync, os.replace

    def noted_sync(descriptor: int) -> None:
        done.append(Path(f"/proc/self/fd/{descriptor}").resolve().name)
        sync(descriptor)

    def noted_replace(old: Path, new: Path) -> None:
        done.append("renamed")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted_replace)
    replace_text(tmp_path / "text.txt", "a")
    assert done == [".tmp-text.txt", "renamed", tmp_path.name]


def test_what_was_never_written_is_no_empty_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "text.txt"):
        pass
    assert names(tmp_path) == []
