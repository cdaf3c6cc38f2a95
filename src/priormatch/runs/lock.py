"""Locks of folders: one process at a time works in the folder of a stage, and one in the folder of a whole run."""

import errno
import fcntl
import os
import platform
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from priormatch.errors import UserError

STAGE_LOCK = "stage.lock"
RUN_LOCK = "run.lock"

# POSIX record locks (lockf) rather than flock: a forked reader process does not inherit them, so they end with the
# process that took them, however it ends. They do not exclude threads of one process, and closing any descriptor of
# the file gives the lock up; so a file that this process holds is never opened again, which `_held` takes care of.
_held: dict[Path, int] = {}
"""Lock files, and the process that holds them: a forked child inherits the dictionary, but not the locks."""
_opening = threading.Lock()


@contextmanager
def alone_in(folder: Path, name: str = STAGE_LOCK) -> Iterator[None]:
    """Hold a folder, so that no second process works in it at the same time; refuses where one does.

    Work inside the folder of a run also waits for that run: it shares the lock of every run around it.
    """
    place = Path(os.path.realpath(folder))
    around = place.parents if name == RUN_LOCK else (place, *place.parents)
    with ExitStack() as locks:
        for each in around:
            if (each / RUN_LOCK).is_file():
                locks.enter_context(_locked(each / RUN_LOCK, each, fcntl.LOCK_SH))
        locks.enter_context(_locked(place / name, folder, fcntl.LOCK_EX))
        yield


@contextmanager
def _locked(file: Path, folder: Path, kind: int) -> Iterator[None]:
    """Lock one file, exclusively or together with others; `folder` is its folder as the user wrote it."""
    shared = kind == fcntl.LOCK_SH
    with _opening:
        mine = _held.get(file) == os.getpid()
        descriptor = None if mine else _try_lock(file, kind)
        if descriptor is not None:
            _held[file] = os.getpid()
    if descriptor is None:
        who, parent = ("this process", False) if mine else _holder(file)
        if shared and (mine or parent):  # the run that this work belongs to
            yield
            return
        raise UserError(f"another process is at work in {folder} ({who}): wait for it, or stop it")
    try:
        if not shared:
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()} {platform.node()} {_now()}\n".encode())
        yield
    finally:
        if not shared:
            os.ftruncate(descriptor, 0)
        with _opening:
            del _held[file]
            os.close(descriptor)


def _try_lock(file: Path, kind: int) -> int | None:
    """A descriptor of the locked file, or None where another process holds it."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        fcntl.lockf(descriptor, kind | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # the two that POSIX allows
        os.close(descriptor)
        return None
    except OSError as error:
        os.close(descriptor)
        raise UserError(
            f"{file} cannot be locked ({error.strerror}): remove it, or use another disk"
        ) from error
    return descriptor


def _holder(file: Path) -> tuple[str, bool]:
    """Which process holds a lock, in words, and whether it is the parent of this one."""
    words = file.read_text(encoding="utf-8", errors="replace").split(" ", 2)
    if len(words) < 3:  # a stage inside of the run's folder, or the holder is just about to write
        return "which has not left its number", False
    number, host, since = words
    parent = (number, host) == (str(os.getppid()), platform.node())
    return f"process {number} on {host} since {since.strip()}", parent


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
