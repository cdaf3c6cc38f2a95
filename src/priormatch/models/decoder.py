"""GRU decoder with key-value attention; the GRU reads only the label history, attention adds the acoustics."""

import math
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from priormatch.data.features import time_mask
from priormatch.decoding.beam import BLOCK

SOUND_ATTENTION = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Without cuDNN: with a mask and T = 64 mod 128 its gradients are NaN (pytorch/pytorch, issue 196678)."""


@dataclass(frozen=True)
class Memory:
    """Encoded utterances: keys and values (B, T, D) and the mask of valid frames (B, T)."""

    keys: Tensor
    values: Tensor
    mask: Tensor


class AttentionDecoder(nn.Module):
    """p(y_u | y_<u, x) = softmax(W(h_u + c_u)), with h_u = GRU(y_<u) and c_u the attention context of query h_u.

    There is no input feeding, so teacher forcing is one GRU call and one attention over all positions.
    """

    def __init__(self, classes: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.embedding = nn.Embedding(classes, size)
        self.start = nn.Parameter(torch.empty(size).uniform_(-0.1, 0.1))
        self.gru = nn.GRU(size, size, batch_first=True)
        self.output = nn.Linear(size, classes)
        nn.init.uniform_(self.embedding.weight, -1 / math.sqrt(size), 1 / math.sqrt(size))
        nn.init.uniform_(self.output.weight, -math.sqrt(3 / size), math.sqrt(3 / size))

    def memory(self, encoded: Tensor, lengths: Tensor) -> Memory:
        """Split the encoder's frames (B, T, 2D) into keys and values."""
        keys, values = encoded.chunk(2, dim=-1)
        return Memory(keys, values, time_mask(lengths, encoded.shape[1]))

    def forward(self, memory: Memory, inputs: Tensor, window: Tensor | None = None) -> Tensor:
        """Logits of every next class for k label sequences per utterance.

        inputs (B, k, U) holds the sequences; position u is predicted from the classes before it, so the last
        input class is not used. window (B, k, U, T) is added to the attention scores. -> (B, k, U, classes)
        """
        beam, length = inputs.shape[1:]
        states = self._states(inputs)
        bias = None if window is None else window.flatten(1, 2)
        context = attend(states, memory, bias)
        return class_logits(self.output, states + context).unflatten(1, (beam, length))

    def _states(self, inputs: Tensor) -> Tensor:
        """The GRU's states h_u, which are the queries: (B, k, U) -> (B, k · U, D)."""
        batch, beam, length = inputs.shape
        begin = self.start.expand(batch * beam, 1, self.size)
        history = torch.cat([begin, self.embedding(inputs.flatten(0, 1)[:, :-1])], dim=1)
        states, _ = self.gru(history)
        return states.reshape(batch, beam * length, self.size)

    def attention(self, memory: Memory, inputs: Tensor) -> Tensor:
        """The attention weights of every position over the frames: inputs (B, k, U) -> (B, k, U, T)."""
        scores = self._states(inputs) @ memory.keys.transpose(1, 2) / math.sqrt(self.size)
        weights = scores.masked_fill(~memory.mask[:, None, :], -math.inf).softmax(dim=-1)
        return weights.unflatten(1, inputs.shape[1:])

    def first_state(self, batch: int, beam: int) -> Tensor:
        """The GRU's state before the first step: (B, k, D)."""
        return self.start.new_zeros(batch, beam, self.size)


