"""The CTC kernels, against the plain versions in float64.

They need a GPU; with Triton installed and TRITON_INTERPRET=1 they run on the CPU too, slowly.
"""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from ctc_cases import Case, Speech, of_pytorch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from priormatch.config import ConvLMSettings, TrainingSettings
from priormatch.decoding.beam import Beam
from priormatch.decoding.prefix_search import PrefixFusion, PrefixSettings
from priormatch.decoding.prefix_search import prefix_search as plain_search
from priormatch.kernels.graphs import Recording
from priormatch.models.conv_lm import ConvLM
from priormatch.models.ctc import ctc_log_likelihood as plain_likelihood
from priormatch.recognizers import heads
from priormatch.recognizers.heads import CtcHead, Frames

pytest.importorskip("triton")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if not torch.cuda.is_available() and not INTERPRETED:
    pytest.skip("needs a GPU", allow_module_level=True)

from priormatch.kernels.ctc import (  # noqa: E402
    ctc_log_likelihood,
    ctc_log_likelihood_of_logits,
    padded_prefix_search,
    prefix_search,
)

DEVICE = "cpu" if INTERPRETED else "cuda"
EXAMPLES = 25 if INTERPRETED else 300

Likelihood = Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]

cases = st.builds(
    Case,
    utterances=st.integers(1, 3),
    frames=st.integers(0, 9),
    classes=st.integers(2, 5),
    k=st.integers(1, 3),
    longest=st.integers(1, 6),
    seed=st.integers(0, 10_000),
)
speeches = st.builds(
    Speech,
    utterances=st.integers(1, 3),
    frames=st.integers(0, 9),
    classes=st.integers(2, 7),
    seed=st.integers(0, 10_000),
    barred=st.sampled_from([0.0, 0.0, 0.3]),
)


def on_logits(function: Likelihood) -> Likelihood:
    """A likelihood of log-probabilities as one of logits."""

    def likelihood(logits: Tensor, *others: Any) -> Tensor:
        return function(logits.log_softmax(dim=-1), *others)

    return likelihood


KERNELS = on_logits(ctc_log_likelihood), ctc_log_likelihood_of_logits


def tensors(case: Case) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    logits, frames, labels, lengths = (each.to(DEVICE) for each in case.tensors())
    return logits, frames, labels, lengths


