"""The language model: the paper's size, no look ahead, the same numbers after fusing."""

import math

import pytest
import torch
from narrowing import of_type, present
from torch import nn

from priormatch.config import ConvLMSettings
from priormatch.models.conv_lm import CausalConv, ConvLM, GatedBlock, normed_linear

CLASSES = 9


@pytest.fixture
def model(tiny_prior_settings: ConvLMSettings) -> ConvLM:
    model = ConvLM(tiny_prior_settings, CLASSES).double().eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.uniform_(parameter, -0.5, 0.5)
    return model


def test_the_papers_model_has_the_papers_size() -> None:
    with torch.device("meta"):
        model = ConvLM(ConvLMSettings(), 4998)
    count = sum(each.numel() for each in model.parameters())
    assert round(count / 1e6, 1) == 177.9
    assert [len(of_type(GatedBlock, block).layers) for block in model.blocks] == [1, *[3] * 13]


def test_it_is_causal_and_sees_every_label_of_its_context(model: ConvLM) -> None:
    labels = torch.randint(CLASSES - 1, (1, 12))
    before = model(labels)
    for position in range(12):
        changed = labels.clone()
        changed[0, position] = (labels[0, position] + 1) % (CLASSES - 1)
        differs = (model(changed) - before).abs().amax(dim=-1)[0] > 1e-12
        context = 4 * 2 + 1  # four convolutions of kernel 3, and the label itself
        assert differs.tolist() == [position < u <= position + context for u in range(12)]


def test_it_begins_with_the_end_of_sentence(model: ConvLM) -> None:
    labels = torch.tensor([[3, 1, 4]])
    after_eos = model(torch.tensor([[CLASSES - 1, 3, 1, 4]]))
    context_free = model(labels)
    assert torch.equal(context_free[:, 0], model(torch.tensor([[5, 5]]))[:, 0])
    assert not torch.allclose(after_eos[:, 1], context_free[:, 0]), "an EOS in the text is one more position"


def test_rows_and_padding_do_not_mix(model: ConvLM) -> None:
    labels = torch.randint(CLASSES, (4, 10))
    together = model(labels)
    for row, length in zip(range(4), (10, 3, 1, 7), strict=True):
        torch.testing.assert_close(together[row, :length], model(labels[row : row + 1, :length])[0])


def test_steps_equal_the_full_pass(model: ConvLM) -> None:
    labels = torch.randint(CLASSES, (3, 2, 9))
    expected = model(labels.flatten(0, 1)).log_softmax(dim=-1).float().unflatten(0, (3, 2))
    cache, before = model.first_cache(3, 2), None
    for position in range(9):
        log_p, cache = model.step(cache, before)
        torch.testing.assert_close(log_p, expected[:, :, position])
        before = labels[:, :, position]


def test_a_cache_goes_with_its_hypothesis(model: ConvLM) -> None:
    """As in a search: hypotheses change places, and some are continued twice."""
    histories: list[list[int]] = [[], [], []]
    cache = model.first_cache(1, 3)
    _, cache = model.step(cache, None)
    for parents in torch.randint(3, (8, 3)).tolist():
        classes = torch.randint(CLASSES, (1, 3))
        log_p, cache = model.step(cache[:, parents], classes)
        histories = [[*histories[p], int(c)] for p, c in zip(parents, classes[0], strict=True)]
        after = model(torch.tensor([[*each, 0] for each in histories])).log_softmax(dim=-1)[:, -1]
        torch.testing.assert_close(log_p[0], after.float())


def test_what_the_cache_of_the_papers_model_holds() -> None:
    with torch.device("meta"):
        cache = ConvLM(ConvLMSettings(), 4998).first_cache(2, 3)
    inputs = 512 + 3 * 128 + 3 * 512 + 6 * 1024 + 1024  # of the convolutions that are wide in time
    assert cache.shape == (2, 3, 4 * inputs)


def test_fusing_changes_nothing_but_what_can_be_trained(model: ConvLM) -> None:
    labels = torch.randint(CLASSES, (2, 6))
    before = model.train()(labels).shape, model.eval()(labels)
    model.train().fuse()
    torch.testing.assert_close(model(labels), before[1])
    assert not model.training
    assert not any(each.requires_grad for each in model.parameters())
    assert not any("original" in name for name in model.state_dict())


def test_weights_start_in_fairseqs_ranges() -> None:
    conv, linear = CausalConv(64, 64, 5, 0.1), normed_linear(256, 64, 0.1)
    assert conv.conv.weight.std().item() == pytest.approx(math.sqrt(4 * 0.9 / (5 * 64)), rel=0.05)
    assert linear.weight.std().item() == pytest.approx(math.sqrt(0.9 / 256), rel=0.05)
    assert torch.all(present(conv.conv.bias) == 0)
    assert torch.all(linear.bias == 0)
    embedding = ConvLM(ConvLMSettings(128, 8, [], 8), 100).embedding.weight
    assert embedding.std().item() == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize("kernel", [1, 3])
def test_a_convolution_by_hand(kernel: int) -> None:
    conv = CausalConv(1, 1, kernel, 0.0)
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    weight, bias = conv.conv.weight[0, 0].tolist(), present(conv.conv.bias).item()
    padded = [0.0] * (kernel - 1) + x.tolist()
    expected = [sum(w * v for w, v in zip(weight, padded[u:], strict=False)) + bias for u in range(4)]
    assert conv(x[None, :, None])[0, :, 0].tolist() == pytest.approx(expected)


def test_a_block_is_a_residual_of_gated_layers() -> None:
    block = GatedBlock([4, 4], [3], 0.0)
    x = torch.randn(1, 5, 4)
    values, gates = block.layers[0](x).chunk(2, dim=-1)
    torch.testing.assert_close(block(x), (x + values * gates.sigmoid()) * math.sqrt(0.5))
    assert isinstance(GatedBlock([4, 2, 2, 6], [1, 3, 1], 0.0).skip, nn.Linear)
