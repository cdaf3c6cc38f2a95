"""Prefix search equals a sum over all alignments where it is wide, and a slow search over plain lists where not."""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable

import numpy
import pytest
import torch
from ctc_cases import Speech
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from toys import Hypothesis, assert_same, hypotheses

from priormatch.config import ConvLMSettings
from priormatch.decoding.beam import Beam
from priormatch.decoding.prefix_search import (
    PrefixFusion,
    PrefixSearch,
    PrefixSettings,
    extension_pairs,
    greedy_ctc,
    prefix_search,
)
from priormatch.models.conv_lm import ConvLM
from priormatch.models.ctc import ctc_log_likelihood, rescored

PriorScore = Callable[[tuple[int, ...], bool], float]
"""(prefix, whether it is a whole sentence) -> what the language model and the bonus add to its score."""


class ToyLM:
    """A language model that draws the logits of every history at random; counts how often it is called."""

    def __init__(self, classes: int, longest: int, seed: int) -> None:
        random = torch.Generator().manual_seed(seed)
        histories = sum(classes**length for length in range(longest + 1))
        logits = 2 * torch.randn(histories, classes, generator=random, dtype=torch.float64)
        self.log_p, self.classes, self.calls = logits.log_softmax(dim=-1), classes, 0

    def step(self, history: Tensor, classes: Tensor | None) -> tuple[Tensor, Tensor]:
        self.calls += 1
        if classes is not None:
            history = history * self.classes + classes[:, :, None] + 1
        return self.log_p[history[:, :, 0]], history

    def fusion(self, batch: int, lm_weight: float, token_bonus: float, limit: int = 99) -> PrefixFusion:
        cache = torch.zeros(batch, 1, 1, dtype=torch.long)
        return PrefixFusion(self.step, cache, lm_weight, token_bonus, limit)

    def prior(self, lm_weight: float, token_bonus: float) -> PriorScore:
        def score(prefix: tuple[int, ...], whole: bool) -> float:
            history, total = 0, 0.0
            for each in prefix:
                total += lm_weight * self.log_p[history, each].item() + token_bonus
                history = history * self.classes + each + 1
            return total + (lm_weight * self.log_p[history, -1].item() if whole else 0.0)

        return score


small = st.builds(
    Speech,
    utterances=st.integers(1, 3),
    frames=st.integers(1, 5),
    classes=st.integers(2, 3),
    seed=st.integers(0, 10_000),
    barred=st.sampled_from([0.0, 0.0, 0.3]),
)
larger = st.builds(
    Speech,
    utterances=st.integers(1, 3),
    frames=st.integers(1, 9),
    classes=st.integers(2, 7),
    seed=st.integers(0, 10_000),
    barred=st.sampled_from([0.0, 0.0, 0.3]),
)


def no_prior(prefix: tuple[int, ...], whole: bool) -> float:
    return 0.0


def exhaustive(log_q: Tensor, blank: int, prior: PriorScore = no_prior) -> list[Hypothesis]:
    """All label sequences that log_q (T, C) allows, each summed over all its alignments, best first."""
    sums: dict[tuple[int, ...], float] = defaultdict(float)
    for path in itertools.product(range(log_q.shape[1]), repeat=len(log_q)):
        text = tuple(each for each, _ in itertools.groupby(path) if each != blank)
        sums[text] += math.exp(sum(log_q[t, c].item() for t, c in enumerate(path)))
    found = [(text, math.log(each) + prior(text, True)) for text, each in sums.items() if each > 0]
    return sorted(found, key=lambda each: -each[1])


def slow_search(log_q: Tensor, blank: int, width: int, prior: PriorScore = no_prior) -> list[Hypothesis]:
    """Prefix search by dictionaries: (log-probability before a blank, in the last token) of each prefix."""
    kept: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, -math.inf)}
    for frame in log_q.tolist():
        found: dict[tuple[int, ...], tuple[float, float]] = defaultdict(lambda: (-math.inf, -math.inf))
        for prefix, (in_blank, in_token) in kept.items():
            total = numpy.logaddexp(in_blank, in_token)
            before = found[prefix]
            again = in_token + frame[prefix[-1]] if prefix else -math.inf
            found[prefix] = before[0], float(numpy.logaddexp(before[1], again))
            found[prefix] = float(numpy.logaddexp(found[prefix][0], total + frame[blank])), found[prefix][1]
            for c, score in enumerate(frame):
                if c != blank:
                    base = in_blank if prefix[-1:] == (c,) else total
                    before = found[*prefix, c]
                    found[*prefix, c] = before[0], float(numpy.logaddexp(before[1], base + score))
        ranked = sorted(found, key=lambda each: -float(numpy.logaddexp(*found[each])) - prior(each, False))
        kept = {each: found[each] for each in ranked[:width] if max(found[each]) > -math.inf}
    ends = [(each, float(numpy.logaddexp(*kept[each])) + prior(each, True)) for each in kept]
    return sorted(ends, key=lambda each: -each[1])


