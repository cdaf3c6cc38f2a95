"""CTC equals PyTorch's, and sums and maxima over all alignments of small cases."""

import itertools
import math

import pytest
import torch
from ctc_cases import Case, of_pytorch
from hypothesis import given, settings
from hypothesis import strategies as st
from narrowing import present
from torch import Tensor
from torch.nn import functional

from priormatch.decoding.beam import Beam
from priormatch.models.ctc import ctc_alignment, ctc_log_likelihood, rescored

cases = st.builds(
    Case,
    utterances=st.integers(1, 3),
    frames=st.integers(1, 9),
    classes=st.integers(2, 4),
    k=st.integers(1, 3),
    longest=st.integers(1, 6),
    seed=st.integers(0, 10_000),
)
small_cases = st.builds(
    Case,
    utterances=st.integers(1, 3),
    frames=st.integers(1, 5),
    classes=st.integers(2, 3),
    k=st.integers(1, 3),
    longest=st.integers(1, 4),
    seed=st.integers(0, 10_000),
)


def alignments(log_q: Tensor, labels: list[int], blank: int) -> list[tuple[float, tuple[int, ...]]]:
    """All paths (T,) through log_q (T, C) that collapse to the labels, with their log-probabilities."""
    paths = itertools.product(range(log_q.shape[1]), repeat=len(log_q))
    return [
        (sum(log_q[t, c].item() for t, c in enumerate(path)), path)
        for path in paths
        if [each for each, _ in itertools.groupby(path) if each != blank] == labels
    ]


@settings(max_examples=200, deadline=None)
@given(case=cases)
def test_values_and_gradients_are_those_of_pytorch(case: Case) -> None:
    logits, frames, labels, lengths = case.tensors()
    weights = torch.randn(lengths.shape, generator=torch.Generator().manual_seed(case.seed)).to(logits)
    found = []
    for function in (ctc_log_likelihood, of_pytorch):
        mine = logits.clone().requires_grad_()
        values = function(mine.log_softmax(dim=-1), frames, labels, lengths, case.blank)
        values = values.masked_fill(values.isinf(), 0.0)
        (values * weights).sum().backward()
        found.append((values.detach(), mine.grad))
    torch.testing.assert_close(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1])


@pytest.mark.parametrize(("frames", "classes", "longest"), [(200, 29, 60), (120, 500, 30), (90, 3, 40)])
def test_float32_is_close_to_float64_as_that_of_pytorch_is(frames: int, classes: int, longest: int) -> None:
    case = Case(4, frames, classes, 2, longest, dtype=torch.float32)
    logits, frames_, labels, lengths = case.tensors()
    frames_ = frames_.clamp(min=2 * longest)
    gradients, values = [], []
    for function, dtype in (
        (of_pytorch, torch.float64),
        (of_pytorch, torch.float32),
        (ctc_log_likelihood, torch.float32),
    ):
        mine = logits.clone().to(dtype).requires_grad_()
        value = function(mine.log_softmax(dim=-1), frames_, labels, lengths, case.blank)
        value.masked_fill(value.isinf(), 0.0).sum().backward()
        values.append(value.detach().masked_fill(value.isinf(), 0.0).double())
        gradients.append(present(mine.grad).double())
    for found in (values, gradients):
        theirs, ours = ((each - found[0]).abs().max().item() for each in found[1:])
        assert ours < 3 * theirs + 1e-5


@settings(max_examples=100, deadline=None)
@given(case=small_cases)
def test_it_is_the_sum_over_all_alignments(case: Case) -> None:
    logits, frames, labels, lengths = case.tensors()
    log_q = logits.log_softmax(dim=-1)
    found = ctc_log_likelihood(log_q, frames, labels, lengths, case.blank)
    for b, k in itertools.product(range(case.utterances), range(case.k)):
        if lengths[b, k] == 0:
            assert found[b, k] == -math.inf
            continue
        text = labels[b, k, : lengths[b, k] - 1].tolist()
        paths = alignments(log_q[b, : frames[b]], text, case.blank)
        expected = math.log(sum(math.exp(score) for score, _ in paths)) if paths else -math.inf
        assert found[b, k].item() == pytest.approx(expected, abs=1e-9)


