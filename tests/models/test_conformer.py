"""The Conformer: the same frames whatever the padding, and the same numbers as a slow explicit reference."""

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import settings as how
from hypothesis import strategies as st
from narrowing import of_type, present
from torch import Tensor, nn
from torch.nn import functional

from priormatch.models.conformer import (
    ConformerBlock,
    ConformerEncoder,
    ConvModule,
    ConvSubSampling,
    SelfAttention,
    rotary,
    rotate,
)

MELS = 12


def tiny_encoder(subsampling: int = 4, output: int | None = 10) -> ConformerEncoder:
    """An encoder in which every norm has a bias of its own, so that padding is not zero by accident."""
    encoder = ConformerEncoder(MELS, 16, 2, 2, 5, subsampling, output=output).eval()
    for module in encoder.modules():
        if isinstance(module, nn.LayerNorm):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
    return encoder


def padded(utterances: list[Tensor], longest: int) -> Tensor:
    """(T_i, n_mels) each -> (B, longest, n_mels)."""
    return torch.stack([functional.pad(each, (0, 0, 0, longest - len(each))) for each in utterances])


@pytest.mark.parametrize(
    ("subsampling", "output", "expected"),
    [(4, None, 19_080_320), (4, 256, 19_080_320), (8, None, 18_900_224), (4, 1024, 19_343_488)],
)
def test_the_default_encoder_has_19_million_parameters(
    subsampling: int, output: int | None, expected: int
) -> None:
    with torch.device("meta"):
        encoder = ConformerEncoder(subsampling=subsampling, output=output)
    assert sum(each.numel() for each in encoder.parameters()) == expected