@settings(max_examples=100, deadline=None)
@given(speech=small, k=st.integers(1, 80))
def test_a_wide_search_is_exhaustive(speech: Speech, k: int) -> None:
    log_q, frames = speech.tensors()
    beam = prefix_search(log_q, frames, speech.blank, PrefixSettings(k, width=80))
    assert beam.ended.all()
    for row in range(speech.utterances):
        expected = exhaustive(log_q[row, : frames[row]], speech.blank)
        assert_same(hypotheses(beam, row), expected[:k])
        assert torch.all(beam.lengths[row, len(expected) :] == 0)
        assert torch.all(beam.scores[row, len(expected) :] == -math.inf)


@settings(max_examples=200, deadline=None)
@given(speech=larger, width=st.integers(1, 9))
def test_it_equals_the_slow_search(speech: Speech, width: int) -> None:
    log_q, frames = speech.tensors()
    beam = prefix_search(log_q, frames, speech.blank, PrefixSettings(width, width))
    for row in range(speech.utterances):
        assert_same(hypotheses(beam, row), slow_search(log_q[row, : frames[row]], speech.blank, width))


@settings(max_examples=60, deadline=None)
@given(
    speech=small,
    lm_weight=st.sampled_from([0.0, 0.5, 1.5]),
    token_bonus=st.sampled_from([-1.0, 0.0, 2.0]),
    everywhere=st.booleans(),
)
def test_a_wide_fused_search_is_exhaustive(
    speech: Speech, lm_weight: float, token_bonus: float, everywhere: bool
) -> None:
    log_q, frames = speech.tensors()
    lm = ToyLM(speech.classes, speech.frames, speech.seed)
    fusion = lm.fusion(speech.utterances, lm_weight, token_bonus)
    beam = fused_search(log_q, frames, speech.blank, PrefixSettings(5, width=70), fusion, everywhere)
    for row in range(speech.utterances):
        expected = exhaustive(log_q[row, : frames[row]], speech.blank, lm.prior(lm_weight, token_bonus))
        assert_same(hypotheses(beam, row), expected[:5])


@settings(max_examples=100, deadline=None)
@given(speech=larger.filter(lambda each: each.frames < 6), width=st.integers(1, 6), everywhere=st.booleans())
def test_fused_search_equals_the_slow_one(speech: Speech, width: int, everywhere: bool) -> None:
    log_q, frames = speech.tensors()
    lm = ToyLM(speech.classes, speech.frames, speech.seed)
    fusion = lm.fusion(speech.utterances, 0.7, 0.3)
    beam = fused_search(log_q, frames, speech.blank, PrefixSettings(width, width), fusion, everywhere)
    for row in range(speech.utterances):
        expected = slow_search(log_q[row, : frames[row]], speech.blank, width, lm.prior(0.7, 0.3))
        assert_same(hypotheses(beam, row), expected)


def fused_search(
    log_q: Tensor,
    frames: Tensor,
    blank: int,
    size: PrefixSettings,
    fusion: PrefixFusion,
    everywhere: bool,
) -> Beam:
    """Prefix search, with the language model evaluated for all prefixes as on a GPU if `everywhere`."""
    search = PrefixSearch(log_q, frames, blank, size, fusion)
    assert search.prior is not None
    search.prior.everywhere = everywhere
    for _ in range(search.steps):
        search.advance()
    return search.found(size.hypotheses)


def test_a_search_can_start_again() -> None:
    speech, lm = Speech(3, 7, 4, seed=3), ToyLM(4, longest=7, seed=3)
    log_q, frames = speech.tensors()
    search = PrefixSearch(log_q, frames, speech.blank, PrefixSettings(4, 6), lm.fusion(3, 0.7, 0.3))
    for _ in range(3):
        search.advance()
    search.restart()
    for _ in range(search.steps):
        search.advance()
    again = search.found(4)
    expected = prefix_search(log_q, frames, speech.blank, PrefixSettings(4, 6), lm.fusion(3, 0.7, 0.3))
    assert all(map(torch.equal, vars(again).values(), vars(expected).values()))


