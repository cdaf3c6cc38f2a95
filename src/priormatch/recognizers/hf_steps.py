"""The decoder of a Hugging Face sequence-to-sequence model: all tokens at once, and one token at a time for a search.

Networks that take positions and attention masks get the k hypotheses of an utterance as one row, so that the keys and
values of its frames are computed and kept once. Other networks get k rows.
"""

import inspect
from typing import Any

import torch
from torch import Tensor

from priormatch.recognizers.heads import Frames

MOST_PACKED = 1024
"""Tokens in one row: longer ones would pay more for attention among themselves than they save."""
SAME = 1e-3  # how far logits computed in another way may differ in float32
POSITIONS, MASK = "decoder_position_ids", "decoder_attention_mask"


class KeptTokens:
    """The keys and values of the tokens that a search has read, in place of those of a layer of transformers' caches.

    New tokens are written at `length`, which the search sets; nothing is moved. They begin with those of the prompt.
    """

    def __init__(self, layer: Any, length: int) -> None:
        self.keys, self.values, self.length = layer.keys, layer.values, length
        layer.update, layer.get_seq_length = self.update, self.get_seq_length

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append keys and values (B, heads, k, D); return those of all tokens."""
        end = self.length + keys.shape[2]
        self.keys, self.values = (
            written(kept, new, self.length) for kept, new in ((self.keys, keys), (self.values, values))
        )
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self) -> int:
        """The number of tokens before the next ones."""
        return self.length


def written(kept: Tensor, new: Tensor, place: int) -> Tensor:
    """Write new entries at a place of the third dimension, in more memory if there is not enough."""
    end = place + new.shape[2]
    if end > kept.shape[2]:
        more = kept.new_zeros(*kept.shape[:2], max(end, 2 * kept.shape[2]), kept.shape[3])
        more[:, :, :place] = kept[:, :, :place]
        kept = more
    kept[:, :, place:end] = new
    return kept


class SharedSteps:
    """The decoder one token at a time, with k hypotheses in one row, as a step of `beam_search`.

    The state (B, k, L) is True where a hypothesis attends to a token that was read, of whichever hypothesis it was.
    """

    def __init__(self, network: Any, prompt: Tensor, frames: Frames, k: int, longest: int) -> None:
        self.network, self.prompt, self.frames, self.k = network, prompt, frames, k
        self.encoded, self.position = memory_of(frames, 1), 0
        self.cache: Any = None
        self.kept: list[KeptTokens] = []
        self.first = torch.zeros(
            len(frames.values), k, len(prompt) + k * longest, dtype=torch.bool, device=prompt.device
        )
        self.first[:, :, : len(prompt)] = True

    @property
    def memory(self) -> tuple[Any, ...]:
        """What is kept between two steps."""
        return self.position, self.cache, self.kept, [(each.keys, each.values) for each in self.kept]

    @memory.setter
    def memory(self, memory: tuple[Any, ...]) -> None:
        """Continue after another step."""
        self.position, self.cache, self.kept, tokens = memory
        for each, (keys, values) in zip(self.kept, tokens, strict=True):
            each.keys, each.values = keys, values

    def __call__(self, sees: Tensor, classes: Tensor | None) -> tuple[Tensor, Tensor]:
        """Who attends to what (B, k, L), last chosen classes (B, k) or None -> logits (B, k, C), the same."""
        logits = self._begin() if classes is None else self._advance(sees, classes)
        self.position += 1
        return logits, sees

    def _begin(self) -> Tensor:
        self.cache, logits = read_prompt(self.network, self.prompt, self.encoded, len(self.first))
        self.kept = [KeptTokens(each, len(self.prompt)) for each in self.cache.self_attention_cache.layers]
        return logits.expand(-1, self.k, -1)

    def _advance(self, sees: Tensor, classes: Tensor) -> Tensor:
        place = len(self.prompt) + (self.position - 1) * self.k
        sees[:, :, place : place + self.k] = torch.eye(self.k, dtype=torch.bool, device=sees.device)
        for each in self.kept:
            each.length = place
        found = self.network(
            **self.encoded,
            decoder_input_ids=classes,
            past_key_values=self.cache,
            use_cache=True,
            **in_one_row(
                torch.full_like(classes, len(self.prompt) + self.position - 1),
                sees[:, :, : place + self.k],
                self.network.dtype,
            ),
        )
        logits: Tensor = found.logits
        return logits


class RowSteps:
    """The decoder one token at a time, with a row for each hypothesis, as a step of `beam_search`.

    The state (B, k) is the slot of each hypothesis in the cache. When the search has moved the states to their new
    places, it says from which slots the cache must be taken.
    """

    def __init__(self, network: Any, prompt: Tensor, frames: Frames, k: int) -> None:
        self.network, self.prompt, self.frames, self.k = network, prompt, frames, k
        self.encoded, self.position = memory_of(frames, k), 0
        self.cache: Any = None
        slots = torch.arange(len(frames.values) * k, device=prompt.device)
        self.first = slots.view(-1, k)

    def __call__(self, slots: Tensor, classes: Tensor | None) -> tuple[Tensor, Tensor]:
        """Slots and last chosen classes (B, k), or None at the start -> logits (B, k, C), slots."""
        logits = self._begin() if classes is None else self._advance(slots, classes)
        self.position += 1
        return logits, self.first

    def _begin(self) -> Tensor:
        memory = memory_of(self.frames, 1)
        self.cache, logits = read_prompt(self.network, self.prompt, memory, len(self.first))
        self.cache.batch_repeat_interleave(self.k)
        return logits.expand(-1, self.k, -1)

    def _advance(self, slots: Tensor, classes: Tensor) -> Tensor:
        """Append a token to each hypothesis; only the decoder's own keys and values differ inside a beam."""
        if self.k > 1:
            self.cache.self_attention_cache.reorder_cache(slots.flatten())
        found = self.network(
            **self.encoded,
            decoder_input_ids=classes.reshape(-1, 1),
            past_key_values=self.cache,
            use_cache=True,
        )
        logits: Tensor = found.logits[:, -1]
        return logits.view(*classes.shape, -1)