def test_by_hand_with_a_repeated_label() -> None:
    log_q = torch.tensor([[[0.5, 0.2, 0.3], [0.1, 0.6, 0.3], [0.4, 0.2, 0.4]]]).log()
    labels = torch.tensor([[[0, 0, 2], [0, 1, 2], [2, 2, 2], [2, 2, 2]]])
    found = ctc_log_likelihood(log_q, torch.tensor([3]), labels, torch.tensor([[3, 3, 1, 0]]), 2).exp()
    ab = 0.5 * 0.6 * 0.2 + 0.5 * 0.6 * 0.4 + 0.5 * 0.1 * 0.2 + 0.5 * 0.3 * 0.2 + 0.3 * 0.1 * 0.2
    assert found[0].tolist() == pytest.approx([0.5 * 0.3 * 0.4, ab, 0.3 * 0.3 * 0.4, 0.0])


@settings(max_examples=100, deadline=None)
@given(case=cases, more_frames=st.integers(0, 3), more_labels=st.integers(0, 3))
def test_padding_changes_nothing(case: Case, more_frames: int, more_labels: int) -> None:
    logits, frames, labels, lengths = case.tensors()
    log_q = logits.log_softmax(dim=-1).requires_grad_()
    longer = functional.pad(log_q.detach(), (0, 0, 0, more_frames), value=7.0).requires_grad_()
    wider = functional.pad(labels, (0, more_labels), value=case.blank)
    found = ctc_log_likelihood(log_q, frames, labels, lengths, case.blank)
    again = ctc_log_likelihood(longer, frames, wider, lengths, case.blank)
    torch.testing.assert_close(again, found)
    torch.autograd.backward([found.sum(), again.sum()])
    gradient = present(longer.grad)
    torch.testing.assert_close(gradient[:, : case.frames], log_q.grad)
    assert torch.all(gradient[:, case.frames :] == 0)
    own = ctc_log_likelihood(log_q[:1, : frames[0]], frames[:1], labels[:1], lengths[:1], case.blank)
    torch.testing.assert_close(own[0], found[0])


def test_gradcheck() -> None:
    case = Case(utterances=2, frames=6, k=2, longest=4, seed=3)
    logits, _, labels, _ = case.tensors()
    frames, lengths = torch.tensor([6, 4]), torch.tensor([[4, 1], [3, 2]])

    def function(log_q: Tensor) -> Tensor:
        return ctc_log_likelihood(log_q, frames, labels, lengths, case.blank)

    assert torch.autograd.gradcheck(function, logits.log_softmax(dim=-1).requires_grad_())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_impossible_sequences_have_no_gradient_and_no_nan(dtype: torch.dtype) -> None:
    log_q = torch.randn(1, 4, 3, dtype=dtype).log_softmax(dim=-1)
    log_q[0, 2, 0] = -math.inf
    log_q.requires_grad_()
    labels = torch.tensor([[[0, 1, 0, 1, 0, 2], [0, 0, 0, 2, 2, 2], [0, 1, 2, 2, 2, 2], [2, 2, 2, 2, 2, 2]]])
    lengths = torch.tensor([[6, 4, 3, 0]])
    found = ctc_log_likelihood(log_q, torch.tensor([4]), labels, lengths, 2)
    assert found[0].isfinite().tolist() == [False, False, True, False]
    assert not found.isnan().any()
    (gradient,) = torch.autograd.grad(found.sum(), log_q, retain_graph=True)
    (possible,) = torch.autograd.grad(found[0, 2], log_q)
    assert gradient.isfinite().all()
    assert torch.equal(gradient, possible)
    assert possible[0].sum(dim=-1).tolist() == pytest.approx([1.0] * 4)  # each frame emits one class


