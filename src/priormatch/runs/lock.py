"""Folder locks: only one process at a time works in the folder of a stage, and only one in that of a whole run."""

import errno
import fcntl
import os
import platform
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from priormatch.distributed import is_main
from priormatch.errors import UserError
from priormatch.progress import say

STAGE_LOCK = "stage.lock"
RUN_LOCK = "run.lock"
LEASE = 60.0
"""Seconds after which a process on another machine counts as gone if it has not touched its lock file since.

Some file systems do not share locks between machines.
"""
BEAT = 15.0  # seconds between such touches

# POSIX record locks (lockf) rather than flock: a forked reader process does not inherit them, so they end with the
# process that took them, however it ends. They do not exclude threads of one process, and closing any descriptor of
# the file releases the lock. So this process must never reopen a file that it has locked; `_held` ensures this.
_held: dict[Path, int] = {}
"""Lock files and the process that holds each: a forked child inherits the dictionary, but not the locks."""
_opening = threading.Lock()


@contextmanager
def alone_in(folder: Path, name: str = STAGE_LOCK) -> Iterator[None]:
    """Lock a folder against other processes; raise an error if another process holds the lock.

    The main process of a job does so for all. Work inside the folder of a run also takes a shared lock on every
    enclosing run, which excludes a process that holds that run.
    """
    if not is_main():
        yield
        return
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
    """Lock one file, exclusively or shared; `folder` is its folder as the user wrote it."""
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
        if shared:
            yield
        else:
            _wait_for_lease(descriptor, folder)
            with _signed(descriptor):
                yield
    finally:
        with _opening:
            del _held[file]
            os.close(descriptor)


@contextmanager
def _signed(descriptor: int) -> Iterator[None]:
    """Name this process in a lock file, and touch the file now and then, for processes on other machines."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()} {platform.node()} {_now()}\n".encode(), 0)
    ended = threading.Event()

    def touch() -> None:
        while not ended.wait(BEAT):
            with suppress(OSError):
                os.utime(descriptor)

    toucher = threading.Thread(target=touch, daemon=True)
    toucher.start()
    try:
        yield
    finally:
        ended.set()
        toucher.join()
        os.ftruncate(descriptor, 0)


def _wait_for_lease(descriptor: int, folder: Path) -> None:
    """Wait while a process on another machine, which the lock file names, may be alive; refuse if it is."""
    words = os.pread(descriptor, 1000, 0).decode(errors="replace").split(" ", 2)
    if len(words) < 3 or words[1] == platform.node():
        return  # nobody, or a process of this machine, whose lock has ended with it
    touched = os.fstat(descriptor).st_mtime
    left = min(touched + LEASE - time.time(), LEASE)  # the clock of a file server may be ahead
    if left > 0:
        say(f"{folder}: {_in_words(words)} may still be at work; waiting {left:.0f} s for it to respond")
    end = time.monotonic() + left
    while time.monotonic() < end:
        time.sleep(min(1.0, LEASE / 4))
        if os.fstat(descriptor).st_mtime != touched:
            raise UserError(
                f"another process is at work in {folder} ({_in_words(words)}): wait for it, or stop it"
            )


def _try_lock(file: Path, kind: int) -> int | None:
    """Lock a file and return its descriptor, or None if another process holds the lock."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        fcntl.lockf(descriptor, kind | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # POSIX allows both for a held lock
        os.close(descriptor)
        return None
    except OSError as error:
        os.close(descriptor)
        raise UserError(
            f"{file} cannot be locked ({error.strerror}): remove it, or use another disk"
        ) from error
    return descriptor


def _holder(file: Path) -> tuple[str, bool]:
    """Describe the process that holds a lock, and whether it is the parent of this one."""
    words = file.read_text(encoding="utf-8", errors="replace").split(" ", 2)
    if len(words) < 3:  # a stage inside the run's folder, or the holder is just about to write
        return "process ID not recorded", False
    parent = (words[0], words[1]) == (str(os.getppid()), platform.node())
    return _in_words(words), parent


def _in_words(words: Sequence[str]) -> str:
    """Describe the process that a lock file names."""
    number, host, since = words
    return f"process {number} on {host} since {since.strip()}"


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