def read_prompt(network: Any, prompt: Tensor, memory: dict[str, Any], batch: int) -> tuple[Any, Tensor]:
    """Run the prompt once for each utterance: -> the cache, and the logits of the first token (B, 1, C)."""
    found = network(**memory, decoder_input_ids=prompt.expand(batch, -1), use_cache=True)
    logits: Tensor = found.logits[:, -1:]
    return found.past_key_values, logits


def logits_of(network: Any, prompt: Tensor, frames: Frames, labels: Tensor, packs: bool) -> Tensor:
    """Logits of every token after those before it: labels (B, k, U) -> (B, k, U, C)."""
    batch, k, width = labels.shape
    before = torch.cat([prompt.expand(batch, k, -1), labels[:, :, :-1]], dim=2)
    size = before.shape[2]
    packed = packs and k > 1 and k * size <= MOST_PACKED
    rows = before.flatten(1) if packed else before.flatten(0, 1)
    options = packed_options(batch, k, size, network) if packed else {}
    memory = memory_of(frames, 1 if packed else k)
    found = network(**memory, decoder_input_ids=rows, use_cache=False, **options)
    logits: Tensor = found.logits.view(batch, k, size, -1)
    return logits[:, :, size - width :]


def packed_options(batch: int, k: int, size: int, network: Any) -> dict[str, Tensor]:
    """What makes a row k sequences of `size` tokens: none sees another one."""
    device = network.device
    positions = torch.arange(size, device=device).repeat(k).expand(batch, -1)
    whose = torch.arange(k, device=device).repeat_interleave(size)
    causal = torch.ones(k * size, k * size, dtype=torch.bool, device=device).tril()
    sees = causal & (whose[:, None] == whose)
    return in_one_row(positions, sees.expand(batch, -1, -1), network.dtype)


def in_one_row(positions: Tensor, sees: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
    """Positions (B, N), and which tokens see which (B, N, L), as arguments of a network."""
    if torch.is_autocast_enabled(sees.device.type):
        dtype = torch.get_autocast_dtype(sees.device.type)
    hidden = torch.zeros(sees.shape, dtype=dtype, device=sees.device)
    return {POSITIONS: positions, MASK: hidden.masked_fill_(~sees, torch.finfo(dtype).min)[:, None]}


def memory_of(frames: Frames, k: int) -> dict[str, Any]:
    """What the decoder attends to, for k rows of each utterance, as arguments of the network."""
    from transformers.modeling_outputs import BaseModelOutput

    values = frames.values.repeat_interleave(k, dim=0) if k > 1 else frames.values
    mask = frames.mask if frames.mask is None or k == 1 else frames.mask.repeat_interleave(k, dim=0)
    encoded = BaseModelOutput(last_hidden_state=values)
    encoded.attention_mask = mask  # where Moonshine looks for it
    return {"encoder_outputs": encoded, "attention_mask": mask}


@torch.no_grad()
def can_pack(network: Any, prompt: Tensor, frames: Frames, classes: int) -> bool:
    """Whether a network gives the same logits for hypotheses in one row, at once and step by step."""
    taken = inspect.signature(network.forward).parameters
    if POSITIONS not in taken or MASK not in taken:
        return False
    labels = (torch.arange(8) % classes).view(1, 2, 4)
    plain = logits_of(network, prompt, frames, labels, packs=False)
    try:
        packed = logits_of(network, prompt, frames, labels, packs=True)
        steps = SharedSteps(network, prompt, frames, 2, 3)
        first, sees = steps(steps.first, None)
        second, sees = steps(sees, labels[:, :, 0])
        third, _ = steps(sees.flip(1), labels[:, :, 1].flip(1))  # they change places
    except Exception:  # whatever a network raises that has no such mask
        return False
    stepped = torch.stack([first, second, third.flip(1)], dim=2)
    pairs = (packed, plain), (stepped, plain[:, :, :3])
    return all(torch.allclose(one, other, rtol=SAME, atol=SAME) for one, other in pairs)