def outcome(likelihood: Likelihood, logits: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    """log q(y|x), and the gradient of a weighted sum of all that are finite, both in float64."""
    mine = logits.detach().clone().requires_grad_()
    values = likelihood(mine, *others)
    finite = values.masked_fill(values.isinf(), 0.0)
    weights = torch.linspace(-1, 2, values.numel(), device=values.device).view_as(values)
    (finite * weights.to(finite)).sum().backward()
    assert mine.grad is not None
    return values.detach().double(), mine.grad.double()


@contextmanager
def no_values_on_the_host() -> Iterator[None]:
    """Fail where the host reads values from the device, or where a shape depends on values."""
    if INTERPRETED:
        with _NoValues():
            yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


class _NoValues(TorchDispatchMode):
    """The same on the CPU, where nothing is asynchronous."""

    READS = (
        torch.ops.aten._local_scalar_dense,
        torch.ops.aten.nonzero,
        torch.ops.aten.masked_select,
        torch.ops.aten.repeat_interleave,
    )

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert function.overloadpacket not in self.READS, function
        return function(*args, **(kwargs or {}))


@settings(max_examples=EXAMPLES)
@given(case=cases)
@example(case=Case(frames=0))
@example(case=Case(longest=1))
@example(case=Case(classes=2, k=1, longest=2))
def test_values_and_gradients_are_those_of_the_plain_version(case: Case) -> None:
    logits, *others = tensors(case)
    values, gradients = outcome(on_logits(plain_likelihood), logits, *others, case.blank)
    for likelihood in KERNELS:
        found = outcome(likelihood, logits.float(), *others, case.blank)
        torch.testing.assert_close(found[0], values, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found[1], gradients, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("frames", "classes", "k", "longest"),
    [(70, 29, 2, 30), (80, 9, 1, 68), (40, 1100, 2, 18)]
    if INTERPRETED
    else [(312, 29, 4, 151), (312, 1000, 4, 151), (2000, 29, 1, 512), (1000, 5001, 2, 40), (90, 3, 1, 40)],
)
def test_float32_is_as_close_to_float64_as_that_of_pytorch(
    frames: int, classes: int, k: int, longest: int
) -> None:
    case = Case(3, frames, classes, k, longest)
    logits, lengths_of_speech, *others = tensors(case)
    given = lengths_of_speech.clamp(min=frames - 9), *others, case.blank
    exact = outcome(on_logits(of_pytorch), logits, *given)
    theirs = outcome(on_logits(of_pytorch), logits.float(), *given)
    for likelihood in KERNELS:
        ours = outcome(likelihood, logits.float(), *given)
        for found, other, reference in zip(ours, theirs, exact, strict=True):
            found = found.masked_fill(found.isinf(), 0.0)
            error, of_pytorch_ = ((each - reference).abs().max().item() for each in (found, other))
            assert error < 2 * of_pytorch_ + 1e-5


def test_it_runs_without_a_gradient() -> None:
    case = Case(dtype=torch.float32)
    logits, frames, labels, lengths = tensors(case)
    log_q, given = logits.log_softmax(dim=-1), (frames, labels, lengths, case.blank)
    with_gradient = ctc_log_likelihood(log_q.clone().requires_grad_(), *given)
    assert torch.equal(ctc_log_likelihood(log_q, *given), with_gradient.detach())


def test_impossible_sequences_have_no_gradient_and_no_nan() -> None:
    log_q = torch.randn(1, 4, 3).log_softmax(dim=-1)
    log_q[0, 2, 0] = -math.inf
    log_q = log_q.to(DEVICE).requires_grad_()
    labels = torch.tensor([[[0, 1, 0, 1, 0, 2], [0, 0, 0, 2, 2, 2], [0, 1, 2, 2, 2, 2], [2, 2, 2, 2, 2, 2]]])
    lengths = torch.tensor([[6, 4, 3, 0]])
    given = torch.tensor([4]).to(DEVICE), labels.to(DEVICE), lengths.to(DEVICE), 2
    found = ctc_log_likelihood(log_q, *given)
    expected = plain_likelihood(log_q, *given)
    torch.testing.assert_close(found, expected)
    assert found[0].isfinite().tolist() == [False, False, True, False]
    (gradient,) = torch.autograd.grad(found.sum(), log_q, retain_graph=True)
    (possible,) = torch.autograd.grad(found[0, 2], log_q)
    assert torch.equal(gradient, possible)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected[0, 2], log_q)[0])


def test_a_frame_that_emits_nothing_makes_all_impossible() -> None:
    log_q = torch.zeros(1, 3, 2, device=DEVICE)
    log_q[0, 1] = -math.inf
    given = torch.tensor([[[0, 1], [1, 1]]], device=DEVICE), torch.tensor([[2, 1]], device=DEVICE), 1
    log_q.requires_grad_()
    found = ctc_log_likelihood(log_q, torch.tensor([3], device=DEVICE), *given)
    assert found.tolist() == [[-math.inf, -math.inf]]
    (gradient,) = torch.autograd.grad(found.sum(), log_q)
    assert torch.all(gradient == 0)


