"""The losses, by hand and by their gradients."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from narrowing import present

from priormatch.matching.lpm import lpm_loss
from priormatch.models.objective import sample_inputs, sequence_loss


def test_sequence_loss_by_hand() -> None:
    probabilities = torch.tensor([[[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]]])
    labels = torch.tensor([[0, 2, 2]])
    logits = probabilities.log() + 3.0
    for length, expected in ((3, 0.7 * 0.8 * 0.4), (2, 0.7 * 0.8), (1, 0.7), (0, 1.0)):
        loss = sequence_loss(logits, labels, torch.tensor([length]))
        assert loss.tolist() == pytest.approx([-math.log(expected)], abs=1e-6)


def test_smoothing_by_hand() -> None:
    probabilities = [[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]
    expected = 0.0
    for label, row in zip((0, 2), probabilities, strict=True):
        expected += 0.9 * -math.log(row[label]) + 0.1 / 3 * sum(-math.log(each) for each in row)
    logits = torch.tensor([probabilities]).log()
    assert sequence_loss(logits, torch.tensor([[0, 2]]), torch.tensor([2]), 0.1).item() == pytest.approx(
        expected
    )


def test_beams_have_a_loss_each_whatever_the_padding() -> None:
    logits, labels = torch.randn(2, 3, 5, 4), torch.randint(4, (2, 3, 5))
    lengths = torch.tensor([[5, 1, 3], [2, 4, 0]])
    losses = sequence_loss(logits, labels, lengths, 0.1)
    assert losses.shape == (2, 3)
    for b in range(2):
        for k in range(3):
            u = int(lengths[b, k])
            own = sequence_loss(logits[b, k, None, :u], labels[b, k, None, :u], lengths[b, k, None], 0.1)
            assert losses[b, k].item() == pytest.approx(own.item(), abs=1e-5)


def test_labels_beyond_the_length_get_no_gradient() -> None:
    logits = torch.randn(1, 4, 3, requires_grad=True)
    sequence_loss(logits, torch.zeros(1, 4, dtype=torch.long), torch.tensor([2]), 0.1).sum().backward()
    gradient = present(logits.grad)
    assert torch.all(gradient[0, 2:] == 0)
    assert torch.all(gradient[0, :2] != 0)


def test_half_precision_logits_are_normalized_in_full() -> None:
    loss = sequence_loss(
        torch.zeros(1, 1, 5000, dtype=torch.bfloat16), torch.tensor([[1]]), torch.tensor([1])
    )
    assert loss.item() == pytest.approx(math.log(5000), abs=1e-4)


def test_lpm_loss_by_hand() -> None:
    losses = torch.tensor([[2.0, 3.0], [5.0, 7.0], [1.0, 1.0]])
    weights = torch.tensor([[0.25, 0.75], [1.0, 0.0], [0.0, 0.0]])
    assert lpm_loss(losses, weights).tolist() == [2.75, 5.0, 0.0]


def test_its_gradient_is_the_weighted_sum_and_spares_the_weights() -> None:
    logits, labels = torch.randn(2, 3, 4, 5, requires_grad=True), torch.randint(5, (2, 3, 4))
    lengths = torch.tensor([[4, 2, 3], [1, 4, 2]])
    scores = torch.randn(2, 3, requires_grad=True)
    weights = scores.softmax(dim=-1)
    lpm_loss(sequence_loss(logits, labels, lengths), weights).sum().backward()
    target = torch.nn.functional.one_hot(labels, 5)
    exists = torch.arange(4) < lengths[..., None]
    expected = weights[..., None, None] * (logits.softmax(dim=-1) - target) * exists[..., None]
    torch.testing.assert_close(logits.grad, expected)
    assert scores.grad is None


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_an_impossible_hypothesis_of_weight_zero_does_no_harm(smoothing: float) -> None:
    logits = torch.randn(1, 2, 3, 4)
    logits[0, 1, :, 0] = -math.inf
    logits.requires_grad_()
    labels, lengths = torch.zeros(1, 2, 3, dtype=torch.long), torch.tensor([[3, 3]])
    losses = sequence_loss(logits, labels, lengths, smoothing)
    assert losses[0, 1] == math.inf
    loss = lpm_loss(losses, torch.tensor([[1.0, 0.0]])).sum()
    loss.backward()
    assert torch.isfinite(loss)
    gradient = present(logits.grad)
    assert torch.isfinite(gradient).all()
    assert torch.all(gradient[0, 1] == 0)


def test_a_batch_without_survivors_still_has_a_gradient_of_zero() -> None:
    logits = torch.randn(1, 2, 3, 4, requires_grad=True)
    losses = sequence_loss(logits, torch.zeros(1, 2, 3, dtype=torch.long), torch.tensor([[3, 2]]))
    lpm_loss(losses, torch.zeros(1, 2)).sum().backward()
    assert torch.all(present(logits.grad) == 0)


@given(share=st.floats(0.05, 1.0), seed=st.integers(0, 100))
def test_sampled_inputs_are_pieces_and_as_many_as_asked(share: float, seed: int) -> None:
    torch.manual_seed(seed)
    labels = torch.full((40, 50), 9)
    found = sample_inputs(labels, share, eos=9)
    replaced = found != 9
    assert torch.all(labels == 9)
    assert found.max() <= 9
    assert found.min() >= 0
    assert replaced.float().mean().item() == pytest.approx(share, abs=0.06)
    assert set(found[replaced].tolist()) == set(range(9))


def test_no_share_replaces_nothing() -> None:
    labels = torch.randint(9, (3, 4))
    assert sample_inputs(labels, 0.0, 9) is labels
