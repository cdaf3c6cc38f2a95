"""What a test knows of a value and its type does not: that it is there, or what kind it is."""

from typing import TypeVar

T = TypeVar("T")


def present(value: T | None) -> T:
    """The value, which must not be None."""
    assert value is not None
    return value


def of_type(kind: type[T], value: object) -> T:
    """The value, which must be of that class."""
    assert isinstance(value, kind), f"{type(value)} is no {kind}"
    return value
