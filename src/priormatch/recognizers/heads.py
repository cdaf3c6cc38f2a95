"""The outputs of a recognizer over its encoder's frames: attention decoder, CTC, or both.

Every head searches, computes log q(y|x) and the training losses. Shapes: B utterances, k hypotheses, U tokens of the
longest one, T frames. Lengths count the end of sentence, whose class is the blank of CTC.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from priormatch.config import FusionSettings, TrainingSettings
from priormatch.data.features import time_mask
from priormatch.data.tokenizer import Tokenizer
from priormatch.decoding.beam import Beam, Hypotheses, beam_search
from priormatch.decoding.fusion import fused_search
from priormatch.decoding.prefix_search import PrefixFusion, PrefixSettings, greedy_ctc, prefix_search
from priormatch.device import has_kernels
from priormatch.errors import UserError
from priormatch.models.conv_lm import ConvLM
from priormatch.models.ctc import CtcAlignment, ctc_alignment, ctc_log_likelihood, ctc_losses, rescored
from priormatch.models.decoder import AttentionDecoder, DecoderSteps, Memory, soft_window
from priormatch.models.objective import sample_inputs, sequence_loss
from priormatch.recognizers.protocols import Prior, ScoresCentered

MOST_CLASSES = 16_384  # limit of the GPU search, which ranks classes in registers
MOST_HYPOTHESES = 32  # of the GPU searches: what fits into shared memory (model sizes up to 512) or registers
PREFIXES = 16  # least width of a CTC prefix search
RESCORED = 4  # CTC hypotheses that a hybrid rescores for each one that it returns


@dataclass(frozen=True)
class Frames:
    """Encoded utterances: values (B, T, D), zero after the end, and the number of frames of each utterance (B,).

    `mask` (B, N) has the valid inputs of the encoder, which the decoders of Hugging Face models need; None if all are.
    """

    values: Tensor
    lengths: Tensor
    mask: Tensor | None = None

    def rows(self, part: slice) -> "Frames":
        """Some of the utterances."""
        mask = None if self.mask is None else self.mask[part]
        return Frames(self.values[part], self.lengths[part], mask)

    def to(self, device: str | torch.device) -> "Frames":
        """Move to another device."""
        mask = None if self.mask is None else self.mask.to(device)
        return Frames(self.values.to(device), self.lengths.to(device), mask)


class Head(Protocol):
    """An output over encoded frames."""

    @property
    def limited(self) -> bool:
        """Whether the limits of shallow fusion apply, which prevent failures of attention."""

    def search(self, frames: Frames, k: int) -> Beam:
        """The k best hypotheses of each utterance, with log q as scores; k = 1 is greedy search."""

    def search_with(self, lm: ConvLM, frames: Frames, settings: FusionSettings) -> Beam:
        """The best hypotheses by shallow fusion with a language model that has the same classes."""

    def log_q(self, frames: Frames, labels: Tensor, lengths: Tensor) -> Tensor:
        """log q(y|x) of labels (B, k, U) with lengths (B, k), with gradients: -> (B, k)."""

    def losses(
        self, frames: Frames, labels: Tensor, lengths: Tensor, settings: TrainingSettings, window: bool
    ) -> Tensor:
        """The regularized loss of each label sequence: -> (B, k); `window` enables the soft attention window."""


@dataclass(frozen=True)
class AttentionHead:
    """The attention decoder: log q(y|x) = Σ_u log q(y_u | y_<u, x); hypotheses have at most `longest` tokens."""

    decoder: AttentionDecoder
    eos: int
    longest: int
    limited = True

    def memory(self, frames: Frames) -> Memory:
        """The keys and values that the decoder attends to."""
        return self.decoder.memory(frames.values, frames.lengths)

    def searches_on_gpu(self, beam_size: int) -> bool:
        """Whether the GPU search supports this decoder, its device and this beam size."""
        fits = self.decoder.output.out_features <= MOST_CLASSES and beam_size <= MOST_HYPOTHESES
        return fits and has_kernels(self.decoder.start.device)

    def search(self, frames: Frames, k: int) -> Beam:
        """Beam search with k hypotheses."""
        memory = self.memory(frames)
        if self.searches_on_gpu(k):
            from priormatch.kernels.gpu_search import search_on_gpu

            return search_on_gpu(self.decoder, memory, k, self.eos, self.longest)
        state = self.decoder.first_state(len(memory.keys), k)
        return beam_search(DecoderSteps(self.decoder, memory), state, self.eos, self.longest)

    def search_with(self, lm: ConvLM, frames: Frames, settings: FusionSettings) -> Beam:
        """Beam search by log q + λ log p + bonus."""
        memory, shape = self.memory(frames), (len(frames.values), settings.beam_size)
        if self.searches_on_gpu(settings.beam_size):
            from priormatch.kernels.gpu_search import LanguageModel, search_on_gpu

            both = LanguageModel.of(lm, settings)
            return search_on_gpu(self.decoder, memory, settings.beam_size, self.eos, self.longest, both)
        return fused_search(
            DecoderSteps(self.decoder, memory).with_peaks,
            self.decoder.first_state(*shape),
            lm.step,
            lm.first_cache(*shape),
            self.eos,
            self.longest,
            settings=settings,
        )

    def log_q(self, frames: Frames, labels: Tensor, lengths: Tensor) -> Tensor:
        """The sum of the log-probabilities of the tokens."""
        return -sequence_loss(self.decoder(self.memory(frames), labels), labels, lengths)

    def losses(
        self, frames: Frames, labels: Tensor, lengths: Tensor, settings: TrainingSettings, window: bool
    ) -> Tensor:
        """-log q with label smoothing, sampled inputs and, with `window`, attention near the diagonal."""
        bias = None
        if window:
            shape = frames.values.shape[1], labels.shape[2]
            bias = soft_window(frames.lengths, lengths, *shape, settings.window_deviation)
        inputs = sample_inputs(labels, settings.input_sampling, self.eos)
        logits = self.decoder(self.memory(frames), inputs, bias)
        return sequence_loss(logits, labels, lengths, settings.label_smoothing)


@dataclass(frozen=True)
class CtcHead:
    """Connectionist temporal classification: log q(y|x) is summed over all alignments of y with the frames.

    `output` maps frames to logits; it is the identity where the frames are logits. The search never proposes a class
    that is True in `never` (C,); log q includes all classes.
    """

    output: nn.Module
    blank: int
    never: Tensor | None = None
    limited = False

    def log_probabilities(self, frames: Frames) -> Tensor:
        """log q of every class at every frame, in float32: -> (B, T, C)."""
        return self.output(frames.values).float().log_softmax(dim=-1)

    def proposable(self, log_q: Tensor) -> Tensor:
        """log q (B, T, C) with -inf for classes that are never proposed."""
        return log_q if self.never is None else log_q.masked_fill(self.never, -torch.inf)

    def search(self, frames: Frames, k: int) -> Beam:
        """The best path for k = 1; otherwise a prefix search, whose hypotheses get their exact log q."""
        if k > 1 and self.searches_on_gpu(k, frames.values.device):
            return self.search_on_gpu(frames, k).best(k)
        log_q = self.log_probabilities(frames)
        allowed, settings = self.proposable(log_q), PrefixSettings(k, max(PREFIXES, k))
        if k == 1:
            return greedy_ctc(allowed, frames.lengths, self.blank)
        beam = prefix_search(allowed, frames.lengths, self.blank, settings)
        return rescored(beam, log_q, frames.lengths, self.blank)

    def searches_on_gpu(self, beam_size: int, device: torch.device) -> bool:
        """Whether the GPU search supports this device and this beam size."""
        return beam_size <= MOST_HYPOTHESES and has_kernels(device)

    def search_on_gpu(self, frames: Frames, k: int) -> Beam:
        """The prefix search in kernels, which can be recorded: its hypotheses are padded to T + 1."""
        from priormatch.kernels import ctc

        log_q, settings = self.log_probabilities(frames), PrefixSettings(k, max(PREFIXES, k))
        beam = ctc.padded_prefix_search(self.proposable(log_q), frames.lengths, self.blank, settings)
        scores = ctc.ctc_log_likelihood(log_q, frames.lengths, beam.classes, beam.lengths, self.blank)
        return beam.rescored(scores)

    def search_with(self, lm: ConvLM, frames: Frames, settings: FusionSettings) -> Beam:
        """Prefix search by log q + λ log p + bonus; the limits against failures of attention do not apply."""
        first = lm.first_cache(len(frames.values), 1)
        values = settings.lm_weight, settings.token_bonus
        fusion = PrefixFusion(lm.step, first, *values, centered=settings.centered)
        size = PrefixSettings(settings.beam_size, settings.beam_size)
        log_q = self.proposable(self.log_probabilities(frames))
        if has_kernels(log_q.device):
            from priormatch.kernels.ctc import fused_prefix_search

            return fused_prefix_search(log_q, frames.lengths, self.blank, size, fusion)
        return prefix_search(log_q, frames.lengths, self.blank, size, fusion)

    def log_q(self, frames: Frames, labels: Tensor, lengths: Tensor) -> Tensor:
        """The full likelihood; -inf for a sequence with more tokens than frames."""
        if has_kernels(labels.device):
            from priormatch.kernels.ctc import ctc_log_likelihood_of_logits

            logits = self.output(frames.values)
            return ctc_log_likelihood_of_logits(logits, frames.lengths, labels, lengths, self.blank)
        log_q = self.log_probabilities(frames)
        return ctc_log_likelihood(log_q, frames.lengths, labels, lengths, self.blank)

    def losses(
        self, frames: Frames, labels: Tensor, lengths: Tensor, settings: TrainingSettings, window: bool
    ) -> Tensor:
        """-log q, but 0 for a sequence with more tokens than frames."""
        if has_kernels(labels.device):
            log_q = self.log_q(frames, labels, lengths)
            return -log_q.masked_fill(log_q == -torch.inf, 0.0)
        return ctc_losses(self.output(frames.values), frames.lengths, labels, lengths, self.blank)

    def divergence(self, frames: Frames) -> Tensor:
        """How far the outputs for two views of the same utterances are apart: frames of (2 · B) -> (B,).

        Σ_t [KL(b_t || a_t) + KL(a_t || b_t)] / 2 over the frames of an utterance, where each view is taught by the
        other: no gradient passes through the first argument (CR-CTC, Yao et al., 2024).
        """
        log_q = self.log_probabilities(frames)
        a, b = log_q.chunk(2)
        kl = functional.kl_div(a, b.detach(), reduction="none", log_target=True)
        kl = kl + functional.kl_div(b, a.detach(), reduction="none", log_target=True)
        valid = time_mask(frames.lengths[: len(a)], a.shape[1])
        return kl.sum(dim=2).masked_fill(~valid, 0.0).sum(dim=1) / 2

    def align(self, frames: Frames, labels: Tensor, lengths: Tensor) -> CtcAlignment:
        """The frames of each token in the most probable alignment: labels (B, U), lengths (B,)."""
        return ctc_alignment(self.log_probabilities(frames), frames.lengths, labels, lengths, self.blank)


@dataclass(frozen=True)
class HybridHead:
    """Both outputs over one encoder: log q = (1 - w) log q_attention + w log q_ctc.

    With w = 0 it decodes as the attention head does. Otherwise CTC lists the hypotheses, and both score them.
    """

    attention: AttentionHead
    ctc: CtcHead
    weight: float

    @property
    def limited(self) -> bool:
        """Whether attention searches."""
        return self.weight == 0

    def search(self, frames: Frames, k: int) -> Beam:
        """Attention's beam search if w = 0; otherwise the best of CTC's prefix search by both scores."""
        if self.weight == 0:
            return self.attention.search(frames, k)
        beam = self.ctc.search(frames, max(PREFIXES, RESCORED * k))
        return self._reranked(frames, beam, beam.scores).best(k)

    def search_with(self, lm: ConvLM, frames: Frames, settings: FusionSettings) -> Beam:
        """Shallow fusion with attention if w = 0; otherwise with CTC, whose share of the scores is then replaced."""
        if self.weight == 0:
            return self.attention.search_with(lm, frames, settings)
        beam = self.ctc.search_with(lm, frames, settings)
        return self._reranked(frames, beam, self.ctc.log_q(frames, beam.classes, beam.lengths))

    def _reranked(self, frames: Frames, beam: Beam, log_ctc: Tensor) -> Beam:
        """Replace log_ctc (B, k) in the scores of a beam with log q of both outputs, and sort."""
        log_attention = self.attention.log_q(frames, beam.classes, beam.lengths)
        change = (1 - self.weight) * (log_attention - log_ctc)
        return beam.rescored(beam.scores + change.masked_fill(beam.lengths == 0, 0.0))

    def log_q(self, frames: Frames, labels: Tensor, lengths: Tensor) -> Tensor:
        """The weighted sum of both outputs' log q."""
        log_attention = self.attention.log_q(frames, labels, lengths)
        if self.weight == 0:
            return log_attention
        return (1 - self.weight) * log_attention + self.weight * self.ctc.log_q(frames, labels, lengths)

    def losses(
        self, frames: Frames, labels: Tensor, lengths: Tensor, settings: TrainingSettings, window: bool
    ) -> Tensor:
        """Attention's losses plus CTC's, weighted by training.ctc_weight."""
        losses = self.attention.losses(frames, labels, lengths, settings, window)
        if settings.ctc_weight > 0:
            ctc = self.ctc.losses(frames, labels, lengths, settings, window)
            losses = losses + settings.ctc_weight * ctc
        return losses


@torch.no_grad()
def rescored_by(prior: Prior, beam: Beam, tokenizer: Tokenizer, settings: FusionSettings) -> Beam:
    """Add λ log p and the bonus per token to the scores of a beam, for a prior that only scores whole hypotheses."""
    hypotheses = Hypotheses(beam.classes, beam.lengths, tokenizer)
    log_p = score_for_fusion(prior, hypotheses, settings.centered).to(beam.scores.device)
    added = settings.lm_weight * log_p + settings.token_bonus * (beam.lengths - 1)
    return beam.rescored(beam.scores + added.masked_fill(beam.lengths == 0, 0.0))


def score_for_fusion(prior: Prior, hypotheses: Hypotheses, centered: bool) -> Tensor:
    """log p_y of hypotheses, or their centered scores: -> (B, k)."""
    if not centered:
        return prior.score(hypotheses)
    if not isinstance(prior, ScoresCentered):
        raise UserError(
            f"fusion.centered needs a prior with a method score_centered, and a {type(prior).__name__} has none:"
            " add it, or set fusion.centered=false and a fusion.token_bonus"
        )
    return prior.score_centered(hypotheses)
