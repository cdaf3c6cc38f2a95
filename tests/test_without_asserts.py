"""The fast tests pass under `python -O`, which leaves out every assert of the package."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_fast_tests_pass_without_asserts() -> None:
    """Nothing that the package does depends on an assert.

    pytest rewrites the asserts in test files and in conftest.py into plain code, so these are still checked. Those of
    the package, of helper modules in `tests` and of libraries are left out, also in the processes that tests start.
    """
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=ROOT,
        env={**os.environ, "PYTHONOPTIMIZE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-10_000:] + ended.stderr[-1000:]
