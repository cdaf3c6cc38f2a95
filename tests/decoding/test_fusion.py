"""Fused search: the scores by hand, and the search against slow ones, exhaustive ones and the plain one."""

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from narrowing import present
from toys import Scores, Toy, all_sequences, assert_same, hypotheses, slow_search

from priormatch.config import ConvLMSettings, FusionSettings
from priormatch.data.batches import Batch
from priormatch.decoding.beam import Beam
from priormatch.decoding.fusion import fused_scores, fused_search
from priormatch.models.conv_lm import ConvLM
from priormatch.models.decoder import AttentionDecoder, DecoderSteps
from priormatch.recognizers.heads import Frames
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer

NEVER = -math.inf
LOG_Q = torch.tensor([0.5, 0.2, 0.1, 0.2]).log()  # the last is the end
LOG_P = torch.tensor([0.1, 0.4, 0.3, 0.2]).log()
OFF = FusionSettings(token_bonus=0.0, eos_threshold=math.inf)


def added(**values: Any) -> list[float]:
    fusion = replace(replace(OFF, lm_weight=0.5), **values)
    return fused_scores(LOG_Q, LOG_P, 3, fusion).tolist()


def test_scores_by_hand() -> None:
    plain = [math.log(q) + 0.5 * math.log(p) for q, p in zip(LOG_Q.exp(), LOG_P.exp(), strict=True)]
    assert added() == pytest.approx(plain)
    assert added(token_bonus=1.5) == pytest.approx([plain[0] + 1.5, plain[1] + 1.5, plain[2] + 1.5, plain[3]])
    assert added(lm_weight=0.0) == LOG_Q.tolist()


def test_centered_scores_by_hand() -> None:
    entropy = -sum(p * math.log(p) for p in (0.1, 0.4, 0.3, 0.2))
    assert added(centered=True) == pytest.approx([each + 0.5 * entropy for each in added()])
    expected = sum(p * each for p, each in zip(LOG_P.exp().tolist(), added(centered=True), strict=True))
    assert expected == pytest.approx(float((LOG_P.exp() * LOG_Q).sum())), (
        "what the prior expects costs nothing"
    )


def test_centered_a_piece_that_was_foreseen_earns_nothing() -> None:
    """Where the prior is all but sure, a bonus for each piece is won by any word of many such pieces."""
    sure = torch.tensor([-200.0, 0.0, -200.0, -200.0])
    fusion = replace(OFF, lm_weight=0.5, centered=True)
    assert fused_scores(LOG_Q, sure, 3, fusion)[1] == LOG_Q[1]


@pytest.mark.parametrize(
    ("threshold", "may_end"), [(1.0, False), (2.3, False), (2.4, True), (math.inf, True)]
)
def test_an_end_must_be_likely_enough(threshold: float, may_end: bool) -> None:
    assert math.log(0.2) / math.log(0.5) == pytest.approx(2.32, abs=0.01)
    scores = added(eos_threshold=threshold)
    assert (scores[3] > NEVER) is may_end
    assert scores[:3] == added()[:3], "the others do not care"


def test_the_likeliest_class_may_end_at_any_threshold() -> None:
    ends = torch.tensor([0.2, 0.1, 0.1, 0.6]).log()
    assert fused_scores(ends, LOG_P, 3, FusionSettings(eos_threshold=1.0))[3] > NEVER


@pytest.mark.parametrize(("margin", "allowed"), [(0.5, [0]), (1.0, [0, 1]), (1.7, [0, 1, 2])])
def test_other_classes_must_come_close_to_the_best(margin: float, allowed: list[int]) -> None:
    scores = added(token_margin=margin)
    assert [each for each in range(3) if scores[each] > NEVER] == allowed
    assert scores[3] == added()[3], "the end has a rule of its own"


@pytest.mark.parametrize("sure", [0, 3])
@pytest.mark.parametrize("threshold", [1.0, 1.5, math.inf])
def test_where_the_recognizer_is_sure_nothing_is_undefined(sure: int, threshold: float) -> None:
    log_q = torch.full((4,), -200.0)
    log_q[sure] = 0.0
    scores = fused_scores(log_q, LOG_P, 3, FusionSettings(eos_threshold=threshold))
    assert not scores.isnan().any()
    assert scores[sure] > NEVER
    assert bool(scores[3] > NEVER) is (sure == 3 or threshold == math.inf)


