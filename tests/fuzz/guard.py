"""Limits around one fuzzed call: no program, no connection, no traceback, at most 2 GB and 30 seconds."""

import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from hypothesis import HealthCheck, settings

from priormatch.errors import UserError

Result = TypeVar("Result")

INPUTS = int(os.environ.get("FUZZ_INPUTS", "200"))
"""Inputs per target: `make fuzz INPUTS=20000` for a long run."""

MOST_BYTES = 2 << 30
MOST_SECONDS = 30
FORBIDDEN = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn", "socket.")

fuzzed = settings(
    max_examples=INPUTS,
    deadline=None,
    derandomize=INPUTS <= 200,  # the slow tests repeat themselves; a long run explores
    suppress_health_check=list(HealthCheck),
)
"""Decorator for a fuzz target, under `@given`."""


class Forbidden(BaseException):
    """The input made the program start another one, or open a connection, or run out of time."""


_armed = False


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if _armed and event.startswith(FORBIDDEN):
        raise Forbidden(f"{event} {arguments!r}")


sys.addaudithook(_audit)


def survives(
    function: Callable[..., Result], *arguments: object, refusals: tuple[type[Exception], ...] = ()
) -> Result | None:
    """Call a function within the limits; its result, or None where it refused the input with a `UserError`.

    Any other exception, a MemoryError among them, fails the test, unless `refusals` names it.
    """
    expected: tuple[type[Exception], ...] = (UserError, *refusals)
    with limits():
        try:
            return function(*arguments)
        except expected as refusal:
            message = str(refusal)
            if not message or "Traceback" in message or len(message) > 2000:
                raise AssertionError(f"not a message for a user: {message[:200]!r}") from refusal
            return None


@contextmanager
def limits() -> Iterator[None]:
    """Allow 2 GB more than now and 30 seconds; forbid programs and connections."""
    global _armed
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    before = signal.signal(signal.SIGALRM, _too_long)
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, hard))
    signal.alarm(MOST_SECONDS)
    _armed = True
    try:
        yield
    finally:
        _armed = False
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGALRM, before)


def _too_long(*_: object) -> None:
    raise Forbidden(f"took more than {MOST_SECONDS} s")
