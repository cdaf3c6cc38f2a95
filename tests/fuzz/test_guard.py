"""The guard itself catches what it is there for."""

import subprocess

import numpy as np
import pytest
from guard import Forbidden, survives

from priormatch.errors import UserError


def refuse(message: str) -> None:
    raise UserError(message)


def test_refusals_pass() -> None:
    assert survives(refuse, "cuts.jsonl: line 3 is not JSON: fix it") is None
    assert survives(int, "3") == 3


def test_programs_are_caught() -> None:
    with pytest.raises(Forbidden, match="Popen"):
        survives(subprocess.run, ["true"])


def test_memory_is_bounded() -> None:
    with pytest.raises(MemoryError):
        survives(np.ones, 3 << 30, np.uint8)


def test_tracebacks_are_caught() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        survives(int, "three")
    with pytest.raises(AssertionError, match="not a message"):
        survives(refuse, "")
