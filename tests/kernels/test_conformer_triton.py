"""The fused Conformer, against the plain one in float64.

They need a GPU; with Triton installed and TRITON_INTERPRET=1 they run on the CPU too, in float32 and slowly.
"""

import copy
import os
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from narrowing import present
from torch import nn
from torch.nn import functional

from priormatch.models.conformer import ConformerEncoder, rotary, rotate

pytest.importorskip("triton")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if not torch.cuda.is_available() and not INTERPRETED:
    pytest.skip("needs a GPU", allow_module_level=True)

from priormatch.kernels import conformer_layers  # noqa: E402
from priormatch.kernels.conformer_layers import Attention, Depthwise, Rotate, Shape  # noqa: E402
from priormatch.kernels.conformer_triton import encode as fused_encode  # noqa: E402
from priormatch.kernels.conformer_triton import encodes  # noqa: E402
from priormatch.kernels.graphs import Graphed  # noqa: E402

DEVICE = "cpu" if INTERPRETED else "cuda"
DTYPE = torch.float32 if INTERPRETED else torch.bfloat16
MELS, STEPS = (10, 37) if INTERPRETED else (80, 701)
CLOSE = 1e-4 if INTERPRETED else 2e-2
LENGTHS = torch.tensor([STEPS, STEPS // 2, 1, 0], device=DEVICE)
SIZES = [  # width, heads, kernel, subsampling, output
    ((16, 2, 5, 4, None) if INTERPRETED else (256, 4, 31, 4, None)),
    ((24, 2, 7, 8, 10) if INTERPRETED else (192, 4, 15, 8, 320)),
    ((36, 1, 3, 4, None) if INTERPRETED else (640, 8, 31, 4, None)),
]


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that sum over rows then loop over several tiles, also in a small batch."""
    if INTERPRETED:
        monkeypatch.setattr(conformer_layers, "PROCESSORS", 1)


class Hashed(nn.Module):
    """Dropout as the kernels draw it: each call takes the next of the shared seeds."""

    def __init__(self, share: float, seeds: Any) -> None:
        super().__init__()
        self.share, self.seeds = share, seeds

    def forward(self, x: Any) -> Any:
        bits = (torch.arange(x.numel(), device=x.device) * 0x9E3779B9 + next(self.seeds)) & 0xFFFFFFFF
        bits = ((bits ^ (bits >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
        bits = ((bits ^ (bits >> 15)) * 0x846CA68B) & 0xFFFFFFFF
        kept = ((bits ^ (bits >> 16)) >= int(self.share * 2**32)).view_as(x)
        return x * kept / (1 - self.share)


def with_hashes(encoder: Any, share: float) -> Any:
    """The encoder with the dropout that the kernels draw after `torch.manual_seed(1)`."""
    torch.manual_seed(1)
    draws = torch.randint(2**31, (6 * len(encoder.blocks) + 1, 2), device=DEVICE)
    seeds = iter(draws[:, 0].tolist())
    for parent in list(encoder.modules()):
        for name, each in list(parent.named_children()):
            if isinstance(each, nn.Dropout):
                setattr(parent, name, Hashed(share, seeds))
    return encoder


def make_encoder(sizes: Any, share: float = 0.0) -> Any:
    torch.manual_seed(0)
    width, heads, kernel, subsampling, output = sizes
    encoder = ConformerEncoder(MELS, width, 2, heads, kernel, subsampling, dropout=share, output=output)
    for each in encoder.parameters():
        if each.dim() == 1:  # biases, gains and shifts that do something
            nn.init.normal_(each, mean=float(each.mean() > 0.5), std=0.2)
    return encoder.to(DEVICE).train()


def make_input(steps: int = STEPS, lengths: Any = LENGTHS) -> Any:
    exists = torch.arange(steps, device=DEVICE)[None, :, None] < lengths[:, None, None]
    return torch.randn(len(lengths), steps, MELS, device=DEVICE) * exists


def autocast(enabled: bool = True) -> Any:
    return torch.autocast("cuda", torch.bfloat16) if enabled and not INTERPRETED else nullcontext()


def relative_error(found: Any, expected: Any) -> Any:
    return float((found.double() - expected.double()).norm() / expected.double().norm().clamp(min=1e-12))


def outcome(encoder: Any, x: Any, run: Any) -> Any:
    """Frames, and the gradients of the parameters; in bfloat16 unless in float64."""
    exact = encoder.subsampling.linear.weight.dtype == torch.float64
    torch.manual_seed(1)
    with autocast(not exact):
        frames, lengths = run(encoder, x.double() if exact else x, LENGTHS)
    torch.manual_seed(2)
    frames.backward(torch.randn(frames.shape, device=DEVICE).to(DTYPE).to(frames.dtype))
    slopes = {name: each.grad for name, each in encoder.named_parameters()}
    return {"frames": frames.detach(), "lengths": lengths, **slopes}


def plain(encoder: Any, x: Any, lengths: Any) -> Any:
    return encoder(x, lengths)


@pytest.mark.parametrize("share", [0.0, 0.2])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_an_encoder_and_its_gradients(sizes: Any, share: Any) -> None:
    encoder, x = make_encoder(sizes, share), make_input()
    found = outcome(copy.deepcopy(encoder), x, fused_encode)
    exact, rounded = (
        outcome(with_hashes(copy.deepcopy(encoder), share).to(dtype), x, plain)
        for dtype in (torch.float64, torch.float32)
    )
    assert torch.equal(found.pop("lengths"), exact.pop("lengths"))
    # A rectifier's slope flips wherever rounding changes a sign, so gradients are held against those of plain layers.
    for name, each in exact.items():
        assert found[name].dtype == (DTYPE if name == "frames" else torch.float32)
        least = 0.1 if "convs" in name and not INTERPRETED else CLOSE
        worst = max(least, 2 * relative_error(rounded[name], each))
        assert relative_error(found[name], each) < worst, name


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_an_utterance_does_not_hear_its_neighbors(sizes: Any) -> None:
    encoder, x = make_encoder(sizes, 0.5).eval(), make_input()
    with torch.no_grad(), autocast():
        together, counts = fused_encode(encoder, x, LENGTHS)
        alone, _ = fused_encode(encoder, x[1:2, : LENGTHS[1]], LENGTHS[1:2])
        expected, _ = encoder(x, LENGTHS)
    assert not together.requires_grad
    assert relative_error(together, expected) < 2 * CLOSE
    assert relative_error(together[1, : counts[1]], alone[0]) < CLOSE
    for frames, count in zip(together, counts, strict=True):
        assert torch.all(frames[count:] == 0)


def test_the_same_seed_gives_the_same_bits() -> None:
    encoder, x = make_encoder(SIZES[0], 0.5), make_input()

    def run(seed: int) -> Any:
        encoder.zero_grad()
        torch.manual_seed(seed)
        with autocast():
            frames, _ = fused_encode(encoder, x, LENGTHS)
        frames.float().square().sum().backward()
        return [frames.detach(), *(each.grad.clone() for each in encoder.parameters())]

    first, again, other = run(1), run(1), run(2)
    assert all(torch.equal(*each) for each in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])


@pytest.mark.parametrize("size", [6, 16, 36, 64, 128])
def test_attention(size: int) -> None:
    heads, steps = 2, 70 if INTERPRETED else 313
    lengths = torch.tensor([steps, 64, 1, 0], device=DEVICE)
    torch.manual_seed(0)
    x = torch.randn(len(lengths) * steps, 3 * heads * size, device=DEVICE).to(DTYPE)
    given, exact = x.clone().requires_grad_(), x.double().requires_grad_()
    found = Attention.apply(Shape(lengths, steps, True), heads, given)
    queries, keys, values = exact.view(len(lengths), steps, 3, heads, size).permute(2, 0, 3, 1, 4)
    seen = torch.arange(steps, device=DEVICE) < lengths.clamp(min=1)[:, None]
    scores = (queries @ keys.transpose(2, 3) / size**0.5).masked_fill(~seen[:, None, None], -torch.inf)
    expected = (scores.softmax(dim=-1) @ values).transpose(1, 2).reshape(found.shape)
    slope = torch.randn_like(found)
    found.backward(slope)
    expected.backward(slope.double())
    assert relative_error(found, expected) < CLOSE
    assert relative_error(given.grad, exact.grad) < CLOSE


@pytest.mark.parametrize(("width", "taps"), [(16, 1), (24, 31), (100, 65), (1024, 7)])
def test_the_depthwise_convolution(width: int, taps: int) -> None:
    batch, steps = 2, 21 if INTERPRETED else 301
    torch.manual_seed(0)
    conv, norm = nn.Conv1d(width, width, taps, padding=taps // 2, groups=width), nn.LayerNorm(width)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    conv, norm = conv.to(DEVICE), norm.to(DEVICE)
    x = torch.randn(batch * steps, width, device=DEVICE).to(DTYPE)
    given, exact = x.clone().requires_grad_(), x.double().requires_grad_()
    parameters = conv.weight, present(conv.bias), norm.weight, norm.bias
    found = Depthwise.apply(Shape(torch.full((batch,), steps), steps, True), norm.eps, given, *parameters)
    slope = torch.randn_like(found)
    found.backward(slope)
    slopes = [given.grad, *(present(each.grad).clone() for each in parameters)]
    conv, norm = copy.deepcopy(conv).double(), copy.deepcopy(norm).double()
    conv.zero_grad()
    norm.zero_grad()
    mixed = conv(exact.view(batch, steps, width).transpose(1, 2)).transpose(1, 2).flatten(0, 1)
    expected = functional.silu(norm(mixed))
    expected.backward(slope.double())
    assert relative_error(found, expected) < CLOSE
    for mine, each in zip(slopes, (exact, *conv.parameters(), *norm.parameters()), strict=True):
        assert relative_error(mine, each.grad) < CLOSE


def test_rotation() -> None:
    heads, size, steps = 3, 10, 9
    torch.manual_seed(0)
    x = torch.randn(2 * steps, 3 * heads * size, device=DEVICE).to(DTYPE)
    bias = torch.randn(3 * heads * size, device=DEVICE)
    rotation = rotary(steps, size, x.device)
    given, exact = (each.clone().requires_grad_() for each in (x, x.double()))
    mine, theirs = (each.clone().requires_grad_() for each in (bias, bias.double()))
    found = Rotate.apply(rotation, given, mine)
    parts = (exact + theirs).view(2, steps, 3, heads, size).permute(2, 0, 3, 1, 4)
    turned = torch.stack([*rotate(parts[:2], rotation), parts[2]])
    expected = turned.permute(1, 3, 0, 2, 4).reshape(x.shape)
    slope = torch.randn_like(found)
    found.backward(slope)
    expected.backward(slope.double())
    assert relative_error(found, expected) < CLOSE
    assert relative_error(given.grad, exact.grad) < CLOSE
    assert relative_error(mine.grad, theirs.grad) < CLOSE


def test_what_is_not_supported() -> None:
    class Other(ConformerEncoder):
        pass

    def fits(**sizes: Any) -> bool:
        return encodes(ConformerEncoder(MELS, layers=1, **sizes), torch.zeros(1, 9, MELS))

    assert fits()
    assert fits(width=1024, heads=8, kernel=255)
    assert not fits(width=1032, heads=12)
    assert not fits(kernel=257)
    assert not fits(width=512, heads=2)
    assert not encodes(Other(MELS), torch.zeros(1, 9, MELS))
    assert not encodes(ConformerEncoder(MELS), torch.zeros(1, 9, MELS, requires_grad=True))


@pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
def test_a_recording_computes_the_same() -> None:
    encoder = make_encoder(SIZES[0])

    def step(x: Any, lengths: Any) -> Any:
        with autocast():
            frames, _ = fused_encode(encoder, x, lengths)
        frames.float().square().sum().backward()
        return frames.detach()

    recorded = Graphed(step, encoder.parameters())
    for seed in range(3):  # when it is recorded, and from the recording
        torch.manual_seed(seed)
        x = make_input()
        encoder.zero_grad(set_to_none=True)
        frames = recorded(x, LENGTHS).clone()
        slopes = [each.grad.clone() for each in encoder.parameters()]
        encoder.zero_grad(set_to_none=True)
        assert relative_error(frames, step(x, LENGTHS)) < 1e-2
        for slope, each in zip(slopes, encoder.parameters(), strict=True):
            assert relative_error(slope, each.grad) < 1e-2
