"""The decoder: step by step equals teacher forcing, and attention sees what exists."""

import math

import pytest
import torch
from narrowing import present

from priormatch.models.decoder import AttentionDecoder, DecoderSteps, Memory, attend, soft_window

CLASSES, SIZE = 7, 8


@pytest.fixture
def decoder() -> AttentionDecoder:
    return AttentionDecoder(CLASSES, SIZE).double().eval()


def memory_of(decoder: AttentionDecoder, lengths: list[int], longest: int | None = None) -> Memory:
    encoded = torch.randn(len(lengths), longest or max(lengths), 2 * SIZE, dtype=torch.float64)
    return decoder.memory(encoded, torch.tensor(lengths))


def test_the_papers_decoder_has_the_papers_size() -> None:
    with torch.device("meta"):
        decoder = AttentionDecoder(4998, 512)
    assert sum(each.numel() for each in decoder.parameters()) == 6_699_398
    assert decoder.embedding.weight.numel() == 2_558_976
    assert sum(each.numel() for each in decoder.gru.parameters()) == 1_575_936
    assert sum(each.numel() for each in decoder.output.parameters()) == 2_563_974


def test_weights_start_in_the_papers_ranges() -> None:
    decoder = AttentionDecoder(60, 64)
    for weight, bound in (
        (decoder.start, 0.1),
        (decoder.embedding.weight, 1 / 8),
        (decoder.gru.get_parameter("weight_ih_l0"), 1 / 8),
        (decoder.gru.get_parameter("weight_hh_l0"), 1 / 8),
        (decoder.output.weight, math.sqrt(3 / 64)),
        (decoder.output.bias, 1 / 8),
    ):
        assert 0.8 * bound < weight.abs().max() <= bound


def test_steps_equal_teacher_forcing(decoder: AttentionDecoder) -> None:
    memory, labels = memory_of(decoder, [5, 2, 3]), torch.randint(CLASSES, (3, 2, 6))
    forced = decoder(memory, labels)
    assert forced.shape == (3, 2, 6, CLASSES)
    expected = forced.log_softmax(dim=-1).float()
    steps, state, before = DecoderSteps(decoder, memory), decoder.first_state(3, 2), None
    for position in range(6):
        log_q, state = steps(state, before)
        torch.testing.assert_close(log_q[:, :, :CLASSES], expected[:, :, position])
        assert torch.all(log_q[:, :, CLASSES:] == -math.inf), "there is no other class"
        before = labels[:, :, position]


def test_steps_tell_where_they_attend_to(decoder: AttentionDecoder) -> None:
    memory, classes = memory_of(decoder, [5, 2, 3]), torch.randint(CLASSES, (3, 2))
    steps, start = DecoderSteps(decoder, memory), decoder.first_state(3, 2)
    for before in (None, classes):
        log_q, state, peaks = steps.with_peaks(start, before)
        assert all(map(torch.equal, (log_q, state), steps(start, before)))
        for row, frames in enumerate([5, 2, 3]):
            scores = state[row] @ memory.keys[row, :frames].T
            assert peaks[row].tolist() == scores.argmax(dim=-1).tolist()


def test_half_precision_is_scored_in_full(decoder: AttentionDecoder) -> None:
    memory = memory_of(decoder, [4])
    rounded = Memory(memory.keys.bfloat16(), memory.values.bfloat16(), memory.mask)
    decoder = decoder.bfloat16()
    log_q, _ = DecoderSteps(decoder, rounded)(decoder.first_state(1, 3), None)
    assert log_q.dtype == torch.float32
    torch.testing.assert_close(log_q.exp().sum(dim=-1), torch.ones(1, 3))


def test_a_step_by_hand(decoder: AttentionDecoder) -> None:
    memory = memory_of(decoder, [3])
    log_q, _ = DecoderSteps(decoder, memory)(decoder.first_state(1, 1), None)
    _, hidden = decoder.gru(decoder.start[None, None])
    scores = memory.keys[0] @ hidden[0, 0] / math.sqrt(SIZE)
    context = scores.softmax(0) @ memory.values[0]
    expected = decoder.output(hidden[0, 0] + context).log_softmax(dim=-1).float()
    torch.testing.assert_close(log_q[0, 0, :CLASSES], expected)


def test_keys_come_first_and_values_after(decoder: AttentionDecoder) -> None:
    encoded = torch.arange(2.0 * SIZE).expand(1, 2, -1)
    memory = decoder.memory(encoded, torch.tensor([1]))
    assert memory.keys[0, 0].tolist() == list(range(SIZE))
    assert memory.values[0, 0].tolist() == list(range(SIZE, 2 * SIZE))
    assert memory.mask.tolist() == [[True, False]]


