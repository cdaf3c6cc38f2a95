"""What a check found."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from priormatch.errors import UserError

Status = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """One line of the doctor: how it stands, with what, and what to do about it."""

    status: Status
    what: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.status:8} {self.what}{f'; {self.advice}' if self.advice else ''}"


def guarded(check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """The findings of a check, with an error that the user can put right as a problem among them."""
    try:
        yield from check()
    except UserError as error:
        yield Finding("problem", str(error))
