"""The result of a check."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from priormatch.errors import UserError

Status = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's output: a status, what was found, and what to do about it."""

    status: Status
    what: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.status:8} {self.what}{f'; {self.advice}' if self.advice else ''}"


def guarded(check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Yield the findings of a check; a `UserError` becomes a problem."""
    try:
        yield from check()
    except UserError as error:
        yield Finding("problem", str(error))
