"""Shallow fusion: beam search with a weighted language model, and limits that prevent its typical failures."""

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from priormatch.config import FusionSettings, MatchingSettings, Settings
from priormatch.decoding.beam import Beam, Step, beam_search

AcousticStep = Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor, Tensor]]
"""A `Step` that returns log q (B, k, C'), its state, and the frames with the highest attention weight (B, k)."""

States = tuple[Tensor, Tensor, Tensor]
"""States of the recognizer (B, k, D) and the language model (B, k, S), and the last attention peak (B, k)."""


def fused_search(
    acoustic: AcousticStep,
    state: Tensor,
    lm: Step,
    cache: Tensor,
    eos: int,
    longest: int,
    *,
    settings: FusionSettings,
) -> Beam:
    """Beam search by log q + λ log p + bonus, where `acoustic` returns log q and `lm` returns log p.

    state (B, k, D) and cache (B, k, S) are their initial states.
    """

    def step(states: States, classes: Tensor | None) -> tuple[Tensor, States]:
        return fused_step(acoustic, lm, states, classes, eos, settings)

    return beam_search(step, first_states(state, cache), eos, longest, settings.beam_threshold)


def fusion_of_hypotheses(settings: Settings) -> FusionSettings | None:
    """The fusion settings for the proposal's search in matching; None if it decodes without the prior."""
    return settings.fusion if settings.matching.hypotheses == "asr_lm" else None


def feeds_back(matching: MatchingSettings) -> bool:
    """Whether later hypotheses come from a model trained on earlier ones, so that search errors would grow."""
    return matching.refresh != "never"


def untuned(settings: FusionSettings, for_matching: bool = False) -> str:
    """The message for shallow fusion with untuned values; the caller appends the option that takes tuned ones."""
    verb = "tune --for-matching" if for_matching else "tune"
    return (
        f"shallow fusion is not tuned (LM weight {settings.lm_weight:g}, beam size {settings.beam_size}):"
        f" run `priormatch {verb}` to find better values for"
    )


def wide_enough(settings: FusionSettings, hypotheses: int) -> FusionSettings:
    """The same settings with a beam size of at least `hypotheses`."""
    return replace(settings, beam_size=max(settings.beam_size, hypotheses))


def first_states(state: Tensor, cache: Tensor) -> States:
    """The initial states of both models, with the attention peak at frame 0."""
    return state, cache, torch.zeros_like(state[:, :, 0], dtype=torch.long)


def fused_step(
    acoustic: AcousticStep,
    lm: Step,
    states: States,
    classes: Tensor | None,
    eos: int,
    settings: FusionSettings,
) -> tuple[Tensor, States]:
    """One step of a fused search: states and the last chosen classes (B, k) -> added scores (B, k, C'), states."""
    state, cache, before = states
    log_q, state, peaks = acoustic(state, classes)
    log_p, cache = lm(cache, classes)
    scores = fused_scores(log_q, log_p, eos, settings)
    if classes is not None:  # silence before the first piece may have any length
        jumps = (peaks - before).abs()[:, :, None] > settings.attention_jump
        scores = scores.masked_fill(jumps, -math.inf)
    return scores, (state, cache, peaks)


def fused_scores(log_q: Tensor, log_p: Tensor, eos: int, settings: FusionSettings) -> Tensor:
    """log q + λ log p + bonus, with -inf for classes that are not allowed; the end of sentence gets no bonus.

    If centered, the mean over the classes, Σ p log p, is subtracted from log p.
    The end is allowed if log q(end) >= γ · max log q, any other class if log q >= max log q - δ. log_q (..., C') may
    have more classes than log_p (..., C), from padding. -> (..., C')
    """
    highest = log_q.amax(dim=-1, keepdim=True)
    allowed = log_q >= highest - settings.token_margin
    allowed[..., eos] = True
    if math.isfinite(settings.eos_threshold):  # otherwise infinity times zero where max log q is 0
        allowed[..., eos] = log_q[..., eos] >= settings.eos_threshold * highest[..., 0]
    if settings.centered:
        log_p = log_p - (log_p.exp() * log_p).sum(dim=-1, keepdim=True)
    bonus = log_p.new_full(log_p.shape[-1:], settings.token_bonus)
    bonus[eos : eos + 1].zero_()
    more = log_q.shape[-1] - log_p.shape[-1]
    scores = log_q + functional.pad(settings.lm_weight * log_p + bonus, (0, more))
    return scores.masked_fill(~allowed, -math.inf)
