"""The decoder of a Hugging Face sequence-to-sequence model as an output head: log q by teacher forcing, beam search."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from priormatch.config import FusionSettings, TrainingSettings
from priormatch.decoding.beam import Beam, Step, beam_search
from priormatch.decoding.fusion import fused_scores
from priormatch.models.conv_lm import ConvLM
from priormatch.models.objective import sequence_loss
from priormatch.recognizers.heads import Frames

ROWS = 64  # hypotheses whose caches are in memory at the same time
MOST_A_SECOND = 50
"""Tokens; a decoder that writes more, in any script, is in a loop."""
AT_LEAST = 10  # tokens that a hypothesis of any duration may have


@dataclass(frozen=True)
class DecoderHead:
    """log q(y|x) = Σ_u log q(y_u | prompt, y_<u, x), in float32.

    The decoder first reads `prompt` (P,), such as Whisper's tokens for language and task. The search never proposes the
    classes that are True in `never` (C,), nor those in `never_first` (C,) as the first token; log q includes them.
    Hypotheses have at most `longest` tokens, and `MOST_A_SECOND`.
    """

    network: Any
    prompt: Tensor
    eos: int
    never: Tensor
    never_first: Tensor
    longest: int
    frame_seconds: float
    limited = True

    def search(self, frames: Frames, k: int) -> Beam:
        """Beam search with k hypotheses, for a few utterances at a time."""
        return self._in_parts(frames, k, None)

    def search_with(self, lm: ConvLM, frames: Frames, settings: FusionSettings) -> Beam:
        """Beam search by log q + λ log p + bonus; the limit on jumps of attention does not apply."""
        return self._in_parts(frames, settings.beam_size, (lm, settings))

    def _in_parts(self, frames: Frames, k: int, fusion: tuple[ConvLM, FusionSettings] | None) -> Beam:
        size = max(ROWS // k, 1)
        parts = [
            self._search(frames.rows(slice(start, start + size)), k, fusion)
            for start in range(0, len(frames.values), size)
        ]
        return joined(parts, self.eos)

    def _search(self, frames: Frames, k: int, fusion: tuple[ConvLM, FusionSettings] | None) -> Beam:
        batch = len(frames.values)
        most = (frames.lengths * (self.frame_seconds * MOST_A_SECOND)).long() + AT_LEAST
        slots = torch.zeros(batch, k, dtype=torch.long, device=frames.values.device)
        steps = CachedSteps(self, frames, k, most.clamp(max=self.longest))
        longest = min(
            int(steps.most.max()) + 1, self.longest
        )  # the step itself stops after one more than `most`
        if fusion is None:
            return beam_search(steps, slots, self.eos, longest)
        lm, settings = fusion
        states = slots, lm.first_cache(batch, k)
        step = fused_steps(steps, lm, self.eos, settings)
        return beam_search(step, states, self.eos, longest, settings.beam_threshold)

    def log_q(self, frames: Frames, labels: Tensor, lengths: Tensor) -> Tensor:
        """The sum of the log-probabilities of the tokens; -inf for more tokens than a hypothesis may have."""
        return (
            self._losses(frames, labels, lengths, 0.0).neg().masked_fill(self._too_long(lengths), -torch.inf)
        )

    def losses(
        self, frames: Frames, labels: Tensor, lengths: Tensor, settings: TrainingSettings, window: bool
    ) -> Tensor:
        """-log q with label smoothing, but 0 for more tokens than a hypothesis may have."""
        found = self._losses(frames, labels, lengths, settings.label_smoothing)
        return found.masked_fill(self._too_long(lengths), 0.0)

    def _too_long(self, lengths: Tensor) -> Tensor:
        return lengths > self.longest + 1

    def _losses(self, frames: Frames, labels: Tensor, lengths: Tensor, smoothing: float) -> Tensor:
        labels = labels[:, :, : self.longest + 1]
        logits = self._logits(frames, labels)
        return sequence_loss(logits, labels, lengths.clamp(max=self.longest + 1), smoothing)

    def _logits(self, frames: Frames, labels: Tensor) -> Tensor:
        """Logits of every token after those before it: labels (B, k, U) -> (B, k, U, C)."""
        rows = labels.flatten(0, 1)
        prompt = self.prompt.expand(len(rows), -1)
        found = self.network(
            **memory_of(frames, labels.shape[1]),
            decoder_input_ids=torch.cat([prompt, rows[:, :-1]], dim=1),
            use_cache=False,
        )
        logits: Tensor = found.logits[:, self.prompt.shape[0] - 1 :]
        return logits.unflatten(0, labels.shape[:2])


class CachedSteps:
    """The decoder one token at a time, with cached keys and values, as a step of `beam_search`.

    The state (B, k) is the slot of each hypothesis in the cache. When the search has moved the states to their new
    places, it says from which slots the cache must be taken. An utterance has at most `most` (B,) + 1 tokens.
    """

    def __init__(self, head: DecoderHead, frames: Frames, k: int, most: Tensor) -> None:
        self.head, self.frames, self.k, self.most = head, frames, k, most
        self.cache: Any = None
        self.memory = memory_of(frames, k)
        self.position = 0

    def __call__(self, slots: Tensor, classes: Tensor | None) -> tuple[Tensor, Tensor]:
        """Slots and last chosen classes (B, k), or None at the start -> log q (B, k, C), slots."""
        logits = self._begin() if classes is None else self._advance(slots, classes)
        log_q = logits.log_softmax(dim=-1, dtype=torch.float32)
        never = self.head.never if self.position else self.head.never | self.head.never_first
        over = (self.position > self.most)[:, None, None]
        self.position += 1
        own = torch.arange(slots.numel(), device=slots.device).view_as(slots)
        return log_q.masked_fill(never | over, -torch.inf), own

    def _begin(self) -> Tensor:
        """Run the prompt once for each utterance."""
        batch = len(self.frames.values)
        found = self.head.network(
            **memory_of(self.frames, 1),
            decoder_input_ids=self.head.prompt.expand(batch, -1),
            use_cache=True,
        )
        self.cache = found.past_key_values
        self.cache.batch_repeat_interleave(self.k)
        logits: Tensor = found.logits[:, -1:]
        return logits.expand(-1, self.k, -1)

    def _advance(self, slots: Tensor, classes: Tensor) -> Tensor:
        """Append a token to each hypothesis; only the decoder's own keys and values differ inside a beam."""
        if self.k > 1:
            self.cache.self_attention_cache.reorder_cache(slots.flatten())
        found = self.head.network(
            **self.memory,
            decoder_input_ids=classes.reshape(-1, 1),
            past_key_values=self.cache,
            use_cache=True,
        )
        logits: Tensor = found.logits[:, -1]
        return logits.view(*classes.shape, -1)


