"""The fused layers of the encoder, against the plain ones in float64.

They need a GPU; with Triton installed and TRITON_INTERPRET=1 they run on the CPU too, in float32 and slowly.
"""

import copy
import os
from typing import Any

import pytest
import torch
from narrowing import of_type, present
from torch import nn

from priormatch.models.tds import SubSampling, TDSBlock, TDSEncoder, UtteranceNorm

pytest.importorskip("triton")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if not torch.cuda.is_available() and not INTERPRETED:
    pytest.skip("needs a GPU", allow_module_level=True)

from priormatch.kernels.tds_triton import encode as fused_encode  # noqa: E402
from priormatch.kernels.tds_triton import layer_output  # noqa: E402

DEVICE = "cpu" if INTERPRETED else "cuda"
DTYPE = torch.float32 if INTERPRETED else torch.bfloat16
WIDTH, STEPS = (5, 37) if INTERPRETED else (80, 301)
LENGTHS = torch.tensor([STEPS, STEPS // 2, 1, 0], device=DEVICE)
SEEDS = torch.tensor([1, 2**31 - 5, 77, 123_456_789], device=DEVICE)
LAYERS = [
    (SubSampling, (1, 10)),
    (SubSampling, (10, 14)),
    (TDSBlock, (10,)),
    (TDSBlock, (14,)),
    (TDSBlock, (16,)),
]


def kept(like: Any, seed: Any, share: Any) -> Any:
    """What dropout keeps: the kernels' hash, in 64-bit integers."""
    bits = (torch.arange(like.numel(), device=like.device) * 0x9E3779B9 + int(seed)) & 0xFFFFFFFF
    bits = ((bits ^ (bits >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    bits = ((bits ^ (bits >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return ((bits ^ (bits >> 16)) >= int(share * 2**32)).view_as(like)


def plain(layer: Any, x: Any, lengths: Any, share: Any) -> Any:
    """The layer in the dtype of x, with the kernels' dropout."""

    def drop(value: Any, seed: Any) -> Any:
        return value * kept(value, seed, share) / (1 - share)

    steps = layer.conv(x).shape[1]
    mask = (torch.arange(steps, device=x.device) < lengths[:, None])[:, :, None].to(x.dtype)
    count = (lengths * layer.conv(x).shape[2]).clamp(min=1).to(x.dtype)
    if isinstance(layer, SubSampling):
        return layer.norm(drop(layer.conv(x).relu(), SEEDS[0]) * mask, mask, count)
    y = layer.conv_norm((x + drop(layer.conv(x).relu(), SEEDS[0])) * mask, mask, count)
    z = layer.outer(drop(layer.inner(y).relu(), SEEDS[2]))
    return layer.linear_norm((y + drop(z, SEEDS[3])) * mask, mask, count)


def make_layer(kind: Any, channels: Any, share: Any) -> Any:
    torch.manual_seed(0)
    layer = kind(WIDTH, *channels, kernel=21, dropout=share).to(DEVICE)
    for each in layer.modules():
        if isinstance(each, UtteranceNorm):
            torch.nn.init.constant_(each.gain, 1.3)
            torch.nn.init.constant_(each.bias, 0.2)
    return layer


def make_input(channels: Any) -> Any:
    exists = torch.arange(STEPS, device=DEVICE)[None, :, None] < LENGTHS[:, None, None]
    return (torch.randn(len(LENGTHS), STEPS, WIDTH * channels, device=DEVICE) * exists).to(DTYPE)


def relative_error(found: Any, expected: Any) -> Any:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def outcome(layer: Any, x: Any, lengths: Any, run: Any) -> Any:
    """What a layer makes of x, and the gradients of x and of its parameters; in bfloat16 unless in float64."""
    exact = layer.conv.conv.weight.dtype == torch.float64
    given = (
        x.to(torch.float64 if exact else DTYPE).clone().requires_grad_()
    )  # gradients of others add up in x
    with torch.autocast(DEVICE, torch.bfloat16, enabled=not (exact or INTERPRETED)):
        output = run(layer, given, lengths)
    torch.manual_seed(1)
    output.backward(torch.randn(output.shape, device=DEVICE).to(DTYPE).to(output.dtype))
    slopes = {name: each.grad for name, each in layer.named_parameters()}
    return {"output": output.detach(), "input": given.grad, **slopes}


@pytest.mark.parametrize("share", [0.0, 0.2])
@pytest.mark.parametrize(("kind", "channels"), LAYERS)
def test_a_layer_and_its_gradients(kind: Any, channels: Any, share: Any) -> None:
    layer = make_layer(kind, channels, share)
    x = make_input(channels[0])
    lengths = (LENGTHS + 1) // 2 if kind is SubSampling else LENGTHS
    exact, rounded, found = (
        outcome(copy.deepcopy(layer).to(dtype), x, lengths, run)
        for dtype, run in (
            (torch.float64, lambda layer, x, lengths: plain(layer, x, lengths, share)),
            (torch.float32, lambda layer, x, lengths: plain(layer, x, lengths, share)),
            (torch.float32, lambda layer, x, lengths: layer_output(layer, x, lengths, SEEDS)),
        )
    )
    assert relative_error(found["output"], exact["output"]) < (1e-3 if INTERPRETED else 1e-2)
    # A rectifier's slope flips wherever rounding changes a sign, so gradients are held against those of plain layers.
    for name, each in exact.items():
        if each.dim() > 0:  # the norm's gain and bias are sums of thousands of terms that nearly cancel
            worst = max(1e-3 if INTERPRETED else 1e-2, 2 * relative_error(rounded[name], each))
            assert relative_error(found[name], each) < worst, name


@pytest.mark.skipif(
    not INTERPRETED, reason="in bfloat16 the gradients of small models differ by more than rounding"
)
def test_gradients_reach_every_layer_of_an_encoder() -> None:
    torch.manual_seed(0)
    encoder = TDSEncoder(WIDTH, [2, 3], [1, 1], 8, kernel=5, dropout=0.0).to(DEVICE).train()
    features, lengths = torch.randn(3, STEPS, WIDTH, device=DEVICE), LENGTHS[:3]
    slopes = []
    for run in (encoder, lambda *given: chained(encoder, *given)):
        encoder.zero_grad()
        output, _ = run(features, lengths)
        (output * torch.linspace(-1, 1, output.numel(), device=DEVICE).view_as(output)).sum().backward()
        slopes.append(
            {name: present(each.grad).clone() for name, each in encoder.named_parameters() if each.dim() > 0}
        )
    for name, expected in slopes[0].items():
        assert relative_error(slopes[1][name], expected) < 1e-3, name


def chained(encoder: TDSEncoder, x: Any, lengths: Any) -> Any:
    """What the fused encoder computes, in the precision of x."""
    for stage in encoder.stages:
        lengths = (lengths + 1) // 2
        for layer in of_type(nn.ModuleList, stage):
            x = layer_output(layer, x, lengths, SEEDS)
    return encoder.head(x), lengths


@pytest.mark.parametrize(("kind", "channels"), LAYERS)
def test_an_utterance_does_not_hear_its_neighbors(kind: Any, channels: Any) -> None:
    layer = make_layer(kind, channels, 0.0).eval()
    x = make_input(channels[0])
    lengths = (LENGTHS + 1) // 2 if kind is SubSampling else LENGTHS
    with torch.no_grad():
        together = layer_output(layer, x, lengths, SEEDS)
        alone = layer_output(layer, x[1:2, : LENGTHS[1]].contiguous(), lengths[1:2], SEEDS)
    torch.testing.assert_close(together[1, : lengths[1]], alone[0], rtol=1e-2, atol=1e-2)
    assert torch.all(together[1, lengths[1] :] == 0)
    assert torch.all(together[3] == 0)


@pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
def test_an_encoder_draws_its_dropout_from_the_seed() -> None:
    encoder = TDSEncoder(WIDTH, [4, 6], [1, 1], 32, kernel=9, dropout=0.5).cuda().train()
    features, lengths = torch.randn(3, 200, WIDTH, device="cuda"), torch.tensor([200, 150, 20], device="cuda")

    def encode(seed: Any) -> Any:
        torch.manual_seed(seed)
        with torch.autocast("cuda", torch.bfloat16):
            return fused_encode(encoder, features, lengths)[0]

    assert torch.equal(encode(1), encode(1))
    assert not torch.equal(encode(1), encode(2))
