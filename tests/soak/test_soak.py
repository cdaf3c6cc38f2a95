"""A short soak; `make soak` is the long one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform != "linux", reason="needs pidfds and /proc")
def test_a_run_that_is_killed_ends_as_one_that_is_not() -> None:
    here = Path(__file__)
    environment = {**os.environ, "PYTHONPATH": str(here.parents[2] / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(here.with_name("soak.py")), "--kills", "6"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    summary = json.loads(ended.stdout)
    assert [summary[f"workers_{workers}"]["kills"] for workers in (0, 2)] == [3, 3]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_two_processes_keep_their_memory() -> None:
    """2,000 updates; tests/soak/memory.py makes 10,000 by default."""
    here = Path(__file__)
    path = os.pathsep.join([str(here.parents[2] / "src"), str(here.parents[1])])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(here.with_name("memory.py")), "--updates", "2000"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert json.loads(ended.stdout)["updates"] == 2000
