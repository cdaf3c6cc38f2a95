import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from priormatch.config import OptimizerSettings
from priormatch.training.optimizer import learning_rate, make_optimizer, step_if_finite


def test_sgd_halves_every_so_many_updates() -> None:
    settings = OptimizerSettings("sgd", learning_rate=0.08, decay_every=100, decay=0.5)
    rates = [learning_rate(settings, update, 1000) for update in (0, 99, 100, 199, 200, 350)]
    assert rates == pytest.approx([0.08, 0.08, 0.04, 0.04, 0.02, 0.01])


def test_sgd_without_decay_stays() -> None:
    settings = OptimizerSettings("sgd", learning_rate=0.05, decay_every=0)
    assert learning_rate(settings, 10**6, 10**6) == 0.05


def test_adamw_warms_up_linearly_from_its_first_share() -> None:
    settings = OptimizerSettings("adamw", learning_rate=1.0, warm_up=4)
    assert [learning_rate(settings, update, 100) for update in range(4)] == [0.25, 0.5, 0.75, 1.0]


def test_adamw_cosine_is_whole_after_warm_up_half_in_the_middle_and_zero_at_the_end() -> None:
    settings = OptimizerSettings("adamw", learning_rate=2.0, warm_up=10)
    assert learning_rate(settings, 10, 110) == pytest.approx(2.0)
    assert learning_rate(settings, 60, 110) == pytest.approx(1.0)
    assert learning_rate(settings, 35, 110) == pytest.approx(1 + math.cos(math.pi / 4))
    assert learning_rate(settings, 110, 110) == pytest.approx(0.0)
    assert learning_rate(settings, 109, 110) > 0  # the last update still learns


@given(st.integers(0, 50), st.integers(1, 60))
def test_adamw_never_leaves_zero_to_its_rate_and_never_rises_after_warm_up(
    warm_up: int, updates: int
) -> None:
    settings = OptimizerSettings("adamw", learning_rate=1.0, warm_up=warm_up)
    rates = [learning_rate(settings, update, updates) for update in range(updates)]
    assert all(0 < rate <= 1 for rate in rates)
    after = rates[warm_up:]
    assert after == sorted(after, reverse=True)


def test_sgd_step_by_hand_with_momentum_and_weight_decay() -> None:
    weight = nn.Parameter(torch.tensor([1.0]))
    optimizer = make_optimizer([weight], OptimizerSettings("sgd", 0.1, momentum=0.5, weight_decay=0.2))
    expected, velocity = 1.0, 0.0
    for _ in range(3):
        weight.grad = torch.tensor([2.0])
        velocity = 0.5 * velocity + 2.0 + 0.2 * expected
        expected -= 0.1 * velocity
        optimizer.step()
    assert weight.item() == pytest.approx(expected)


def test_adamw_decays_weights_apart_from_the_gradient() -> None:
    weight = nn.Parameter(torch.tensor([1.0]))
    optimizer = make_optimizer([weight], OptimizerSettings("adamw", 0.1, weight_decay=0.5))
    weight.grad = torch.zeros(1)
    optimizer.step()
    assert weight.item() == pytest.approx(1 - 0.1 * 0.5)


@pytest.mark.parametrize(
    "settings",
    [
        OptimizerSettings("sgd", 0.1),
        OptimizerSettings("sgd", 0.1, momentum=0.9),
        OptimizerSettings("adamw", 0.1, weight_decay=0.1),
    ],
)
def test_a_skipped_step_leaves_no_trace(settings: OptimizerSettings) -> None:
    def train(gradients: list[float]) -> torch.Tensor:
        weights = nn.Parameter(torch.ones(1000))
        optimizer = make_optimizer([weights], settings)
        for gradient in gradients:
            weights.grad = torch.full_like(weights, gradient)
            step_if_finite(optimizer, weights.grad.norm())
        return weights.detach()

    expected = train([1.0, 0.5])
    for bad in (math.nan, math.inf):
        assert torch.equal(train([bad, 1.0, 0.5]), expected)
        assert torch.equal(train([1.0, bad, bad, 0.5]), expected)