def test_a_class_of_probability_zero_may_make_a_sequence_impossible() -> None:
    log_q = torch.tensor([[[0.0, -math.inf], [0.0, -math.inf]]], requires_grad=True)
    found = ctc_log_likelihood(
        log_q, torch.tensor([2]), torch.tensor([[[0, 1], [1, 1]]]), torch.tensor([[2, 1]]), 1
    )
    assert found.tolist() == [[0.0, -math.inf]]
    found[:, 0].sum().backward()
    assert present(log_q.grad).tolist() == [[[1.0, 0.0], [1.0, 0.0]]]


def test_no_frames_hold_only_the_empty_text() -> None:
    labels, lengths = torch.tensor([[[0, 1], [1, 1]]]), torch.tensor([[2, 1]])
    for steps in (0, 2):
        found = ctc_log_likelihood(torch.zeros(1, steps, 2), torch.tensor([0]), labels, lengths, 1)
        assert found.tolist() == [[-math.inf, 0.0]]


def test_rescored_hypotheses_are_sorted() -> None:
    case = Case(dtype=torch.float32)
    logits, _, labels, lengths = case.tensors()
    log_q, frames = logits.log_softmax(dim=-1), torch.tensor([12, 9, 10])
    ended = torch.ones(3, dtype=torch.bool)
    beam = rescored(Beam(labels, lengths, torch.zeros(lengths.shape), ended), log_q, frames, blank=case.blank)
    expected = ctc_log_likelihood(log_q, frames, beam.classes, beam.lengths, case.blank)
    assert torch.equal(beam.scores, expected)
    assert torch.all(beam.scores[:, :-1] >= beam.scores[:, 1:])
    assert torch.equal(beam.lengths.sort(dim=1).values, lengths.sort(dim=1).values)


def test_alignment_by_hand() -> None:
    path = [2, 0, 0, 2, 0, 1, 1, 2]
    probabilities = torch.full((1, 10, 3), 0.1)
    probabilities[0, torch.arange(8), torch.tensor(path)] = 0.8
    probabilities[0, 2, 0] = 0.6
    labels, lengths = torch.tensor([[0, 0, 1, 2, 2]]), torch.tensor([4])
    found = ctc_alignment(probabilities.log(), torch.tensor([8]), labels, lengths, blank=2)
    assert found.starts.tolist() == [[1, 4, 5, -1]]
    assert found.ends.tolist() == [[2, 4, 6, -1]]
    assert found.confidences[0].tolist() == pytest.approx([0.7, 0.8, 0.8, 0.0])
    assert found.scores.item() == pytest.approx(7 * math.log(0.8) + math.log(0.6))


@settings(max_examples=150, deadline=None)
@given(case=small_cases)
def test_alignment_is_the_best_of_all(case: Case) -> None:
    logits, frames, labels, lengths = case.tensors()
    labels, lengths = labels[:, 0], lengths[:, 0]
    log_q = logits.log_softmax(dim=-1)
    found = ctc_alignment(log_q, frames, labels, lengths, case.blank)
    for b in range(case.utterances):
        text = labels[b, : max(int(lengths[b]) - 1, 0)].tolist()
        paths = alignments(log_q[b, : frames[b]], text, case.blank) if lengths[b] > 0 else []
        if not paths:
            assert found.scores[b] == -math.inf
            assert torch.all(found.starts[b] == -1)
            continue
        score, path = max(paths)
        assert found.scores[b].item() == pytest.approx(score, abs=1e-9)
        spans, t = [], 0
        for each, group in itertools.groupby(path):
            t, begin = t + len(list(group)), t
            if each != case.blank:
                spans.append((begin, t - 1, log_q[b, begin:t, each].exp().mean().item()))
        for u, (begin, end, confidence) in enumerate(spans):
            assert (found.starts[b, u].item(), found.ends[b, u].item()) == (begin, end)
            assert found.confidences[b, u].item() == pytest.approx(confidence)
        assert torch.all(found.ends[b, len(spans) :] == -1)
        assert torch.all(found.confidences[b, len(spans) :] == 0)