def test_fusion_with_the_convolutional_language_model() -> None:
    torch.manual_seed(1)
    lm = ConvLM(
        ConvLMSettings(embedding=8, width=8, kernel=3, bottlenecks=[[4, 8, 1]], head=8, dropout=0.0), 4
    )
    lm.fuse()
    log_q, frames = Speech(2, 5, 4, seed=2).tensors()

    def prior(prefix: tuple[int, ...], whole: bool) -> float:
        log_p = lm(torch.tensor([[*prefix, 3]])).log_softmax(dim=-1)[0]
        scores = [log_p[u, each].item() for u, each in enumerate((*prefix, 3))]
        return 0.8 * sum(scores if whole else scores[:-1]) + 0.5 * len(prefix)

    beam = prefix_search(
        log_q, frames, 3, PrefixSettings(4, 6), PrefixFusion(lm.step, lm.first_cache(2, 1), 0.8, 0.5)
    )
    for row in range(2):
        assert_same(hypotheses(beam, row), slow_search(log_q[row, : frames[row]], 3, 6, prior)[:4])


def test_the_language_model_is_called_only_for_new_prefixes() -> None:
    log_q = torch.tensor([[0.5, 0.5], [0.0, 1.0], [0.0, 1.0], [0.5, 0.5], [0.0, 1.0]]).log()[None]
    lm = ToyLM(2, 3, seed=0)
    prefix_search(log_q, torch.tensor([5]), 1, PrefixSettings(2, 4), lm.fusion(1, 0.5, 0.0))
    assert lm.calls == 3  # at the start and after frames 0 and 3


def test_a_limit_of_tokens_drops_the_least_probable() -> None:
    log_q = torch.tensor([[[0.3, 0.2, 0.1, 0.4]]]).log()
    fusion = ToyLM(4, 1, seed=0).fusion(1, 0.0, 0.0, limit=2)
    beam = prefix_search(log_q, torch.tensor([1]), 3, PrefixSettings(4, 4), fusion)
    assert [text for text, _ in hypotheses(beam, 0)] == [(), (0,), (1,)]


@settings(max_examples=60, deadline=None)
@given(speech=larger, width=st.integers(1, 6), more=st.integers(0, 4))
def test_batch_and_padding_change_nothing(speech: Speech, width: int, more: int) -> None:
    log_q, frames = speech.tensors()
    beam = prefix_search(log_q, frames, speech.blank, PrefixSettings(3, width))
    padding = torch.full((speech.utterances, more, speech.classes), math.nan, dtype=log_q.dtype)
    padded = prefix_search(torch.cat([log_q, padding], 1), frames, speech.blank, PrefixSettings(3, width))
    for row in range(speech.utterances):
        own = log_q[row : row + 1, : frames[row]]
        alone = prefix_search(own, frames[row : row + 1], speech.blank, PrefixSettings(3, width))
        assert_same(hypotheses(beam, row), hypotheses(alone, 0))
        assert_same(hypotheses(beam, row), hypotheses(padded, row))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), width=st.integers(1, 16), barred=st.sampled_from([0.0, 0.6]))
def test_no_text_occurs_twice(seed: int, width: int, barred: float) -> None:
    log_q, frames = Speech(4, 30, 4, seed, barred).tensors()
    beam = prefix_search(log_q, frames, 3, PrefixSettings(width, width))
    for row in range(4):
        found = [text for text, _ in hypotheses(beam, row)]
        assert len(set(found)) == len(found)
        assert all(3 not in text for text in found)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), width=st.integers(1, 8))
def test_scores_are_lower_bounds_that_rescoring_makes_exact(seed: int, width: int) -> None:
    log_q, frames = Speech(4, 20, 5, seed).tensors()
    beam = prefix_search(log_q, frames, 4, PrefixSettings(4, width))
    exact = ctc_log_likelihood(log_q, frames, beam.classes, beam.lengths, 4)
    assert torch.all(beam.scores <= exact + 1e-9)
    again = rescored(beam, log_q, frames, 4)
    assert torch.equal(again.scores, exact.sort(dim=1, descending=True).values)


