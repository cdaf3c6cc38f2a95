"""Optimizers and learning-rate schedules."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from priormatch.config import OptimizerSettings


def make_optimizer(parameters: Iterable[nn.Parameter], settings: OptimizerSettings) -> torch.optim.Optimizer:
    """Create an SGD or AdamW optimizer."""
    if settings.kind == "sgd":
        parameters = list(parameters)
        optimizer = torch.optim.SGD(
            parameters,
            settings.learning_rate,
            settings.momentum,
            weight_decay=settings.weight_decay,
            fused=True,
        )
        if settings.momentum > 0:  # torch would leave them uninitialized if the first step is skipped
            for each in parameters:
                optimizer.state[each]["momentum_buffer"] = torch.zeros_like(each)
        return optimizer
    return torch.optim.AdamW(
        parameters, settings.learning_rate, betas=(0.9, 0.98), weight_decay=settings.weight_decay, fused=True
    )


def learning_rate(settings: OptimizerSettings, update: int, updates: int) -> float:
    """The learning rate of an update: step decay for SGD; linear warm-up and cosine decay to zero for AdamW."""
    if settings.kind == "sgd":
        halvings = update // settings.decay_every if settings.decay_every > 0 else 0
        return settings.learning_rate * settings.decay**halvings
    if update < settings.warm_up:
        return settings.learning_rate * (update + 1) / settings.warm_up
    progress = (update - settings.warm_up) / max(updates - settings.warm_up, 1)
    return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))


def step_if_finite(optimizer: torch.optim.Optimizer, norm: Tensor) -> None:
    """Make a step unless the gradient norm is not finite; the device decides, so the host does not wait."""
    optimizer.found_inf = (~norm.isfinite()).float()  # type: ignore[attr-defined]  # as torch's GradScaler does
    optimizer.step()