class DecoderSteps:
    """The decoder one step at a time, for beam search, with everything that does not change precomputed.

    The keys are contiguous. The output layer is padded to whole blocks with impossible classes (-inf), which also makes
    its product faster. The input half of the GRU is computed once for every class that occurs; on a GPU it is computed
    for all classes at once, because finding those that occur would take longer.
    """

    def __init__(self, decoder: AttentionDecoder, memory: Memory) -> None:
        self.decoder, self.keys, self.values = decoder, memory.keys.contiguous(), memory.values
        self.mask = memory.mask[:, :, None]
        unseen = torch.finfo(self.keys.dtype).min / 2  # finite: an utterance without frames must not give NaN
        self.bias = self.keys.new_zeros(self.mask.shape).masked_fill(~self.mask, unseen)
        more = -decoder.output.out_features % BLOCK
        self.output = functional.pad(decoder.output.weight, (0, 0, 0, more))
        self.output_bias = functional.pad(decoder.output.bias, (0, more), value=-math.inf)
        self.inputs = self.output.new_empty(decoder.output.out_features, 3 * decoder.size)
        self.known = torch.zeros(len(self.inputs), dtype=torch.bool, device=self.inputs.device)
        if self.inputs.is_cuda:
            self._learn_inputs(torch.arange(len(self.inputs), device=self.inputs.device))

    def __call__(self, state: Tensor, classes: Tensor | None) -> tuple[Tensor, Tensor]:
        """Compute one step for every open hypothesis.

        state (B, k, D), last chosen classes (B, k) or None at the start -> log q (B, k, C'), state.
        """
        state = self._advance(state, classes)
        return self._log_q(state, self._attention(state)), state

    def with_peaks(self, state: Tensor, classes: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Compute one step as above, and return the frames with the highest attention weight, (B, k)."""
        state = self._advance(state, classes)
        weights = self._attention(state)
        return self._log_q(state, weights), state, weights.argmax(dim=-1)

    def _advance(self, state: Tensor, classes: Tensor | None) -> Tensor:
        """The GRU's next state: (B, k, D)."""
        return gru_step(self.decoder.gru, self._input_half(classes), state)

    def _input_half(self, classes: Tensor | None) -> Tensor:
        """The input half of the GRU gates for classes (B, k): (B, k, 3D)."""
        into, _, bias, _ = self.decoder.gru.all_weights[0]
        if classes is None:
            return functional.linear(self.decoder.start, into, bias)
        if not classes.is_cuda:
            occurring = classes.unique()
            self._learn_inputs(occurring[~self.known[occurring]])
        return functional.embedding(classes, self.inputs)

    def _learn_inputs(self, classes: Tensor) -> None:
        """Compute and store the input half of the GRU gates for classes (N,)."""
        into, _, bias, _ = self.decoder.gru.all_weights[0]
        half = functional.linear(self.decoder.embedding(classes), into, bias)
        self.inputs[classes] = half.to(self.inputs.dtype)
        self.known.index_fill_(0, classes, True)

    def _attention(self, queries: Tensor) -> Tensor:
        """softmax(q·k / sqrt(D)) over the valid frames: (B, k, D) -> (B, k, T)."""
        scale = 1 / math.sqrt(self.decoder.size)
        scores = torch.baddbmm(self.bias, self.keys, queries.transpose(1, 2), alpha=scale)
        return (scores.softmax(dim=1) * self.mask).transpose(1, 2)

    def _log_q(self, state: Tensor, weights: Tensor) -> Tensor:
        """log softmax(W(h + c)), in float32: (B, k, D), (B, k, T) -> (B, k, C')."""
        summed = torch.baddbmm(state, weights, self.values)
        logits = functional.linear(summed, self.output, self.output_bias)
        return logits.log_softmax(dim=-1, dtype=torch.float32)


def gru_step(gru: nn.GRU, inputs: Tensor, state: Tensor) -> Tensor:
    """The next GRU state from the input half of the gates (..., 3D) and the state (..., D): (..., D)."""
    _, recurrent, _, recurrent_bias = gru.all_weights[0]
    reset, update, new = inputs.chunk(3, dim=-1)
    before = functional.linear(state, recurrent, recurrent_bias).chunk(3, dim=-1)
    new = (new + (reset + before[0]).sigmoid() * before[2]).tanh()
    return new + (update + before[1]).sigmoid() * (state - new)


def class_logits(layer: nn.Linear, x: Tensor) -> Tensor:
    """Apply the layer; on a GPU pad its columns to a multiple of 8 for the tensor cores, and drop them again."""
    more = -layer.out_features % 8
    if more == 0 or not x.is_cuda:
        return layer(x)
    weight, bias = functional.pad(layer.weight, (0, 0, 0, more)), functional.pad(layer.bias, (0, more))
    return functional.linear(x, weight, bias)[..., : layer.out_features]


def attend(queries: Tensor, memory: Memory, bias: Tensor | None) -> Tensor:
    """softmax(q·k / sqrt(D) + bias) v over the valid frames: (B, Q, D) -> (B, Q, D)."""
    mask = memory.mask[:, None, :]
    if bias is not None:
        mask = bias.masked_fill(~mask, -math.inf).to(queries.dtype)
    with sdpa_kernel(SOUND_ATTENTION) if queries.is_cuda else nullcontext():
        return functional.scaled_dot_product_attention(
            queries[:, None], memory.keys[:, None], memory.values[:, None], attn_mask=mask[:, None]
        )[:, 0]


def soft_window(frames: Tensor, labels: Tensor, longest: int, width: int, deviation: float) -> Tensor:
    """The pre-training window that keeps attention near the diagonal: -(t - u·T/U)² / 2σ².

    frames T (B,), labels U (B, k), `longest` frames and `width` labels in the padded batch
    -> (B, k, width, longest)
    """
    t = torch.arange(longest, device=frames.device)
    u = torch.arange(width, device=frames.device)[:, None]
    center = u * (frames[:, None] / labels.clamp(min=1))[:, :, None, None]
    return -((t - center) ** 2) / (2 * deviation**2)
