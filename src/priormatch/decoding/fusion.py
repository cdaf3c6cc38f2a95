"""Shallow fusion: a language model's say in the beam search, and limits that keep such a search from going astray."""

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from priormatch.config import FusionSettings, MatchingSettings, Settings
from priormatch.decoding.beam import Beam, Step, beam_search

AcousticStep = Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor, Tensor]]
"""A `Step` that gives log q (B, k, C'), its state, and the frames that are attended to most (B, k)."""

States = tuple[Tensor, Tensor, Tensor]
"""Of the recognizer (B, k, D) and of the language model (B, k, S), and the frame attended to last (B, k)."""


def fused_search(
    acoustic: AcousticStep,
    state: Tensor,
    lm: Step,
    cache: Tensor,
    eos: int,
    longest: int,
    settings: FusionSettings,
) -> Beam:
    """Beam search by log q + λ log p + bonus, where `acoustic` gives log q and `lm` log p.

    state (B, k, D) and cache (B, k, S) are their first states.
    """

    def step(states: States, classes: Tensor | None) -> tuple[Tensor, States]:
        return fused_step(acoustic, lm, states, classes, eos, settings)

    return beam_search(step, first_states(state, cache), eos, longest, settings.beam_threshold)


def fusion_of_hypotheses(settings: Settings) -> FusionSettings | None:
    """How a proposal searches with the prior for the hypotheses of matching; None where it searches alone."""
    return settings.fusion if settings.matching.hypotheses == "asr_lm" else None


def feeds_back(matching: MatchingSettings) -> bool:
    """Whether what is learned from hypotheses comes back in later ones, so that a fault of the search would grow."""
    return matching.refresh != "never"


def untuned(settings: FusionSettings, for_matching: bool = False) -> str:
    """A line for who searches with the prior by values that nobody has tuned."""
    verb = "tune --for-matching" if for_matching else "tune"
    return (
        f"the prior's say in the search is not tuned (weight {settings.lm_weight:g}, beam size {settings.beam_size}):"
        f" `priormatch {verb}` finds better values, for"
    )


def wide_enough(settings: FusionSettings, hypotheses: int) -> FusionSettings:
    """The same, with a beam that so many hypotheses fit in."""
    return replace(settings, beam_size=max(settings.beam_size, hypotheses))


def first_states(state: Tensor, cache: Tensor) -> States:
    """The first states of both, with no frame attended to."""
    return state, cache, torch.zeros_like(state[:, :, 0], dtype=torch.long)


def fused_step(
    acoustic: AcousticStep,
    lm: Step,
    states: States,
    classes: Tensor | None,
    eos: int,
    settings: FusionSettings,
) -> tuple[Tensor, States]:
    """One step of such a search: states and the classes (B, k) chosen last -> added scores (B, k, C'), states."""
    state, cache, before = states
    log_q, state, peaks = acoustic(state, classes)
    log_p, cache = lm(cache, classes)
    scores = fused_scores(log_q, log_p, eos, settings)
    if classes is not None:  # before the first piece there may be any silence
        jumps = (peaks - before).abs()[:, :, None] > settings.attention_jump
        scores = scores.masked_fill(jumps, -math.inf)
    return scores, (state, cache, peaks)


def fused_scores(log_q: Tensor, log_p: Tensor, eos: int, settings: FusionSettings) -> Tensor:
    """log q + λ log p + bonus, which the end does not get, and -inf for a class that must not follow.

    Centered, log p is less its mean over the classes, Σ p log p.
    The end may follow where log q(end) >= γ · max log q, any other class where log q >= max log q - δ. log_q
    (..., C') may have more classes than log_p (..., C), such as cannot be. -> (..., C')
    """
    highest = log_q.amax(dim=-1, keepdim=True)
    allowed = log_q >= highest - settings.token_margin
    allowed[..., eos] = True
    if math.isfinite(settings.eos_threshold):  # else infinity times zero, where q is sure
        allowed[..., eos] = log_q[..., eos] >= settings.eos_threshold * highest[..., 0]
    if settings.centered:
        log_p = log_p - (log_p.exp() * log_p).sum(dim=-1, keepdim=True)
    bonus = log_p.new_full(log_p.shape[-1:], settings.token_bonus)
    bonus[eos : eos + 1].zero_()
    more = log_q.shape[-1] - log_p.shape[-1]
    scores = log_q + functional.pad(settings.lm_weight * log_p + bonus, (0, more))
    return scores.masked_fill(~allowed, -math.inf)