def test_classes_that_cannot_be_stay_so() -> None:
    wider = torch.nn.functional.pad(LOG_Q, (0, 3), value=NEVER)
    scores = fused_scores(wider, LOG_P, 3, FusionSettings(token_bonus=2.0))
    assert scores[4:].tolist() == [NEVER] * 3
    assert torch.equal(scores[:4], fused_scores(LOG_Q, LOG_P, 3, FusionSettings(token_bonus=2.0)))


def search(acoustic: Toy, language: Toy, fusion: FusionSettings) -> Beam:
    k, eos, longest = fusion.beam_size, acoustic.eos, acoustic.longest
    states = acoustic.first_state(k), language.first_state(k)
    return fused_search(
        acoustic.with_peaks, states[0], language.step, states[1], eos, longest, settings=fusion
    )


def slow_scores(acoustic: Toy, language: Toy, row: int, fusion: FusionSettings) -> Scores:
    """What each class adds, worked out one class at a time."""

    def of(classes: tuple[int, ...]) -> list[float]:
        log_q, log_p = acoustic.scores_of(row)(classes), language.scores_of(row)(classes)
        mean = sum(math.exp(each) * each for each in log_p) if fusion.centered else 0.0
        best = max(log_q)
        here, before = acoustic.peak_of(row, classes), acoustic.peak_of(row, classes[:-1])
        jumped = len(classes) > 0 and abs(here - before) > fusion.attention_jump
        scores = []
        for each in range(acoustic.classes):
            score = log_q[each] + fusion.lm_weight * (log_p[each] - mean)
            if each == acoustic.eos:
                barred = log_q[each] / best > fusion.eos_threshold  # both are negative
            else:
                score += fusion.token_bonus
                barred = best - log_q[each] > fusion.token_margin
            scores.append(NEVER if barred or jumped else score)
        return scores

    return of


pairs = st.builds(
    lambda utterances, classes, longest, seed, bias: (
        Toy(utterances, classes, longest, seed, bias),
        Toy(utterances, classes, longest, seed + 1),
    ),
    st.integers(1, 3),
    st.integers(2, 5),
    st.integers(1, 4),
    st.integers(0, 10_000),
    st.sampled_from([-2.0, 0.0, 2.0]),
)
fusions = st.builds(
    FusionSettings,
    beam_size=st.integers(1, 5),
    lm_weight=st.sampled_from([0.0, 0.3, 1.0]),
    centered=st.booleans(),
    token_bonus=st.sampled_from([0.0, 0.7, 2.0]),
    eos_threshold=st.sampled_from([1.0, 1.3, 4.0, math.inf]),
    token_margin=st.sampled_from([0.5, 3.0, math.inf]),
    attention_jump=st.sampled_from([0.0, 2.0, 5.0, math.inf]),
    beam_threshold=st.sampled_from([1.0, 4.0, math.inf]),
)


@settings(max_examples=300)
@given(models=pairs, fusion=fusions)
def test_it_equals_the_slow_search(models: tuple[Toy, Toy], fusion: FusionSettings) -> None:
    acoustic, language = models
    beam = search(acoustic, language, fusion)
    assert not beam.scores.isnan().any()
    for row in range(acoustic.utterances):
        scores = slow_scores(acoustic, language, row, fusion)
        limits = acoustic.eos, acoustic.longest, fusion.beam_threshold
        expected, ended = slow_search(scores, fusion.beam_size, *limits)
        assert_same(hypotheses(beam, row), expected)
        assert bool(beam.ended[row]) == ended


@given(models=pairs, k=st.integers(1, 5))
def test_without_a_weight_and_limits_it_is_the_plain_search(models: tuple[Toy, Toy], k: int) -> None:
    acoustic, language = models
    fused = search(acoustic, language, replace(OFF, beam_size=k, lm_weight=0.0))
    plain = acoustic.search(k)
    for name in ("classes", "lengths", "scores", "ended"):
        assert torch.equal(getattr(fused, name), getattr(plain, name))


@given(models=pairs)
def test_an_empty_hypothesis_is_what_is_left_where_every_end_is_barred_and_attention_may_not_move(
    models: tuple[Toy, Toy],
) -> None:
    acoustic, language = models
    acoustic.scores[:, :, acoustic.eos] = -50.0
    acoustic.peaks = torch.arange(acoustic.peaks.shape[1]).expand_as(acoustic.peaks)  # it always does
    beam = search(acoustic, language, FusionSettings(beam_size=2, eos_threshold=1.0, attention_jump=0.0))
    assert not beam.ended.any()
    assert beam.lengths[:, 0].tolist() == [2] * acoustic.utterances, (
        "the first class, and the end put behind it"
    )
    assert torch.isfinite(beam.scores[:, 0]).all()


