"""Supervised training of a recognizer."""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from priormatch.config import BatchSettings, TrainingSettings
from priormatch.data.augment import numbers_of
from priormatch.data.batches import Batch, BatchStream, UtteranceReader
from priormatch.data.corpus import Corpus
from priormatch.data.recordings import audio_of
from priormatch.decoding.beam import Hypotheses
from priormatch.device import mixed_precision
from priormatch.kernels.graphs import Graphed
from priormatch.kernels.shapes import on_grid
from priormatch.progress import say
from priormatch.recognizers.decode import error_rates, fitting, mean_cer, validation_transcripts
from priormatch.recognizers.protocols import HasLosses, Recognizer
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.scoring.transcripts import Transcript
from priormatch.stopwatch import Stopwatch


def losses_of(
    model: Recognizer,
    batch: Batch,
    hypotheses: Hypotheses,
    settings: TrainingSettings,
    window: bool = False,
) -> Tensor:
    """The loss of each hypothesis, -log q(y|x) or what the recognizer has in its place: -> (B, k)."""
    if isinstance(model, HasLosses):
        return model.losses(batch, hypotheses, settings, window)
    return -model.log_prob(batch, hypotheses)


def can_record(model: Recognizer, settings: TrainingSettings) -> bool:
    """Whether a step with these losses can run as a CUDA graph."""
    return isinstance(model, HasLosses) and model.can_record(settings)


def noise_of(settings: TrainingSettings) -> int:
    """How many random numbers an utterance needs: for the masks of one view, or of two."""
    return numbers_of(settings.augment) * (2 if settings.consistency else 1)


def labeled_stream(
    corpus: Corpus, model: Recognizer, settings: TrainingSettings, size: BatchSettings
) -> BatchStream:
    """Batches of transcribed speech, augmented according to the settings."""
    reader = UtteranceReader(
        corpus,
        model.tokenizer,
        settings.piece_sampling,
        settings.augment.speeds,
        noise_of(settings),
    )
    return stream_of(reader, model, size, settings.seed)


def stream_of(reader: UtteranceReader, model: Recognizer, size: BatchSettings, seed: int) -> BatchStream:
    """Batches for a recognizer; for one that pads all audio, an utterance counts as what it is padded to."""
    return BatchStream(
        reader,
        size,
        seed,
        workers=reader.corpus.audio.workers,
        device=model.device,
        least=float(getattr(model, "padded_to", 0.0)),
    )


def say_example(corpus: Corpus, transcripts: Sequence[Transcript]) -> None:
    """Show the utterance of median duration: its audio, what is said, and what is recognized."""
    cut = corpus.cuts[int(np.argsort(corpus.durations, kind="stable")[len(corpus) // 2])]
    for each in transcripts:
        if each.id == cut.id:
            say(f"{audio_of(cut)}\n  reference:  {each.reference}\n  hypothesis: {each.hypothesis}")


class Supervised:
    """Minimizes the cross-entropy of transcripts; the score is the mean CER of the validation sets."""

    def __init__(
        self,
        model: SpeechRecognizer,
        labeled: Corpus,
        validation: Mapping[str, Corpus],
        settings: TrainingSettings,
        size: BatchSettings,
    ) -> None:
        self.model, self.validation, self.settings = model, validation, settings
        labeled = fitting(labeled, model, settings.augment.speeds)
        model.longest_heard = max(model.longest_heard, labeled.longest)
        self.stream = labeled_stream(labeled, model, settings, size)
        self.ids: list[str] = []
        self.step = Graphed(self._step, model.parameters(), recorded=can_record(model, settings))

    def backward(self, update: int, watch: Stopwatch) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        """Add the gradient of the sum of the losses over the number of utterances in the next batch."""
        parts, device = self.stream.take(), self.model.device
        self.ids = [name for batch in parts for name in batch.ids]
        loss = torch.zeros((), device=device)
        figures: dict[str, Any] = {"audio_seconds": sum(batch.seconds for batch in parts)}
        for batch in parts:
            batch = on_grid(batch.to(device), self.model.tokenizer.eos)
            watch.lap("data")
            part, per_piece = self.step(
                batch.waveforms,
                batch.samples,
                batch.noise,
                batch.labels,
                batch.label_lengths,
                torch.full((), 1 / batch.whole, device=device),
                window=update < self.settings.window_updates,
            )
            loss, figures["loss_per_piece"] = loss + part, per_piece
            watch.lap("gradient")
        return loss, figures

    def _step(
        self,
        waveforms: Tensor,
        samples: Tensor,
        noise: Tensor,
        labels: Tensor,
        lengths: Tensor,
        share: Tensor,
        *,
        window: bool,
    ) -> tuple[Tensor, Tensor]:
        with mixed_precision(waveforms.device):
            batch = Batch.of_audio(waveforms, samples, noise)
            hypotheses = Hypotheses(labels[:, None], lengths[:, None], self.model.tokenizer)
            losses = losses_of(self.model, batch, hypotheses, self.settings, window)
        loss = losses.sum() * share
        loss.backward()
        return loss.detach(), losses.detach().sum() / lengths.sum()

    def validate(self, update: int) -> tuple[float, dict[str, Any]]:
        """Mean validation CER; shows the transcript of one utterance."""
        found = validation_transcripts(self.model, self.validation)
        errors = {name: error_rates(transcripts) for name, transcripts in found.items()}
        for name, transcripts in islice(found.items(), 1):
            say_example(self.validation[name], transcripts)
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
