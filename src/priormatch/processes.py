"""Processes and signals: children that end with their parent, and stops that wait for a good moment."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from priormatch.errors import UserError

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_prctl = (
    ctypes.CDLL(None).prctl if sys.platform == "linux" else None
)  # a forked child must not load libraries
STOPS = (signal.SIGINT, signal.SIGTERM)


def follow(parent: int) -> None:
    """First call of a child process: end with the parent, however that ends, and leave Ctrl-C to it.

    A terminal sends Ctrl-C to all processes of a command; children that ended by it would keep the parent from saving.
    Only Linux can kill an orphan; elsewhere readers look for their parent every few seconds, as torch makes them.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if _prctl is not None:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before we could ask
        os._exit(1)


@contextmanager
def stops_blocked() -> Iterator[None]:
    """Block Ctrl-C and SIGTERM for a moment: processes that start meanwhile inherit the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def begin_reader(parent: int, _: int) -> None:
    """First call of a reader process, which starts with stops blocked: only its parent ends it.

    Clusters send SIGTERM to all processes of a job; a reader that ended by it would keep the parent from saving.
    """
    follow(parent)
    if sys.platform == "linux":
        threading.Thread(target=_end_when_asked, args=(parent,), daemon=True).start()
    else:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _end_when_asked(parent: int) -> None:
    if sys.platform == "linux":  # others cannot wait for a signal and learn who sent it
        while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent:
            pass
        os._exit(0)


@contextmanager
def explained_readers(*others: type[Exception]) -> Iterator[None]:
    """Turn torch's error about a reader process that was killed, as for lack of memory, into a sentence.

    Torch raises it when a batch is fetched, or wherever the main thread is when the process ends. `others` are errors
    that mean the same here.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        known = _torchs(error) or (error if isinstance(error, others) else None)
        if known is None:
            raise
        if threading.current_thread() is threading.main_thread():
            signal.signal(
                signal.SIGCHLD, signal.SIG_DFL
            )  # else torch may raise it again while this is reported
        reason = str(known).partition("\n")[0].rstrip(". ") or type(known).__name__
        raise UserError(
            f"a process that reads audio was killed, most likely because the machine is out of memory ({reason}): set"
            " audio.workers lower, or the batches smaller; the same command resumes from its last checkpoint"
        ) from error


def _torchs(error: BaseException | None) -> BaseException | None:
    """Torch's error about a reader, or None; others may have failed over it, wherever it was raised."""
    while error is not None:
        if isinstance(error, RuntimeError) and str(error).startswith("DataLoader worker (pid"):
            return error
        error = error.__cause__ or error.__context__
    return None


class Stop:
    """Whether a stop is wanted: the signal that asked for it, or None."""

    def __init__(self) -> None:
        self.signal: int | None = None


@contextmanager
def deferred_stop() -> Iterator[Stop]:
    """Let the first Ctrl-C or SIGTERM only set a flag, and act on it at the end; the second one acts at once.

    To act is what the signal would have done without this. A signal that is ignored stays ignored, and outside of the
    main thread, where Python handles no signals, this does nothing.
    """
    stop = Stop()
    numbers = STOPS if threading.current_thread() is threading.main_thread() else ()
    handlers = {number: signal.getsignal(number) for number in numbers}
    before = {number: old for number, old in handlers.items() if old not in (signal.SIG_IGN, None)}

    def restore() -> None:
        for number, old in before.items():
            signal.signal(number, old)

    def note(number: int, _: FrameType | None) -> None:
        stop.signal = number
        restore()
        os.write(2, b"\npriormatch: stopping after this update; press Ctrl-C again to stop at once\n")

    for number in before:
        signal.signal(number, note)
    try:
        yield stop
    finally:
        if stop.signal is None:
            restore()
    if stop.signal is not None:
        signal.raise_signal(stop.signal)
        raise KeyboardInterrupt  # whatever handled it, the work is not done
