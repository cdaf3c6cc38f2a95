"""Shares of time."""

import time

import pytest
import torch

from priormatch.stopwatch import Stopwatch


def test_shares_are_of_the_time_since_last_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([0.0, 1.0, 4.0, 5.0, 100.0, 103.0, 103.0, 104.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(moments))
    watch = Stopwatch(torch.device("cpu"))
    for name in ("data", "gradient", "data"):
        watch.lap(name)
    assert watch.shares() == pytest.approx({"data": 0.4, "gradient": 0.6})
    watch.lap("data")
    assert watch.shares() == pytest.approx({"data": 1.0})
    assert watch.shares() == {}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_is_timed_by_its_own_clock() -> None:
    watch = Stopwatch(torch.device("cuda"))
    torch.randn(4096, 4096, device="cuda") @ torch.randn(4096, 4096, device="cuda")
    watch.lap("product")
    watch.lap("nothing")
    shares = watch.shares()
    assert shares["product"] > shares["nothing"]
