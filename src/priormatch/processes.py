"""Process and signal handling: child processes that exit with their parent, and stops deferred to a safe point."""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from priormatch.distributed import is_main
from priormatch.errors import UserError

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
# Loaded here because a forked child must not load libraries.
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
STOPS = (signal.SIGINT, signal.SIGTERM)


def follow(parent: int) -> None:
    """Exit when the parent exits, for any reason, and ignore Ctrl-C; call this first in a child process.

    A terminal sends Ctrl-C to all processes of a command. If it ended the children, the parent could not save.
    Only Linux can kill an orphan. Elsewhere PyTorch's data loader workers check for their parent every few seconds.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if _prctl is not None:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent exited before prctl was called
        os._exit(1)


@contextmanager
def stops_blocked() -> Iterator[None]:
    """Block Ctrl-C and SIGTERM inside the context; processes started there inherit the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def begin_reader(parent: int, _: int) -> None:
    """Obey only the parent's SIGTERM; call this first in a reader process, which starts with stops blocked.

    Clusters send SIGTERM to all processes of a job. If it ended a reader, the parent could not save.
    """
    follow(parent)
    if sys.platform == "linux":
        threading.Thread(target=_end_when_asked, args=(parent,), daemon=True).start()
    else:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _end_when_asked(parent: int) -> None:
    if sys.platform == "linux":  # other systems cannot wait for a signal and identify its sender
        while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent:
            pass
        os._exit(0)


@contextmanager
def explained_readers(*others: type[Exception]) -> Iterator[None]:
    """Turn PyTorch's error about a killed reader process, for example out of memory, into a `UserError`.

    PyTorch raises it when a batch is fetched, or wherever the main thread is when the process ends. `others` are
    further errors with the same meaning here.
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
            # Otherwise PyTorch may raise it again during the report.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        reason = str(known).partition("\n")[0].rstrip(". ") or type(known).__name__
        raise UserError(
            f"a process that reads audio was killed, most likely because the machine is out of memory ({reason}): set"
            " audio.workers lower, or the batches smaller; the same command resumes from its last checkpoint"
        ) from error


def _torchs(error: BaseException | None) -> BaseException | None:
    """Find PyTorch's error about a reader in the chain of an error; None if it is not there."""
    while error is not None:
        if isinstance(error, RuntimeError) and str(error).startswith("DataLoader worker (pid"):
            return error
        error = error.__cause__ or error.__context__
    return None


MOMENT = 1.0  # seconds in which a repeated signal is the same one
STOPPING = (
    b"\npriormatch: stopping after this update, which is then saved; Ctrl-C again stops at once and loses the updates"
    b" since the last checkpoint\n"
)


class Stop:
    """The signal that requested a stop, or None, and when it came."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self.at = 0.0


@contextmanager
def deferred_stop() -> Iterator[Stop]:
    """Defer the first Ctrl-C or SIGTERM to the end of the context; the next one acts at once, but not within a moment.

    `timeout` and process managers send a signal to a process and again to its group. The deferred signal then does what
    it would have done without this context. Ignored signals stay ignored. Outside the main thread, where Python handles
    no signals, this does nothing.
    """
    stop = Stop()
    numbers = STOPS if threading.current_thread() is threading.main_thread() else ()
    handlers = {number: signal.getsignal(number) for number in numbers}
    before = {number: old for number, old in handlers.items() if old not in (signal.SIG_IGN, None)}

    def restore() -> None:
        for number, old in before.items():
            signal.signal(number, old)

    def note(number: int, _: FrameType | None) -> None:
        if stop.signal is None:
            stop.signal, stop.at = number, time.monotonic()
            if is_main():
                os.write(2, STOPPING)
        elif time.monotonic() - stop.at >= MOMENT:
            restore()
            signal.raise_signal(number)

    for number in before:
        signal.signal(number, note)
    try:
        yield stop
    finally:
        restore()
    if stop.signal is not None:
        signal.raise_signal(stop.signal)
        raise KeyboardInterrupt  # the work is not done, even if a handler returned