@pytest.mark.parametrize("windowed", [False, True])
def test_logits_do_not_depend_on_padding(decoder: AttentionDecoder, windowed: bool) -> None:
    frames, lengths = [6, 2, 4], [5, 3, 1]
    memory, labels = memory_of(decoder, frames, longest=9), torch.randint(CLASSES, (3, 1, 5))
    counts = torch.tensor(frames), torch.tensor(lengths)[:, None]
    window = soft_window(*counts, 9, 5, 4.0) if windowed else None
    together = decoder(memory, labels, window)
    for row, (t, u) in enumerate(zip(frames, lengths, strict=True)):
        own = Memory(*(each[row : row + 1, :t] for each in (memory.keys, memory.values, memory.mask)))
        window = None
        if windowed:
            window = soft_window(torch.tensor([t]), torch.tensor([[u]]), t, u, 4.0)
        alone = decoder(own, labels[row : row + 1, :, :u], window)
        torch.testing.assert_close(together[row : row + 1, :, :u], alone)


def test_a_position_depends_only_on_the_classes_before_it(decoder: AttentionDecoder) -> None:
    memory, labels = memory_of(decoder, [4]), torch.zeros(1, 1, 5, dtype=torch.long)
    before = decoder(memory, labels)
    changed = labels.clone()
    changed[0, 0, 2:] = 3
    after = decoder(memory, changed)
    assert torch.equal(before[:, :, :3], after[:, :, :3])
    assert not torch.allclose(before[:, :, 3], after[:, :, 3])


def test_hypotheses_do_not_mix(decoder: AttentionDecoder) -> None:
    memory, labels = memory_of(decoder, [4, 3]), torch.randint(CLASSES, (2, 3, 4))
    together = decoder(memory, labels)
    for rank in range(3):
        torch.testing.assert_close(together[:, rank : rank + 1], decoder(memory, labels[:, rank : rank + 1]))


def test_an_utterance_without_frames_gives_no_nan(decoder: AttentionDecoder) -> None:
    memory = memory_of(decoder, [0, 3])
    log_q, _, peaks = DecoderSteps(decoder, memory).with_peaks(decoder.first_state(2, 2), None)
    window = soft_window(torch.tensor([0, 3]), torch.tensor([[4], [0]]), 3, 4, 4.0)
    forced = decoder(memory, torch.zeros(2, 1, 4, dtype=torch.long), window)
    assert torch.isfinite(log_q[:, :, :CLASSES]).all()
    assert peaks[0].tolist() == [0, 0]
    expected = decoder(memory, torch.zeros(2, 1, 1).long())[0, 0, 0].log_softmax(dim=-1)
    torch.testing.assert_close(log_q[0, 0, :CLASSES], expected.float())
    assert torch.isfinite(forced).all()
    forced.sum().backward()
    assert all(torch.isfinite(present(each.grad)).all() for each in decoder.parameters())


def test_the_window_by_hand() -> None:
    labels = torch.tensor([[3, 2], [4, 1]])
    window = soft_window(torch.tensor([6, 4]), labels, longest=6, width=4, deviation=4.0)
    assert window.shape == (2, 2, 4, 6)
    for u in range(4):
        for t in range(6):
            assert window[0, 0, u, t] == pytest.approx(-((t - u * 6 / 3) ** 2) / 32)
            assert window[0, 1, u, t] == pytest.approx(-((t - u * 6 / 2) ** 2) / 32)
            assert window[1, 0, u, t] == pytest.approx(-((t - u * 4 / 4) ** 2) / 32)


def test_the_window_is_added_to_the_scores_before_the_softmax() -> None:
    memory = Memory(torch.zeros(1, 3, 2), torch.eye(3)[None, :, :2], torch.tensor([[True, True, False]]))
    bias = torch.tensor([[[math.log(3.0), 0.0, 99.0]]])
    assert attend(torch.ones(1, 1, 2), memory, bias)[0, 0].tolist() == pytest.approx([0.75, 0.25])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("frames", [63, 64, 128, 192])
def test_gradients_of_windowed_attention_are_those_of_float64(frames: int) -> None:
    """What lies behind the last label is far from the window's center, which not every kernel can bear."""
    batch, width, size = 4, 40, 256
    values = torch.randn(3, batch, frames, size, dtype=torch.float64)
    lengths = torch.tensor([frames, frames - 5, frames - 9, frames])
    labels = torch.tensor([[40], [20], [1], [0]])

    def gradient(device: str, dtype: torch.dtype) -> torch.Tensor:
        queries, keys, content = (each.to(device, dtype).requires_grad_() for each in values)
        mask = torch.arange(frames) < lengths[:, None]
        window = soft_window(lengths.to(device), labels.to(device), frames, width, 4.0)[:, 0]
        memory = Memory(keys, content, mask.to(device))
        counts = (torch.arange(width) < labels)[:, :, None].to(device)
        (attend(queries[:, :width], memory, window).square() * counts).sum().backward()
        return torch.stack([each.grad.cpu().double() for each in (queries, keys, content)])

    exact, ours = gradient("cpu", torch.float64), gradient("cuda", torch.bfloat16)
    assert (exact - ours).norm() < 0.03 * exact.norm()
