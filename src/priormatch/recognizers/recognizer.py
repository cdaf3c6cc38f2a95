"""The recognizer: features, encoder and decoder in one module, with its folder on disk."""

import copy
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from priormatch.config import AugmentSettings, FusionSettings, ModelSettings, TrainingSettings
from priormatch.data import SAMPLE_RATE
from priormatch.data.augment import spec_augment
from priormatch.data.batches import Batch
from priormatch.data.features import LogMel
from priormatch.data.tokenizer import Tokenizer
from priormatch.decoding.beam import Beam, Hypotheses, beam_search
from priormatch.decoding.fusion import fused_search, wide_enough
from priormatch.device import has_kernels, mixed_precision
from priormatch.errors import UserError
from priormatch.kernels.recorded import RecordedSearch
from priormatch.models.conv_lm import ConvLM
from priormatch.models.ctc import ctc_losses
from priormatch.models.decoder import AttentionDecoder, DecoderSteps, Memory, soft_window
from priormatch.models.objective import sample_inputs, sequence_loss
from priormatch.models.tds import TDSEncoder
from priormatch.recognizers.folder import figure_of, read_model, require_finite, write_model
from priormatch.recognizers.hub import model_folder
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.protocols import Prior

if TYPE_CHECKING:
    from priormatch.recognizers.transcribing import Transcription

