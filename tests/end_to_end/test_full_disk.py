"""A run on a full disk: each failed write is one sentence, and the same command ends as if nothing had happened."""

import errno
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from tiny_run import command, file_limit, files, make_folders

OWN = ("run", "tiny.yaml", "labeled=labeled", "unlabeled=unlabeled", "text=text.txt", "test.clean=test")
OF_EACH = ("seconds", "peak_memory_mb", "finished")
"""What differs between two runs of the same settings."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("disk")
    make_folders(folder)
    return folder


@pytest.fixture(scope="module")
def undisturbed(root: Path) -> dict[str, object]:
    """The files of a run that always had space."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        assert command(*OWN, "runs=undisturbed") == 0
    return made(root / "undisturbed" / "tiny")


def made(run: Path) -> dict[str, object]:
    """The models, transcripts and scores of a run."""
    found = {
        name: content
        for name, content in files(run).items()
        if re.search(r"model\.safetensors|tokenizer\.model|decoded/.*(jsonl|txt|trn)$|text.*\.txt$", name)
    }
    results = json.loads((run / "results.json").read_text())
    assert len(found) > 10
    return {**found, "results": {name: value for name, value in results.items() if name not in OF_EACH}}


@contextmanager
def syncs(allowed: int) -> Iterator[None]:
    """Let so many files reach the disk, then report that it is full."""
    sync, left = os.fsync, [allowed]

    def limited(descriptor: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", limited)
        yield


def until_done(
    capsys: pytest.CaptureFixture[str], limits: Iterable[AbstractContextManager[None]], *words: str
) -> int:
    """Call a command within each limit in turn, then without any; how often it failed."""
    failed = 0
    for limit in limits:
        with limit:
            code = command(*words)
        told = capsys.readouterr().err
        lines = [line for line in told.splitlines() if line.startswith("priormatch: ")]
        assert "Traceback" not in told
        if code == 0:
            break
        assert code == 2
        assert len(lines) == 1
        assert re.fullmatch(
            r"priormatch: .* cannot be written: (No space left on device|File too large)"
            r" \(.*free on that disk\); free some space and run the same command again: .*",
            lines[0],
        ), lines
        failed += 1
    assert command(*words) == 0
    return failed


def test_files_that_do_not_fit(
    root: Path,
    undisturbed: dict[str, object],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(root)
    limits = (100, 400, 1000, 1500, 4000, 10_000, 30_000, 100_000, 200_000)
    assert until_done(capsys, map(file_limit, limits), *OWN, "runs=sizes") >= 6
    assert made(root / "sizes" / "tiny") == undisturbed


@pytest.mark.slow
def test_every_file_in_turn(
    root: Path,
    undisturbed: dict[str, object],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(root)
    assert until_done(capsys, (syncs(7) for _ in range(60)), *OWN, "runs=syncs") >= 20
    assert made(root / "syncs" / "tiny") == undisturbed
