"""The decoder of a Hugging Face sequence-to-sequence model as an output head: log q by teacher forcing, beam search."""

from collections.abc import Callable
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
from priormatch.recognizers.hf_steps import RowSteps, SharedSteps, logits_of

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
    packs: bool  # whether the hypotheses of an utterance can be one row
    limited = True

    def search(self, frames: Frames, k: int) -> Beam:
        """Beam search with k hypotheses, for a few utterances at a time."""
        return self.in_parts(frames, k, self.search_at_once)

    def search_with(self, lm: ConvLM, frames: Frames, settings: FusionSettings) -> Beam:
        """Beam search by log q + λ log p + bonus; the limit on jumps of attention does not apply."""

        def search(part: Frames, k: int) -> Beam:
            most = self.most(part)
            own = self._steps(part, k, self._longest(most))
            step = fused_steps(AllowedSteps(self, own, most), lm, self.eos, settings)
            states = own.first, lm.first_cache(len(part.values), k)
            return beam_search(step, states, self.eos, self._longest(most), settings.beam_threshold)

        return self.in_parts(frames, settings.beam_size, search)

    def in_parts(self, frames: Frames, k: int, search: Callable[[Frames, int], Beam]) -> Beam:
        """Search few utterances at a time."""
        parts = [
            search(frames.rows(slice(start, start + max(ROWS // k, 1))), k)
            for start in range(0, len(frames.values), max(ROWS // k, 1))
        ]
        return joined(parts, self.eos)

    def search_at_once(self, frames: Frames, k: int) -> Beam:
        """Beam search for all utterances."""
        most = self.most(frames)
        own = self._steps(frames, k, self._longest(most))
        return beam_search(AllowedSteps(self, own, most), own.first, self.eos, self._longest(most))

    def most(self, frames: Frames) -> Tensor:
        """The most tokens that the hypotheses of each utterance may have: (B,)."""
        most = (frames.lengths * (self.frame_seconds * MOST_A_SECOND)).long() + AT_LEAST
        return most.clamp(max=self.longest)

    def _longest(self, most: Tensor) -> int:
        return min(int(most.max()) + 1, self.longest)  # the step itself stops after one more than `most`

    def _steps(self, frames: Frames, k: int, longest: int) -> SharedSteps | RowSteps:
        if self.packs:
            return SharedSteps(self.network, self.prompt, frames, k, longest)
        return RowSteps(self.network, self.prompt, frames, k)

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
        return logits_of(self.network, self.prompt, frames, labels, self.packs)


class AllowedSteps:
    """log q of the classes that the search may propose next, as a step of `beam_search`.

    `steps` compute the logits, and have the states. An utterance has at most `most` (B,) + 1 tokens.
    """

    def __init__(self, head: DecoderHead, steps: SharedSteps | RowSteps, most: Tensor) -> None:
        self.head, self.steps, self.most = head, steps, most

    def __call__(self, states: Tensor, classes: Tensor | None) -> tuple[Tensor, Tensor]:
        """States and last chosen classes (B, k), or None at the start -> log q (B, k, C), states."""
        position = self.steps.position
        logits, states = self.steps(states, classes)
        log_q = logits.log_softmax(dim=-1, dtype=torch.float32)
        never = self.head.never if position else self.head.never | self.head.never_first
        over = (position > self.most)[:, None, None]
        return log_q.masked_fill(never | over, -torch.inf), states


def fused_steps(steps: AllowedSteps, lm: ConvLM, eos: int, settings: FusionSettings) -> Step:
    """Steps of shallow fusion: the state is that of the decoder and that of the language model."""

    def step(states: tuple[Tensor, Tensor], classes: Tensor | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        log_q, own = steps(states[0], classes)
        log_p, cache = lm.step(states[1], classes)
        return fused_scores(log_q, log_p[..., : log_q.shape[-1]], eos, settings), (own, cache)

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