def test_utterances_without_frames_have_the_empty_text() -> None:
    for steps in (0, 3):
        log_q = torch.randn(2, steps, 4).log_softmax(dim=-1)
        beam = prefix_search(log_q, torch.tensor([0, 0]), 3, PrefixSettings(3, 5))
        assert beam.classes.tolist() == [[[3]] * 3] * 2
        assert beam.lengths.tolist() == [[1, 0, 0]] * 2
        assert beam.scores.tolist() == [[0.0, -math.inf, -math.inf]] * 2
        greedy = greedy_ctc(log_q, torch.tensor([0, 0]), 3)
        assert (greedy.classes.tolist(), greedy.lengths.tolist()) == ([[[3]]] * 2, [[1]] * 2)


def test_an_impossible_utterance_has_no_hypothesis() -> None:
    log_q = torch.full((1, 2, 3), -math.inf)
    beam = prefix_search(log_q, torch.tensor([2]), 2, PrefixSettings(2, 3))
    assert beam.lengths.tolist() == [[0, 0]]
    assert beam.scores.tolist() == [[-math.inf] * 2]


def test_a_prefix_that_returns_to_the_beam_finds_its_extensions() -> None:
    returned = 0
    for seed in range(60):
        log_q, _ = Speech(1, 9, 3, seed).tensors()
        kept = [{text for text, _ in slow_search(log_q[0, :t], 2, width=4)} for t in range(10)]
        for before, now in itertools.pairwise(kept):
            returned += any(text[:-1] in now - before for text in now & before if text)
        beam = prefix_search(log_q, torch.tensor([9]), 2, PrefixSettings(4, 4))
        assert_same(hypotheses(beam, 0), slow_search(log_q[0], 2, width=4))
    assert returned > 0  # prefixes that were dropped while longer ones stayed


def test_pauses_may_be_skipped() -> None:
    random = torch.Generator().manual_seed(0)
    path = torch.tensor([3, 3, 3, 0, 3, 3, 3, 0, 3, 1, 1, 3, 3, 3, 3])
    logits = torch.randn(2, 15, 4, generator=random, dtype=torch.float64)
    logits.scatter_add_(2, path.expand(2, -1)[:, :, None], torch.full((2, 15, 1), 12.0, dtype=logits.dtype))
    log_q, frames = logits.log_softmax(dim=-1), torch.tensor([15, 12])
    exact = prefix_search(log_q, frames, 3, PrefixSettings(1, 8))
    quick = prefix_search(log_q, frames, 3, PrefixSettings(1, 8, blank_threshold=0.99))
    assert len(PrefixSearch(log_q, frames, 3, PrefixSettings(1, 8, 0.99), None).log_q) == 8
    assert torch.equal(quick.classes, exact.classes)
    assert quick.classes[0].tolist() == [[0, 0, 1, 3]]
    torch.testing.assert_close(quick.scores, exact.scores, atol=1e-3, rtol=0)


def test_pairs_shrink_with_the_rank_of_the_prefix() -> None:
    assert extension_pairs(2, 5, pruned=True) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert len(extension_pairs(16, 28, pruned=True)) < 80
    assert len(extension_pairs(16, 28, pruned=False)) == 16 * 28


@settings(max_examples=100, deadline=None)
@given(speech=larger)
def test_greedy_search_collapses_the_best_path(speech: Speech) -> None:
    log_q, frames = speech.tensors()
    beam = greedy_ctc(log_q, frames, speech.blank)
    for row in range(speech.utterances):
        scores, path = log_q[row, : frames[row]].max(dim=1)
        text = tuple(each for each, _ in itertools.groupby(path.tolist()) if each != speech.blank)
        if scores.sum() > -math.inf:
            assert_same(hypotheses(beam, row), [(text, scores.sum().item())])
    assert torch.all(beam.classes[:, :, -1] == speech.blank)


def test_greedy_search_by_hand() -> None:
    path = torch.tensor([[0, 0, 2, 0, 1, 1, 2], [2, 1, 1, 1, 0, 0, 0]])
    log_q = (torch.nn.functional.one_hot(path, 3) * 0.7 + 0.1).log()
    beam = greedy_ctc(log_q, torch.tensor([7, 4]), 2)
    assert beam.classes.tolist() == [[[0, 0, 1, 2]], [[1, 2, 2, 2]]]
    assert beam.lengths.tolist() == [[4], [2]]
    assert beam.scores[:, 0].tolist() == pytest.approx([7 * math.log(0.8), 4 * math.log(0.8)])
