"""Supervised training of a recognizer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from priormatch.config import BatchSettings, TrainingSettings
from priormatch.data.batches import BatchStream, Corpus, UtteranceReader
from priormatch.device import mixed_precision
from priormatch.kernels.graphs import Graphed
from priormatch.kernels.shapes import on_grid
from priormatch.models.decoder import soft_window
from priormatch.models.objective import sample_inputs, sequence_loss
from priormatch.recognizers.decode import mean_cer, validation_errors
from priormatch.recognizers.recognizer import Recognizer
from priormatch.stopwatch import Stopwatch


def label_losses(
    model: Recognizer,
    waveforms: Tensor,
    samples: Tensor,
    labels: Tensor,
    lengths: Tensor,
    settings: TrainingSettings,
    window: bool = False,
) -> Tensor:
    """-log q(y|x) of k label sequences per utterance, plus the CTC loss if enabled; the encoder runs once.

    waveforms (B, N), samples (B,), labels (B, k, U) that end with EOS, lengths (B, k) -> (B, k). `window` enables the
    soft attention window.
    """
    encoded, frames = model.encode(waveforms, samples, settings.augment)
    bias = None
    if window:
        bias = soft_window(frames, lengths, encoded.shape[1], labels.shape[2], settings.window_deviation)
    inputs = sample_inputs(labels, settings.input_sampling, model.tokenizer.eos)
    logits = model.decoder(model.memory(encoded, frames), inputs, bias)
    losses = sequence_loss(logits, labels, lengths, settings.label_smoothing)
    if has_ctc(model, settings):
        assert model.ctc is not None
        ctc = ctc_losses(model.ctc(encoded), frames, labels, lengths, model.tokenizer.eos)
        losses = losses + settings.ctc_weight * ctc
    return losses


def has_ctc(model: Recognizer, settings: TrainingSettings) -> bool:
    """Whether the loss has a CTC term; its kernels need lengths on the host and cannot be recorded in a CUDA graph."""
    return settings.ctc_weight > 0 and model.ctc is not None


def ctc_losses(logits: Tensor, frames: Tensor, labels: Tensor, lengths: Tensor, blank: int) -> Tensor:
    """CTC losses of k label sequences per utterance, with the end-of-sentence class as the blank.

    logits (B, T, C), frames (B,), labels (B, k, U) that end with EOS, lengths (B, k) -> (B, k). The loss is 0 for a
    sequence with more pieces than frames, and for a missing one (length 0).
    """
    beam = labels.shape[1]
    log_q = logits.float().log_softmax(dim=-1).repeat_interleave(beam, dim=0).transpose(0, 1)
    losses = functional.ctc_loss(
        log_q,
        labels.flatten(0, 1),
        frames.repeat_interleave(beam),
        (lengths.flatten() - 1).clamp(min=0),
        blank=blank,
        reduction="none",
        zero_infinity=True,
    )
    return losses.view_as(lengths).masked_fill(lengths == 0, 0.0)


def labeled_stream(
    corpus: Corpus, model: Recognizer, settings: TrainingSettings, size: BatchSettings
) -> BatchStream:
    """Batches of transcribed speech, augmented according to the settings."""
    reader = UtteranceReader(corpus, model.tokenizer, settings.piece_sampling, settings.augment.speeds)
    return BatchStream(reader, size, settings.seed, workers=corpus.audio.workers)


class Supervised:
    """Minimizes the cross-entropy of transcripts; the score is the mean CER of the validation sets."""

    def __init__(
        self,
        model: Recognizer,
        labeled: Corpus,
        validation: Mapping[str, Corpus],
        settings: TrainingSettings,
        size: BatchSettings,
    ) -> None:
        self.model, self.validation, self.settings = model, validation, settings
        model.longest_heard = max(model.longest_heard, labeled.longest)
        self.stream = labeled_stream(labeled, model, settings, size)
        self.ids: list[str] = []
        self.step = Graphed(self._step, model, recorded=not has_ctc(model, settings))

    def backward(self, update: int, watch: Stopwatch) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        """Add the gradient of the mean loss over the utterances of the next batch."""
        batch = self.stream.take()
        self.ids, seconds = batch.ids, batch.seconds
        batch = on_grid(batch.to(self.model.device), self.model.tokenizer.eos)
        watch.lap("data")
        share = torch.full((), 1 / len(batch), device=self.model.device)
        loss, per_piece = self.step(
            batch.waveforms,
            batch.samples,
            batch.labels,
            batch.label_lengths,
            share,
            window=update < self.settings.window_updates,
        )
        watch.lap("gradient")
        return loss, {"loss_per_piece": per_piece, "audio_seconds": seconds}

    def _step(
        self, waveforms: Tensor, samples: Tensor, labels: Tensor, lengths: Tensor, share: Tensor, window: bool
    ) -> tuple[Tensor, Tensor]:
        with mixed_precision(waveforms.device):
            losses = label_losses(
                self.model, waveforms, samples, labels[:, None], lengths[:, None], self.settings, window
            )
        loss = losses.sum() * share
        loss.backward()
        return loss.detach(), losses.detach().sum() / lengths.sum()

    def validate(self, update: int) -> tuple[float, dict[str, Any]]:
        """Mean validation CER."""
        errors = validation_errors(self.model, self.validation)
        return mean_cer(errors), {"validation": errors}

    def close(self) -> None:
        """Stop processes that read ahead."""
        self.stream.close()

    def save(self, folder: Path) -> None:
        """Save the model in a folder."""
        self.model.save(folder)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The position of the batch stream."""
        return {}, {"position": self.stream.position}

    def restore(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.stream.position = state["position"]
