"""Recorded functions on a GPU; on the CPU they are just called."""

from typing import Any

import pytest
import torch
from narrowing import present
from torch import nn

from priormatch.kernels.graphs import Arena, Gradients, Graphed, Recording

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_on_the_cpu_a_function_is_called_with_its_options() -> None:
    calls = []

    def function(x: torch.Tensor, window: bool | None = None) -> torch.Tensor:
        calls.append(window)
        return x + 1

    assert Graphed(function)(torch.ones(2), window=True).tolist() == [2.0, 2.0]
    assert Graphed(function)(torch.ones(2)).tolist() == [2.0, 2.0]
    assert calls == [True, None]


def test_an_arena_is_as_large_as_the_largest() -> None:
    arena = Arena()
    large = arena.copy("x", torch.arange(6.0).view(2, 3))
    small = arena.copy("x", torch.full((4,), 7.0))
    assert small.tolist() == [7.0] * 4
    assert large.tolist() == [[7.0, 7.0, 7.0], [7.0, 4.0, 5.0]], "they take turns in the same memory"
    larger = arena.copy("x", torch.ones(7))
    other = arena.copy("y", torch.zeros(7))
    assert larger.tolist() == [1.0] * 7
    assert other.tolist() == [0.0] * 7
    assert small.tolist() == [7.0] * 4, "those that are in use stay where they are"


@needs_gpu
def test_each_shape_and_option_is_recorded_once() -> None:
    pytest.importorskip("triton")
    calls = []

    def function(x: Any, double: Any) -> Any:
        calls.append((x.shape, double))
        return x * (2 if double else 3)

    graphed = Graphed(function)
    for shape, double, factor in ((3, True, 2), (3, False, 3), (4, True, 2), (3, True, 2)):
        x = torch.randn(shape, device="cuda")
        torch.testing.assert_close(graphed(x, double=double), x * factor)
    assert len(graphed.recordings) == 3
    assert len(set(calls)) == 3


@needs_gpu
def test_gradients_add_up_and_are_not_touched_by_the_recording() -> None:
    pytest.importorskip("triton")
    model = nn.Linear(3, 1, bias=False).cuda()

    def step(x: Any) -> Any:
        loss = model(x).sum()
        loss.backward()
        return loss.detach()

    graphed = Graphed(step, model.parameters())
    one, two = torch.ones(2, 3, device="cuda"), torch.ones(5, 3, device="cuda")
    for _ in range(2):
        model.zero_grad(set_to_none=True)
        graphed(one)
        graphed(two)
        assert present(model.weight.grad).tolist() == [[7.0, 7.0, 7.0]]


def test_gradients_are_added_at_once() -> None:
    used, unused = nn.Linear(3, 1, bias=False), nn.Linear(2, 1)
    gradients = Gradients([*used.parameters(), *unused.parameters()])
    gradients.attach()
    buffer = present(used.weight.grad)
    for _ in range(2):
        with gradients.added_at_once():
            used(torch.ones(2, 3)).sum().backward()
    assert used.weight.grad is buffer
    assert buffer.tolist() == [[4.0, 4.0, 4.0]]
    assert all(torch.all(present(each.grad) == 0) for each in unused.parameters())


@needs_gpu
def test_noise_is_that_of_the_seed_at_replay() -> None:
    recording = Recording(lambda: torch.rand(4, device="cuda"))

    def draw(seed: Any) -> Any:
        torch.manual_seed(seed)
        return recording().tolist()

    first = draw(1)
    assert draw(2) != first
    assert draw(1) == first
    torch.manual_seed(1)
    assert torch.rand(4, device="cuda").tolist() == first, "as without a recording"
