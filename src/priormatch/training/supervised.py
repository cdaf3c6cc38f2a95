"""Supervised training of a recogniser."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.nn import functional

from priormatch.config import AudioSettings, BatchSettings, TrainingSettings
from priormatch.data.augment import SpecAugment
from priormatch.data.batches import Batch, BatchStream, Corpus, UtteranceReader
from priormatch.device import mixed_precision
from priormatch.evaluation.decoding import mean_cer, validation_errors
from priormatch.matching.objective import sample_inputs, sequence_loss
from priormatch.models.decoder import soft_window
from priormatch.models.recognizer import Recognizer


def label_losses(
    model: Recognizer,
    batch: Batch,
    labels: Tensor,
    lengths: Tensor,
    settings: TrainingSettings,
    update: int | None = None,
) -> Tensor:
    """-log q(y|x) of k label sequences an utterance, with the CTC term where there is one; the encoder runs once.

    labels (B, k, U) that end with EOS, lengths (B, k) -> (B, k). The soft attention window is on while `update`
    lies below settings.window_updates; None keeps it off.
    """
    encoded, frames = model.encode(batch.waveforms, batch.samples, spec_augment(settings))
    window = None
    if update is not None and update < settings.window_updates:
        window = soft_window(frames, lengths, encoded.shape[1], labels.shape[2], settings.window_deviation)
    inputs = sample_inputs(labels, settings.input_sampling, model.tokenizer.eos)
    logits = model.decoder(model.memory(encoded, frames), inputs, window)
    losses = sequence_loss(logits, labels, lengths, settings.label_smoothing)
    if settings.ctc_weight > 0 and model.ctc is not None:
        ctc = ctc_losses(model.ctc(encoded), frames, labels, lengths, model.tokenizer.eos)
        losses = losses + settings.ctc_weight * ctc
    return losses


def transcript_losses(
    model: Recognizer, batch: Batch, settings: TrainingSettings, update: int | None = None
) -> Tensor:
    """-log q of each utterance's transcript: (B,)."""
    return label_losses(model, batch, batch.labels[:, None], batch.label_lengths[:, None], settings, update)[
        :, 0
    ]


def ctc_losses(logits: Tensor, frames: Tensor, labels: Tensor, lengths: Tensor, blank: int) -> Tensor:
    """CTC of k label sequences an utterance, the end-of-sentence class standing for the blank.

    logits (B, T, C), frames (B,), labels (B, k, U) that end with EOS, lengths (B, k) -> (B, k). A sequence with
    more pieces than there are frames costs nothing.
    """
    beam = labels.shape[1]
    log_q = logits.float().log_softmax(dim=-1).repeat_interleave(beam, dim=0).transpose(0, 1)
    losses = functional.ctc_loss(
        log_q,
        labels.flatten(0, 1),
        frames.repeat_interleave(beam),
        lengths.flatten() - 1,
        blank=blank,
        reduction="none",
        zero_infinity=True,
    )
    return losses.view_as(lengths)


def spec_augment(settings: TrainingSettings) -> SpecAugment | None:
    """The masks the settings ask for, or None."""
    augment = settings.augment
    if augment.frequency_masks + augment.time_masks == 0:
        return None
    return SpecAugment(
        augment.frequency_masks, augment.frequency_width, augment.time_masks, augment.time_width
    )


def labelled_stream(
    corpus: Corpus, model: Recognizer, settings: TrainingSettings, size: BatchSettings, audio: AudioSettings
) -> BatchStream:
    """Batches of transcribed speech, augmented as the settings say."""
    reader = UtteranceReader(corpus, model.tokenizer, settings.piece_sampling, settings.augment.speeds)
    return BatchStream(reader, size, settings.seed, workers=audio.workers)


class Supervised:
    """Minimises the cross-entropy of transcripts; scored by the mean CER of the validation sets."""

    def __init__(
        self,
        model: Recognizer,
        labelled: Corpus,
        validation: Mapping[str, Corpus],
        settings: TrainingSettings,
        size: BatchSettings,
    ) -> None:
        self.model, self.validation, self.settings = model, validation, settings
        self.stream = labelled_stream(labelled, model, settings, size, labelled.audio)

    def loss(self, update: int) -> tuple[Tensor, dict[str, float]]:
        """Mean loss over the utterances of the next batch."""
        batch = self.stream.take().to(self.model.device)
        with mixed_precision(self.model.device):
            losses = transcript_losses(self.model, batch, self.settings, update)
        pieces = float(batch.label_lengths.sum())
        return losses.mean(), {
            "loss_per_piece": float(losses.detach().sum()) / pieces,
            "audio_seconds": batch.seconds,
        }

    def validate(self, update: int) -> tuple[float, dict[str, Any]]:
        """Mean validation CER."""
        errors = validation_errors(self.model, self.validation)
        return mean_cer(errors), {"validation": errors}

    def save(self, folder: Path) -> None:
        """Write the model's folder."""
        self.model.save(folder)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Where the stream stands."""
        return {}, {"position": self.stream.position}

    def restore(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Go on from there."""
        self.stream.position = state["position"]