def memory_of(frames: Frames, k: int) -> dict[str, Any]:
    """What the decoder attends to, for k hypotheses of each utterance, as arguments of the network."""
    from transformers.modeling_outputs import BaseModelOutput

    values = frames.values.repeat_interleave(k, dim=0) if k > 1 else frames.values
    mask = frames.mask if frames.mask is None or k == 1 else frames.mask.repeat_interleave(k, dim=0)
    encoded = BaseModelOutput(last_hidden_state=values)
    encoded.attention_mask = mask  # where Moonshine looks for it
    return {"encoder_outputs": encoded, "attention_mask": mask}


def fused_steps(steps: CachedSteps, lm: ConvLM, eos: int, settings: FusionSettings) -> Step:
    """Steps of shallow fusion: the state is that of the decoder and that of the language model."""

    def step(states: tuple[Tensor, Tensor], classes: Tensor | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        log_q, slots = steps(states[0], classes)
        log_p, cache = lm.step(states[1], classes)
        return fused_scores(log_q, log_p[..., : log_q.shape[-1]], eos, settings), (slots, cache)

    return step


def joined(parts: list[Beam], eos: int) -> Beam:
    """The beams of several batches as one."""
    width = max(each.classes.shape[2] for each in parts)
    classes = [functional.pad(each.classes, (0, width - each.classes.shape[2]), value=eos) for each in parts]
    return Beam(
        torch.cat(classes),
        torch.cat([each.lengths for each in parts]),
        torch.cat([each.scores for each in parts]),
        torch.cat([each.ended for each in parts]),
    )