@settings(max_examples=EXAMPLES // 2)
@given(case=cases, more_frames=st.integers(0, 20), more_labels=st.integers(0, 3))
def test_padding_changes_nothing(case: Case, more_frames: int, more_labels: int) -> None:
    logits, frames, labels, lengths = tensors(case)
    logits = logits.float()
    longer = functional.pad(logits, (0, 0, 0, more_frames), value=math.nan)
    wider = functional.pad(labels, (0, more_labels), value=case.blank)
    for likelihood in KERNELS[1:]:
        values, gradients = outcome(likelihood, logits, frames, labels, lengths, case.blank)
        found = outcome(likelihood, longer, frames, wider, lengths, case.blank)
        torch.testing.assert_close(found[0], values)
        torch.testing.assert_close(found[1][:, : case.frames], gradients)
        assert torch.all(found[1][:, case.frames :] == 0)


def test_logits_in_bfloat16() -> None:
    case = Case(dtype=torch.bfloat16)
    logits, frames, labels, lengths = tensors(case)
    given = frames, labels, lengths, case.blank
    values, gradients = outcome(on_logits(plain_likelihood), logits.double(), *given)
    mine = logits.requires_grad_()
    found = ctc_log_likelihood_of_logits(mine, *given)
    torch.testing.assert_close(found.double(), values, rtol=1e-5, atol=1e-5)
    (gradient,) = torch.autograd.grad(found, mine, torch.linspace(-1, 2, 9, device=DEVICE).view(3, 3))
    assert gradient.dtype == torch.bfloat16
    torch.testing.assert_close(gradient.double(), gradients, rtol=1e-2, atol=1e-2)


def test_the_same_bits_every_time() -> None:
    case = Case(3, 20, 4, 3, 12, dtype=torch.float32) if INTERPRETED else Case(64, 312, 29, 4, 151)
    logits, *others = tensors(case)
    first, *again = (outcome(KERNELS[1], logits.float(), *others, case.blank) for _ in range(4))
    for values, gradients in again:
        assert torch.equal(values, first[0])
        assert torch.equal(gradients, first[1])


@pytest.mark.parametrize("likelihood", KERNELS)
def test_no_value_is_read_on_the_host(likelihood: Likelihood) -> None:
    case = Case(dtype=torch.float32)
    logits, frames, labels, lengths = tensors(case)
    weights = torch.ones_like(lengths, dtype=torch.float32)
    for _ in range(2):  # the first call compiles
        mine = logits.clone().requires_grad_()
        with no_values_on_the_host():
            likelihood(mine, frames, labels, lengths, case.blank).backward(weights)
        assert mine.grad is not None


@pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
@pytest.mark.parametrize("likelihood", KERNELS)
def test_a_recording_follows_its_inputs(likelihood: Likelihood) -> None:
    def step() -> tuple[Tensor, Tensor]:
        mine = own[0].detach().requires_grad_()
        values = likelihood(mine, *own[1:], 3)
        (gradient,) = torch.autograd.grad(values, mine, torch.ones_like(values))
        return values, gradient

    own = tensors(Case(dtype=torch.float32))
    recording = Recording(step)
    for seed in range(3):
        for mine, fresh in zip(own, tensors(Case(seed=seed, dtype=torch.float32)), strict=True):
            mine.copy_(fresh)
        replayed = [each.clone() for each in recording()]
        for found, expected in zip(replayed, step(), strict=True):
            assert torch.equal(found, expected)


def assert_same(found: Beam, expected: Beam) -> None:
    """The same hypotheses, with the same scores but for rounding."""
    assert torch.equal(found.lengths, expected.lengths)
    assert torch.equal(found.classes, expected.classes)
    assert torch.equal(found.ended, expected.ended)
    torch.testing.assert_close(found.scores.double(), expected.scores.double(), rtol=1e-4, atol=1e-4)


@settings(max_examples=EXAMPLES)
@given(
    speech=speeches,
    width=st.integers(1, 9),
    k=st.integers(1, 4),
    threshold=st.sampled_from([1.0, 1.0, 0.4]),
)
@example(speech=Speech(frames=0), width=3, k=2, threshold=1.0)
@example(speech=Speech(barred=1.0), width=3, k=2, threshold=1.0)
def test_it_finds_what_the_plain_search_finds(speech: Speech, width: int, k: int, threshold: float) -> None:
    log_q, frames = (each.to(DEVICE) for each in speech.tensors())
    size = PrefixSettings(k, width, threshold)
    assert_same(
        prefix_search(log_q.float(), frames, speech.blank, size),
        plain_search(log_q, frames, speech.blank, size),
    )


@pytest.mark.parametrize("width", [16, 17, 32])
@pytest.mark.parametrize("classes", [5, 29, 300])
def test_a_longer_search_finds_what_the_plain_one_finds(classes: int, width: int) -> None:
    speech = Speech(2, 10, classes) if INTERPRETED else Speech(20, 150, classes)
    log_q, frames = (each.to(DEVICE) for each in speech.tensors())
    size = PrefixSettings(4, width)
    assert_same(
        prefix_search(log_q.float(), frames, speech.blank, size),
        plain_search(log_q, frames, speech.blank, size),
    )


def test_a_very_wide_search_is_the_plain_one() -> None:
    log_q, frames = (each.to(DEVICE) for each in Speech().tensors())
    size = PrefixSettings(3, 40)
    assert_same(prefix_search(log_q, frames, 2, size), plain_search(log_q, frames, 2, size))


def test_padding_is_not_searched() -> None:
    log_q, frames = (each.to(DEVICE) for each in Speech().tensors())
    longer = functional.pad(log_q, (0, 0, 0, 3), value=math.nan)
    size = PrefixSettings(3, 5)
    assert_same(prefix_search(longer, frames, 2, size), prefix_search(log_q, frames, 2, size))


def test_a_search_reads_no_value_on_the_host() -> None:
    log_q, frames = (each.to(DEVICE) for each in Speech().tensors())
    for _ in range(2):  # the first call compiles
        with no_values_on_the_host():
            beam = padded_prefix_search(log_q, frames, 2, PrefixSettings(3, 5, 0.5))
        assert beam.classes.shape == (3, 3, 7)


@pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
def test_a_recorded_search_follows_its_inputs() -> None:
    log_q, frames = (each.cuda() for each in Speech().tensors())
    recording = Recording(lambda: padded_prefix_search(log_q, frames, 2, PrefixSettings(3, 5)))
    for seed in range(3):
        for mine, fresh in zip((log_q, frames), Speech(seed=seed).tensors(), strict=True):
            mine.copy_(fresh)
        assert_same(recording().best(3), plain_search(log_q, frames, 2, PrefixSettings(3, 5)))


@pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
@pytest.mark.parametrize("width", [4, 16])
def test_a_fused_search_finds_what_the_plain_one_finds(width: int) -> None:
    torch.manual_seed(0)
    bottlenecks = [[8, 16, 1]]
    lm = ConvLM(ConvLMSettings(embedding=16, width=16, kernel=3, bottlenecks=bottlenecks, head=16), 9).cuda()
    lm.fuse()
    log_q, frames = (each.float().cuda() for each in Speech(5, 40, 9).tensors())
    frames = frames.long()
    fusion = PrefixFusion(lm.step, lm.first_cache(5, 1), 0.6, 0.4, centered=width == 16)
    size = PrefixSettings(4, width)
    expected = plain_search(log_q, frames, 8, size, fusion)
    for _ in range(2):
        found = prefix_search(log_q, frames, 8, size, fusion)
        assert torch.equal(found.lengths[:, 0], expected.lengths[:, 0])
        torch.testing.assert_close(found.scores, expected.scores, rtol=1e-3, atol=1e-2)


def test_a_head_with_kernels_equals_one_without(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    head = CtcHead(nn.Linear(6, 5, device=DEVICE), 4)
    frames = Frames(torch.randn(3, 12, 6, device=DEVICE), torch.tensor([12, 9, 5], device=DEVICE))
    labels = torch.tensor([[[0, 1, 1, 4], [2, 4, 4, 4]]] * 3, device=DEVICE)
    lengths = torch.tensor([[4, 2], [4, 0], [3, 2]], device=DEVICE)
    settings = TrainingSettings()

    def everything() -> tuple[Beam, Tensor, Tensor, Tensor]:
        head.output.weight.grad = None
        losses = head.losses(frames, labels, lengths, settings, False)
        losses.sum().backward()
        assert head.output.weight.grad is not None
        beam = head.search(frames, 3)
        return beam, head.log_q(frames, labels, lengths).detach(), losses.detach(), head.output.weight.grad

    monkeypatch.setattr(heads, "has_kernels", lambda device: False)
    wanted, *values = everything()
    monkeypatch.setattr(heads, "has_kernels", lambda device: True)
    found, *others = everything()
    assert torch.equal(found.classes, wanted.classes)
    assert torch.equal(found.lengths, wanted.lengths)
    torch.testing.assert_close(found.scores, wanted.scores, atol=1e-4, rtol=1e-4)
    for mine, plain in zip(others, values, strict=True):
        torch.testing.assert_close(mine, plain, atol=1e-4, rtol=1e-4)