CLASSES, LONGEST = 4, 3
TINY_LM = ConvLMSettings(embedding=6, width=4, bottlenecks=[[3, 6, 1]], head=5, kernel=3, dropout=0.0)


@pytest.mark.parametrize(("weight", "bonus"), [(0.0, 0.0), (0.4, 0.0), (1.0, 0.0), (0.4, 1.5)])
@torch.no_grad()
def test_a_beam_that_covers_everything_finds_the_best_of_all_sequences(weight: float, bonus: float) -> None:
    decoder, lm = AttentionDecoder(CLASSES, 8).eval(), ConvLM(TINY_LM, CLASSES).eval()
    decoder.output.weight.mul_(4.0)
    lm.output.get_parameter("parametrizations.weight.original0").mul_(3.0)
    memory = decoder.memory(torch.randn(2, 5, 16), torch.tensor([5, 3]))
    eos, k = CLASSES - 1, CLASSES * (CLASSES - 1) ** LONGEST
    fusion = FusionSettings(beam_size=k, lm_weight=weight, token_bonus=bonus, eos_threshold=math.inf)
    states = decoder.first_state(2, k), lm.first_cache(2, k)
    steps = DecoderSteps(decoder, memory).with_peaks
    beam = fused_search(steps, states[0], lm.step, states[1], eos, LONGEST, settings=fusion)

    found = []
    for length in range(LONGEST + 1):
        for classes in itertools.product(range(eos), repeat=length):
            labels = torch.tensor([*classes, eos])
            log_q = decoder(memory, labels.expand(2, 1, -1)).log_softmax(dim=-1)[:, 0]
            log_p = lm(labels[None]).log_softmax(dim=-1)[0]
            rows = torch.arange(length + 1)
            total = log_q[:, rows, labels].sum(dim=1) + weight * log_p[rows, labels].sum() + bonus * length
            found.append((classes, total.tolist()))
    for row in range(2):
        expected = sorted(((classes, total[row]) for classes, total in found), key=lambda item: -item[1])
        assert_same(hypotheses(beam, row), expected)


@given(models=pairs, weight=st.sampled_from([0.3, 1.0]), bonus=st.sampled_from([0.0, 1.0, 3.0]))
@settings(max_examples=30)
def test_so_does_one_over_toys(models: tuple[Toy, Toy], weight: float, bonus: float) -> None:
    acoustic, language = models
    k = acoustic.classes * acoustic.eos**acoustic.longest
    fusion = FusionSettings(beam_size=k, lm_weight=weight, token_bonus=bonus, eos_threshold=math.inf)
    beam = search(acoustic, language, fusion)
    for row in range(acoustic.utterances):
        scores = slow_scores(acoustic, language, row, fusion)
        assert_same(hypotheses(beam, row), all_sequences(scores, acoustic.eos, acoustic.longest)[:k])


@torch.no_grad()
def test_a_recognizer_and_a_prior_together(tiny_recognizer: SpeechRecognizer, tiny_prior: ConvPrior) -> None:
    decoder = present(tiny_recognizer.decoder)
    decoder.output.bias[tiny_recognizer.tokenizer.eos] += 2  # so that hypotheses end
    waveforms, samples = 0.1 * torch.randn(2, 8_000), torch.tensor([8_000, 6_000])
    frames = Frames(*tiny_recognizer.encode(waveforms, samples))
    alone = tiny_recognizer.search_with(tiny_prior.lm, frames, replace(OFF, beam_size=4, lm_weight=0.0))
    plain = tiny_recognizer.propose(Batch.of_audio(waveforms, samples), 4)
    assert torch.equal(alone.classes, plain.classes)
    torch.testing.assert_close(alone.scores, plain.scores)

    fusion = FusionSettings(beam_size=4, lm_weight=0.6, token_bonus=0.5, eos_threshold=math.inf)
    beam = tiny_recognizer.search_with(tiny_prior.lm, frames, fusion)
    assert beam.ended.all()
    log_q = decoder(tiny_recognizer.attention_head.memory(frames), beam.classes).log_softmax(dim=-1)
    exists = torch.arange(beam.classes.shape[2]) < beam.lengths[:, :, None]
    log_q = (log_q.gather(-1, beam.classes[..., None])[..., 0] * exists).sum(dim=-1)
    expected = log_q + 0.6 * tiny_prior.score_classes(beam.classes, beam.lengths) + 0.5 * (beam.lengths - 1)
    torch.testing.assert_close(beam.scores, expected, atol=1e-4, rtol=0)