@pytest.mark.parametrize("subsampling", [4, 8])
@given(
    lengths=st.lists(st.integers(0, 50), min_size=1, max_size=5),
    more=st.integers(0, 20),
    seed=st.integers(0, 1000),
)
@how(max_examples=40)
@torch.no_grad()
def test_frames_do_not_depend_on_padding_or_neighbors(
    subsampling: int, lengths: list[int], more: int, seed: int
) -> None:
    torch.manual_seed(seed)
    encoder, utterances = tiny_encoder(subsampling), [torch.randn(each, MELS) for each in lengths]
    longest = max(1, max(lengths) + more)
    together, frames = encoder(padded(utterances, longest), torch.tensor(lengths))
    assert together.shape == (len(lengths), -(-longest // subsampling), 10)
    assert frames.tolist() == [-(-each // subsampling) for each in lengths]
    for row, count, utterance in zip(together, frames.tolist(), utterances, strict=True):
        assert not row[count:].any()
        if count:
            alone, own = encoder(utterance[None], torch.tensor([len(utterance)]))
            assert own.item() == count == alone.shape[1]
            torch.testing.assert_close(row[:count], alone[0], atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("halvings", "time", "mels"), [(2, 1, 1), (2, 5, 7), (2, 8, 8), (3, 9, 9), (3, 16, 80)]
)
def test_lengths_round_up_at_every_convolution(halvings: int, time: int, mels: int) -> None:
    layer = ConvSubSampling(mels, 8, halvings, 0.0)
    found, lengths = layer(torch.randn(1, time, mels), torch.tensor([time]))
    expected = math.ceil(time / 2**halvings)
    assert found.shape == (1, expected, 8)
    assert lengths.tolist() == [expected]


def turned(x: Tensor) -> Tensor:
    """Rotary embeddings by complex numbers: z_i · exp(j · t · 10000^(-2i / D)), for (T, D)."""
    time, size = x.shape
    rows = [
        torch.complex(x[t, i], x[t, i + size // 2])
        * torch.exp(torch.tensor(1j * t * 10_000 ** (-2 * i / size)))
        for t in range(time)
        for i in range(size // 2)
    ]
    z = torch.stack(rows).view(time, size // 2)
    return torch.cat([z.real, z.imag], dim=1)


def slow_attention(layer: SelfAttention, x: Tensor) -> Tensor:
    """Attention of one utterance (T, width), one head after another, with an explicit softmax."""
    queries, keys, values = layer.inputs(layer.norm(x)).chunk(3, dim=1)
    size, contexts = x.shape[1] // layer.heads, []
    for head in range(layer.heads):
        own = slice(head * size, (head + 1) * size)
        scores = turned(queries[:, own]) @ turned(keys[:, own]).T / math.sqrt(size)
        weights = scores.exp() / scores.exp().sum(dim=1, keepdim=True)
        contexts.append(weights @ values[:, own])
    return layer.output(torch.cat(contexts, dim=1))


def slow_convolution(layer: ConvModule, x: Tensor) -> Tensor:
    """The convolution module of one utterance (T, width), frame by frame."""
    values, gates = layer.gated(layer.norm(x)).chunk(2, dim=1)
    gated, kernel = values * gates.sigmoid(), layer.depthwise.kernel_size[0]
    mixed = []
    for t in range(len(x)):
        total = layer.depthwise.bias
        for k in range(kernel):
            if 0 <= t + k - kernel // 2 < len(x):
                total = total + layer.depthwise.weight[:, 0, k] * gated[t + k - kernel // 2]
        mixed.append(layer.conv_norm(total))
    activated = torch.stack(mixed)
    return layer.output(activated * activated.sigmoid())


def slow_block(block: ConformerBlock, x: Tensor) -> Tensor:
    """The block of one utterance (T, width)."""

    def half(layers: nn.Sequential, x: Tensor) -> Tensor:
        inner = layers[1](layers[0](x))
        return layers[4](inner * inner.sigmoid()) / 2

    x = x + half(block.before, x)
    x = x + slow_attention(block.attention, x)
    x = x + slow_convolution(block.conv, x)
    return block.norm(x + half(block.after, x))


def masks(lengths: list[int], longest: int) -> tuple[Tensor, Tensor]:
    """padding (B, T, 1) and seen (B, 1, 1, T)."""
    valid = torch.arange(longest) < torch.tensor(lengths)[:, None]
    return ~valid[:, :, None], valid[:, None, None, :]


@torch.no_grad()
def test_attention_equals_a_slow_reference() -> None:
    layer, lengths = SelfAttention(24, 3, 0.1).eval(), [9, 1, 6]
    x = torch.randn(3, 11, 24)
    found = layer(x, masks(lengths, 11)[1], rotary(11, 8, x.device))
    for row, own, length in zip(found, x, lengths, strict=True):
        torch.testing.assert_close(row[:length], slow_attention(layer, own[:length]), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_block_equals_a_slow_reference() -> None:
    block, lengths = ConformerBlock(16, 2, 7, 0.1).eval(), [12, 2, 5]
    x = torch.randn(3, 13, 16)
    found = block(x, *masks(lengths, 13), rotary(13, 8, x.device))
    for row, own, length in zip(found, x, lengths, strict=True):
        torch.testing.assert_close(row[:length], slow_block(block, own[:length]), atol=1e-5, rtol=1e-5)


def test_rotated_products_depend_on_the_distance_alone() -> None:
    rotation = rotary(3000, 16, torch.device("cpu"))
    queries, keys = (rotate(torch.randn(16).expand(3000, 16), rotation) for _ in range(2))
    near, far = (queries[:100] * keys[7:107]).sum(dim=1), (queries[2800:2900] * keys[2807:2907]).sum(dim=1)
    torch.testing.assert_close(near, near[:1].expand(100), atol=1e-4, rtol=0)
    torch.testing.assert_close(far, near, atol=5e-3, rtol=0)


def test_attention_distinguishes_positions() -> None:
    layer, x = SelfAttention(16, 2, 0.0), torch.randn(1, 6, 16)
    seen, rotation = masks([6], 6)[1], rotary(6, 8, x.device)
    backward = layer(x.flip(1), seen, rotation).flip(1)
    assert not torch.allclose(layer(x, seen, rotation), backward, atol=1e-3)


@pytest.mark.parametrize("subsampling", [4, 8])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("lengths", [[0], [1], [0, 1, 2, 33], [0, 0]])
def test_short_utterances_give_finite_gradients(
    subsampling: int, precision: torch.dtype, lengths: list[int]
) -> None:
    encoder = tiny_encoder(subsampling).train()
    features = padded([torch.randn(each, MELS) for each in lengths], max(*lengths, 1)).requires_grad_()
    with torch.autocast("cpu", precision, enabled=precision != torch.float32):
        frames, counts = encoder(features, torch.tensor(lengths))
    assert counts.tolist() == [-(-each // subsampling) for each in lengths]
    assert frames.isfinite().all()
    frames.float().square().sum().backward()
    for each in (features, *encoder.parameters()):
        assert each.grad is not None and each.grad.isfinite().all()


def test_no_softmax_is_over_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def plain(queries: Tensor, keys: Tensor, values: Tensor, attn_mask: Tensor) -> Tensor:
        scores = queries @ keys.transpose(-1, -2) / math.sqrt(queries.shape[-1])
        return scores.masked_fill(~attn_mask, -math.inf).softmax(dim=-1) @ values

    monkeypatch.setattr(functional, "scaled_dot_product_attention", plain)  # some kernels do no better
    encoder = tiny_encoder()
    encoder(torch.zeros(2, 9, MELS), torch.tensor([0, 9]))[0].sum().backward()
    assert all(present(each.grad).isfinite().all() for each in encoder.parameters())


def test_every_parameter_is_trained() -> None:
    encoder = tiny_encoder()
    frames, _ = encoder(torch.randn(2, 40, MELS), torch.tensor([40, 30]))
    (frames * torch.randn_like(frames)).sum().backward()
    unused = [name for name, each in encoder.named_parameters() if not present(each.grad).any()]
    assert unused == []


@torch.no_grad()
def test_half_precision_stays_near_full_precision() -> None:
    encoder, features, lengths = tiny_encoder(), torch.randn(2, 60, MELS), torch.tensor([60, 41])
    wanted, _ = encoder(features, lengths)
    with torch.autocast("cpu", torch.bfloat16):
        found, _ = encoder(features, lengths)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), wanted, atol=0.06, rtol=0)
    converted, _ = encoder.bfloat16()(features.bfloat16(), lengths)
    torch.testing.assert_close(converted.float(), wanted, atol=0.1, rtol=0)


def test_dropout_acts_in_training_alone() -> None:
    encoder, features, lengths = tiny_encoder(), torch.randn(1, 30, MELS), torch.tensor([30])
    assert torch.equal(encoder(features, lengths)[0], encoder(features, lengths)[0])
    encoder.train()
    assert not torch.equal(encoder(features, lengths)[0], encoder(features, lengths)[0])


def test_a_projection_only_if_the_output_differs_from_the_width() -> None:
    assert isinstance(tiny_encoder(output=None).head, nn.Identity)
    assert isinstance(tiny_encoder(output=16).head, nn.Identity)
    assert tiny_encoder(output=20)(torch.randn(1, 9, MELS), torch.tensor([9]))[0].shape == (1, 3, 20)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"width": 18, "heads": 4}, "width 18 with 4 heads.*divisible by 8"),
        ({"width": 12, "heads": 4}, "width 12 with 4 heads.*an even size per head"),
        ({"kernel": 30}, "kernel 30: must be odd"),
        ({"subsampling": 6}, "subsampling 6: must be 4 or 8"),
    ],
)
def test_impossible_sizes_are_refused(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ConformerEncoder(layers=1, **sizes)


@torch.no_grad()
@pytest.mark.parametrize("subsampling", [4, 8])
def test_the_exported_encoder_gives_the_same_frames(subsampling: int, tmp_path: Path) -> None:
    import onnxruntime

    from priormatch.recognizers.export import write_onnx

    encoder = tiny_encoder(subsampling)
    write_onnx(
        tmp_path / "encoder.onnx",
        encoder,
        {"features": torch.randn(2, 50, MELS), "lengths": torch.tensor([50, 17])},
        ["frames", "counts"],
        {"features": {0: "batch", 1: "time"}, "lengths": {0: "batch"}},
    )
    session = onnxruntime.InferenceSession(tmp_path / "encoder.onnx", providers=["CPUExecutionProvider"])
    for lengths, longest in (([50, 17], 50), ([200], 200), ([33, 0, 1, 70], 75), ([1], 1), ([0], 3)):
        features = padded([torch.randn(each, MELS) for each in lengths], longest)
        wanted, counts = encoder(features, torch.tensor(lengths))
        found, counted = session.run(
            None, {"features": features.numpy(), "lengths": torch.tensor(lengths).numpy()}
        )
        assert counted.tolist() == counts.tolist()
        torch.testing.assert_close(torch.from_numpy(found), wanted, atol=1e-4, rtol=0)


def test_frames_are_not_smaller_than_what_a_block_adds() -> None:
    """Without the norm after subsampling they are about a fourth of it, and ten hours of speech teach little."""
    encoder = ConformerEncoder(n_mels=80, width=64, layers=1, kernel=7).eval()
    features, lengths = torch.randn(2, 200, 80), torch.tensor([200, 200])
    with torch.no_grad():
        frames, _ = encoder.subsampling(features, lengths)
        padding, seen = masks([50, 50], 50)
        block = of_type(ConformerBlock, encoder.blocks[0])
        rotation = rotary(50, encoder.head_size, frames.device)
        after = frames + 0.5 * block.before(frames)
        after = after + block.attention(after, seen, rotation)
        after = after + block.conv(after, padding)
        after = after + 0.5 * block.after(after)
    assert frames.std() > (after - frames).std()
