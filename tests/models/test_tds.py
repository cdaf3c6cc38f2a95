"""The encoder: the paper's sizes, and the same frames whatever the padding."""

import math

import pytest
import torch
from narrowing import present
from torch import nn

from priormatch.models.tds import SubSampling, TDSBlock, TDSEncoder, TimeConv, UtteranceNorm


def parameters(module: nn.Module) -> int:
    return sum(each.numel() for each in module.parameters())


@pytest.mark.parametrize(
    ("channels", "blocks", "expected"),
    [([10, 14, 16], [3, 3, 3], 22_570_576), ([10, 14, 18], [2, 3, 6], 36_538_460)],
    ids=["nine blocks", "eleven blocks"],
)
def test_the_papers_encoders_have_the_papers_size(
    channels: list[int], blocks: list[int], expected: int
) -> None:
    with torch.device("meta"):
        assert parameters(TDSEncoder(80, channels, blocks, 1024)) == expected


@pytest.mark.parametrize(
    ("channels", "expected"), [(10, 1_283_714), (14, 2_515_174), (16, 3_284_756), (18, 4_156_906)]
)
def test_a_block_has_the_papers_size(channels: int, expected: int) -> None:
    with torch.device("meta"):
        assert parameters(TDSBlock(80, channels, 21, 0.2)) == expected


def tiny_encoder() -> TDSEncoder:
    encoder = TDSEncoder(6, [2, 3, 4], [1, 2, 1], 10, kernel=5).eval()
    for module in encoder.modules():
        if isinstance(module, UtteranceNorm):
            nn.init.uniform_(module.gain, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)  # a bias must not leak into padding
    return encoder


def test_frames_do_not_depend_on_padding_or_neighbors() -> None:
    encoder, lengths = tiny_encoder(), [37, 8, 1, 24, 64]
    waves = [torch.randn(1, length, 6) for length in lengths]
    padded = torch.zeros(5, 80, 6)
    for row, wave in zip(padded, waves, strict=True):
        row[: wave.shape[1]] = wave[0]
    together, frames = encoder(padded, torch.tensor(lengths))
    assert frames.tolist() == [5, 1, 1, 3, 8]
    assert together.shape == (5, 10, 10)
    for row, count, wave in zip(together, frames.tolist(), waves, strict=True):
        alone, own = encoder(wave, torch.tensor([wave.shape[1]]))
        assert own.item() == count == alone.shape[1]
        torch.testing.assert_close(row[:count], alone[0], atol=1e-5, rtol=1e-5)


def test_an_utterance_without_frames_gives_no_nan() -> None:
    encoded, lengths = tiny_encoder()(torch.zeros(2, 9, 6), torch.tensor([0, 9]))
    assert lengths.tolist() == [0, 2]
    assert torch.isfinite(encoded).all()
    encoded.sum().backward()


def test_three_stages_look_at_981_frames() -> None:
    """The receptive field of the nine-block encoder; norms, which look everywhere, are taken out."""
    encoder = TDSEncoder(1, [1, 1, 1], [3, 3, 3], 2, kernel=21).eval()
    for module in encoder.modules():
        if isinstance(module, TimeConv | nn.Linear):
            for parameter in module.parameters():
                nn.init.constant_(parameter, 0.01)
        if isinstance(module, UtteranceNorm):
            module.forward = lambda x, mask, count: x  # type: ignore[method-assign]
    features = torch.ones(1, 2000, 1, requires_grad=True)
    encoded, _ = encoder(features, torch.tensor([2000]))
    encoded[0, 125].sum().backward()
    seen = present(features.grad)[0, :, 0].nonzero()
    assert seen.max() - seen.min() + 1 == 981


def test_the_norm_equals_a_layer_norm_over_what_exists() -> None:
    norm = UtteranceNorm()
    nn.init.constant_(norm.gain, 1.3)
    nn.init.constant_(norm.bias, -0.4)
    lengths = torch.tensor([7, 2, 5])
    mask = (torch.arange(7) < lengths[:, None])[:, :, None].float()
    x = (torch.randn(3, 7, 4) * 2 + 1) * mask
    found = norm(x, mask, (lengths * 4).float())
    for row, values, length in zip(found, x, lengths.tolist(), strict=True):
        expected = nn.functional.layer_norm(values[:length], (length, 4)) * 1.3 - 0.4
        torch.testing.assert_close(row[:length], expected)
        assert torch.all(row[length:] == 0)


@torch.no_grad()
def test_the_norm_keeps_half_precision_but_computes_its_statistics_in_full() -> None:
    x = torch.randn(1, 3000, 8).bfloat16() + 1
    found = UtteranceNorm()(x, torch.ones(1, 3000, 1, dtype=torch.bfloat16), torch.tensor([24_000.0]))
    assert found.dtype == torch.bfloat16
    assert found.float().mean() == pytest.approx(0, abs=1e-2)
    assert found.float().std() == pytest.approx(1, abs=1e-2)


def test_the_convolution_shares_its_weights_over_mel_bands() -> None:
    conv = TimeConv(width=3, channels_in=2, channels_out=4, kernel=5, stride=2)
    x = torch.randn(1, 9, 3 * 2)
    found = conv(x).view(1, 5, 3, 4)
    for band in range(3):
        one = nn.functional.conv1d(
            x.view(1, 9, 3, 2)[:, :, band].transpose(1, 2), conv.conv.weight[..., 0], conv.conv.bias, 2, 2
        )
        torch.testing.assert_close(found[:, :, band], one.transpose(1, 2))


@pytest.mark.parametrize(("time", "expected"), [(1, 1), (8, 4), (9, 5)])
def test_sub_sampling_rounds_up(time: int, expected: int) -> None:
    mask = torch.ones(1, expected, 1)
    layer = SubSampling(6, 1, 2, 5, 0.0)
    assert layer(torch.randn(1, time, 6), mask, torch.tensor([expected * 12.0])).shape == (1, expected, 12)


def test_weights_start_with_variance_one_over_fan_in() -> None:
    block = TDSBlock(40, 10, 21, 0.2)
    for weight, bias, fan_in in (
        (block.inner.weight, block.inner.bias, 400),
        (block.outer.weight, block.outer.bias, 400),
        (block.conv.conv.weight, present(block.conv.conv.bias), 210),
    ):
        assert weight.abs().max() <= math.sqrt(3 / fan_in)
        assert weight.var().item() == pytest.approx(1 / fan_in, rel=0.1)
        assert bias.abs().max() <= math.sqrt(1 / fan_in)
        assert bias.abs().max() > 0
    assert (block.conv_norm.gain.item(), block.conv_norm.bias.item()) == (1.0, 0.0)


def test_dropout_acts_in_training_alone() -> None:
    encoder, features, lengths = tiny_encoder(), torch.randn(1, 30, 6), torch.tensor([30])
    assert torch.equal(encoder(features, lengths)[0], encoder(features, lengths)[0])
    encoder.train()
    assert not torch.equal(encoder(features, lengths)[0], encoder(features, lengths)[0])