PROBE = torch.linspace(-0.1, 0.1, SAMPLE_RATE // 2)[None]  # half a second of an arbitrary signal
MOST_CLASSES = 16_384  # limit of the GPU search, which ranks classes in registers
MOST_HYPOTHESES = 32  # whose attention fits into a GPU's shared memory, up to a model size of 512


class SpeechRecognizer(nn.Module):
    """q(y|x): maps waveforms to word pieces.

    Matching uses three operations: `propose` hypotheses, compute `log_prob` of given ones, and `copy` the model.
    `longest_heard` is the longest training utterance in seconds; 0 if unknown.
    """

    def __init__(self, settings: ModelSettings, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.settings, self.tokenizer, self.longest_heard = settings, tokenizer, 0.0
        self.features = LogMel(settings.n_mels)
        self.encoder = TDSEncoder(
            settings.n_mels,
            settings.channels,
            settings.blocks,
            2 * settings.size,
            settings.kernel,
            settings.dropout,
        )
        self.decoder = AttentionDecoder(tokenizer.classes, settings.size)
        self.ctc = nn.Linear(2 * settings.size, tokenizer.classes) if settings.ctc else None

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.decoder.start.device

    def searches_on_gpu(self, beam_size: int) -> bool:
        """Whether the GPU search supports this model, its device and this beam size."""
        fits = self.tokenizer.classes <= MOST_CLASSES and beam_size <= MOST_HYPOTHESES
        return fits and has_kernels(self.device)

    def encode(
        self, waveforms: Tensor, samples: Tensor, augment: AugmentSettings | None = None
    ) -> tuple[Tensor, Tensor]:
        """Waveforms (B, N) and their lengths (B,) -> encoded frames (B, T, 2D) and their lengths (B,)."""
        features, lengths = self.features(waveforms, samples)
        if augment is not None:
            features = spec_augment(features, lengths, augment)
        plain = getattr(type(self.encoder), "forward", None) is TDSEncoder.forward  # not of a subclass
        if plain and has_kernels(features.device) and torch.is_autocast_enabled("cuda"):
            from priormatch.kernels.tds_triton import encode

            return encode(self.encoder, features, lengths)
        return self.encoder(features, lengths)

    def remember(self, batch: Batch) -> Memory:
        """Encode a batch for the decoder."""
        return self.memory(*self.encode(batch.waveforms, batch.samples))

    @torch.no_grad()
    def propose(self, batch: Batch, k: int) -> Beam:
        """The beam B(x): the k best hypotheses of each utterance; k = 1 is greedy search."""
        return self.search(self.remember(batch), k)

    def log_prob(self, batch: Batch, hypotheses: Hypotheses) -> Tensor:
        """log q(y|x) of each hypothesis, with gradients: -> (B, k)."""
        return self.log_q(self.remember(batch), hypotheses.labels, hypotheses.lengths)

    def log_q(self, memory: Memory, labels: Tensor, lengths: Tensor) -> Tensor:
        """log q(y|x) of label sequences of encoded utterances: labels (B, k, U), lengths (B, k) -> (B, k)."""
        return -sequence_loss(self.decoder(memory, labels), labels, lengths)

    def losses(
        self, batch: Batch, hypotheses: Hypotheses, settings: TrainingSettings, window: bool = False
    ) -> Tensor:
        """-log q(y|x) of each hypothesis, regularized, plus the CTC loss if enabled; the encoder runs once: -> (B, k).

        `window` enables the soft attention window.
        """
        labels, lengths = hypotheses.labels, hypotheses.lengths
        encoded, frames = self.encode(batch.waveforms, batch.samples, settings.augment)
        bias = None
        if window:
            bias = soft_window(frames, lengths, encoded.shape[1], labels.shape[2], settings.window_deviation)
        inputs = sample_inputs(labels, settings.input_sampling, self.tokenizer.eos)
        logits = self.decoder(self.memory(encoded, frames), inputs, bias)
        losses = sequence_loss(logits, labels, lengths, settings.label_smoothing)
        if self.ctc is not None and settings.ctc_weight > 0:
            ctc = ctc_losses(self.ctc(encoded), frames, labels, lengths, self.tokenizer.eos)
            losses = losses + settings.ctc_weight * ctc
        return losses

    def can_record(self, settings: TrainingSettings) -> bool:
        """Whether `losses` can run as a CUDA graph: the CTC loss needs lengths on the host."""
        return self.ctc is None or settings.ctc_weight == 0

    def copy(self) -> Self:
        """An independent copy; the tokenizer is shared."""
        return copy.deepcopy(self, {id(self.tokenizer): self.tokenizer})

    def recorded(self) -> "RecordedProposals":
        """The same proposals for a training loop: on a GPU with kernels they run as CUDA graphs."""
        return RecordedProposals(self)

    def fused(self, prior: Prior, settings: FusionSettings) -> "FusedProposals":
        """Proposals by shallow fusion with a prior that has the same pieces; scores combine both."""
        if not isinstance(prior, ConvPrior):
            raise UserError(
                f"shallow fusion needs a prior of priormatch, and this one is a {type(prior).__name__}: search"
                " without it (matching.hypotheses=asr)"
            )
        prior.require_tokenizer(self.tokenizer, "the recognizer")
        return FusedProposals(self, prior.for_search(), settings)

    @torch.no_grad()
    def search(self, memory: Memory, beam_size: int) -> Beam:
        """The k best hypotheses of encoded utterances."""
        eos, longest = self.tokenizer.eos, self.settings.longest_output
        if self.searches_on_gpu(beam_size):
            from priormatch.kernels.gpu_search import search_on_gpu

            return search_on_gpu(self.decoder, memory, beam_size, eos, longest)

        state = self.decoder.first_state(len(memory.keys), beam_size)
        return beam_search(DecoderSteps(self.decoder, memory), state, eos, longest)

    @torch.no_grad()
    def search_with(self, lm: ConvLM, memory: Memory, settings: FusionSettings) -> Beam:
        """The best hypotheses by shallow fusion of this model and a language model with the same pieces."""
        shape = len(memory.keys), settings.beam_size
        eos, longest = self.tokenizer.eos, self.settings.longest_output
        if self.searches_on_gpu(settings.beam_size):
            from priormatch.kernels.gpu_search import LanguageModel, search_on_gpu

            both = LanguageModel.of(lm, settings)
            return search_on_gpu(self.decoder, memory, settings.beam_size, eos, longest, both)

        return fused_search(
            DecoderSteps(self.decoder, memory).with_peaks,
            self.decoder.first_state(*shape),
            lm.step,
            lm.first_cache(*shape),
            eos,
            longest,
            settings,
        )

    def memory(self, encoded: Tensor, lengths: Tensor) -> Memory:
        """The keys and values that the decoder attends to."""
        return self.decoder.memory(encoded, lengths)

    def transcribe(
        self,
        audio: Any,
        rate: int = SAMPLE_RATE,
        *,
        prior: ConvPrior | None = None,
        fusion: FusionSettings | str | os.PathLike[str] | None = None,
        beam_size: int | None = None,
        longest: float | None = None,
    ) -> "Transcription":
        """Transcribe a file of any length, or samples (N,) or (N, channels) at the given rate.

        With a prior, decoding uses shallow fusion with the settings in `fusion`, which may also be a file written by
        `priormatch tune`. Without a prior it is greedy, unless `beam_size` is given; `beam_size` overrides that of
        `fusion`. Segments are at most `longest` seconds long, by default as long as the longest training utterance.

        model.transcribe("talk.mp3", prior=ConvPrior.load("runs/demo/prior/model")).text
        """
        # Imported here because these modules import this one.
        from priormatch.recognizers.decode import search_of
        from priormatch.recognizers.transcribing import cutting_for, transcribe

        search = search_of(self, prior, fusion, beam_size)
        return transcribe(self, audio, rate, search, cutting_for(self, longest))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write weights, settings and tokenizer to a folder."""
        known = {"longest_heard": round(self.longest_heard, 2)} if self.longest_heard else {}
        write_model(Path(folder), "recognizer", self.state_dict(), self.settings, self.tokenizer, **known)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], device: str | torch.device = "cpu") -> Self:
        """Load a recognizer from its folder or from the Hub (`owner/name[@revision]`), ready to use."""
        found = model_folder(folder)
        longest = figure_of(found, "longest_heard")
        model = read_model(found, "recognizer", ModelSettings, lambda *given: cls(*given[:2]))
        model.longest_heard = longest
        with torch.no_grad():
            require_finite(model.eval().encode(PROBE, torch.tensor([PROBE.shape[1]]))[0], found)
        return model.to(device)


@dataclass(frozen=True)
class FusedProposals:
    """Proposals of a recognizer by shallow fusion with a language model, with a beam of at least k."""

    model: SpeechRecognizer
    lm: ConvLM
    settings: FusionSettings

    @torch.no_grad()
    def propose(self, batch: Batch, k: int) -> Beam:
        """The k best hypotheses of each utterance by the fused scores."""
        settings = wide_enough(self.settings, k)
        return self.model.search_with(self.lm, self.model.remember(batch), settings).best(k)

    def recorded(self) -> "RecordedProposals":
        """The same proposals for a training loop: on a GPU with kernels they run as CUDA graphs."""
        return RecordedProposals(self.model, self)


class RecordedProposals:
    """Proposals of a recognizer, alone or fused, as CUDA graphs where its kernels support the beam."""

    def __init__(self, model: SpeechRecognizer, fused: FusedProposals | None = None) -> None:
        self.model, self.fused = model, fused
        self.search = RecordedSearch(
            self._remember,
            model.decoder,
            eos=model.tokenizer.eos,
            longest=model.settings.longest_output,
            lm=None if fused is None else fused.lm,
            fusion=None if fused is None else fused.settings,
        )

    def _remember(self, waveforms: Tensor, samples: Tensor) -> Memory:
        with mixed_precision(waveforms.device):
            return self.model.memory(*self.model.encode(waveforms, samples))

    def propose(self, batch: Batch, k: int) -> Beam:
        """The k best hypotheses of each utterance."""
        width = k if self.fused is None else wide_enough(self.fused.settings, k).beam_size
        if not self.model.searches_on_gpu(width):
            with mixed_precision(batch.waveforms.device):
                return (self.fused or self.model).propose(batch, k)
        beam = self.search(batch.waveforms, batch.samples, width)
        return beam if self.fused is None else beam.best(k)
