"""The recognizer: features, encoder and output head in one module, with its folder on disk."""

import copy
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import torch
from torch import Tensor, nn

from priormatch.config import AugmentSettings, FusionSettings, ModelSettings, TrainingSettings
from priormatch.data import SAMPLE_RATE
from priormatch.data.augment import spec_augment
from priormatch.data.batches import Batch
from priormatch.data.features import LogMel
from priormatch.data.tokenizer import Tokenizer
from priormatch.decoding.beam import Beam, Hypotheses
from priormatch.decoding.fusion import wide_enough
from priormatch.device import has_kernels, mixed_precision
from priormatch.errors import UserError
from priormatch.kernels.graphs import Graphed
from priormatch.kernels.recorded import RecordedSearch
from priormatch.models.conformer import ConformerEncoder
from priormatch.models.conv_lm import ConvLM
from priormatch.models.decoder import AttentionDecoder, Memory
from priormatch.models.tds import TDSEncoder
from priormatch.recognizers.folder import figure_of, read_model, require_finite, write_model
from priormatch.recognizers.frame_rate import frame_seconds_of
from priormatch.recognizers.heads import AttentionHead, CtcHead, Frames, Head, HybridHead, rescored_by
from priormatch.recognizers.hub import model_folder
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.protocols import Prior, Proposes

if TYPE_CHECKING:
    from priormatch.recognizers.transcribing import Transcription

TRANSFORMERS = "config.json"  # in the folder of a model of transformers
PROBE = torch.linspace(-0.1, 0.1, SAMPLE_RATE // 2)[None]  # half a second of an arbitrary signal


def frame_size(settings: ModelSettings) -> int:
    """The number of values in a frame of the encoder; attention splits them into keys and values."""
    only_ctc = settings.encoder == "conformer" and settings.kind == "ctc"
    return settings.conformer.width if only_ctc else 2 * settings.size


def make_encoder(settings: ModelSettings) -> nn.Module:
    """The encoder of a model."""
    output, own = frame_size(settings), settings.conformer
    if settings.encoder == "tds":
        return TDSEncoder(
            settings.n_mels, settings.channels, settings.blocks, output, settings.kernel, settings.dropout
        )
    return ConformerEncoder(
        settings.n_mels,
        own.width,
        own.layers,
        own.heads,
        own.kernel,
        own.subsampling,
        dropout=settings.dropout,
        output=output,
    )


class SpeechRecognizer(nn.Module):
    """q(y|x): maps waveforms to tokens, word pieces or characters.

    Matching uses three operations: `propose` hypotheses, compute `log_prob` of given ones, and `copy` the model.
    `longest_heard` is the longest training utterance in seconds; 0 if unknown. Audio of more than `longest_audio`
    seconds cannot be encoded as a whole; `padded_to` is to how many seconds all audio is padded.
    """

    longest_audio, padded_to = math.inf, 0.0

    def __init__(self, settings: ModelSettings, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.settings, self.tokenizer, self.longest_heard = settings, tokenizer, 0.0
        self.features = LogMel(settings.n_mels)
        self.encoder = make_encoder(settings)
        self.decoder, self.ctc = None, None
        if settings.kind != "ctc":
            self.decoder = AttentionDecoder(tokenizer.classes, settings.size)
        if settings.kind != "attention":
            self.ctc = nn.Linear(frame_size(settings), tokenizer.classes)

    @property
    def head(self) -> Head:
        """The output over the encoder's frames."""
        ctc = self.ctc_head
        if ctc is None:
            return self.attention_head
        return ctc if self.decoder is None else HybridHead(self.attention_head, ctc, self.settings.ctc_weight)

    @property
    def attention_head(self) -> AttentionHead:
        """The attention decoder, of a model that has one."""
        decoder = cast(AttentionDecoder, self.decoder)
        return AttentionHead(decoder, self.tokenizer.eos, self.settings.longest_output)

    @property
    def ctc_head(self) -> CtcHead | None:
        """The CTC output, if the model has one."""
        return None if self.ctc is None else CtcHead(self.ctc, self.tokenizer.eos)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device

    @property
    def frame_seconds(self) -> float:
        """The time between two frames of the encoder."""
        return frame_seconds_of(self.settings)

    def encode(
        self,
        waveforms: Tensor,
        samples: Tensor,
        noise: Tensor | None = None,
        augment: AugmentSettings | None = None,
        views: int = 1,
    ) -> tuple[Tensor, Tensor]:
        """Waveforms (B, N) and their lengths (B,) -> encoded frames (B, T, D) and their lengths (B,).

        With several views, the batch is repeated, (views · B, ...), and every repetition is augmented by itself. The
        augmentation takes its random numbers from noise (B, views · M).
        """
        features, lengths = self.features(waveforms, samples)
        if views > 1:
            features, lengths = features.repeat(views, 1, 1), lengths.repeat(views)
        if noise is not None and augment is not None:
            features = spec_augment(features, lengths, torch.cat(noise.chunk(views, dim=1)), augment)
        encoder = self.encoder
        if has_kernels(features.device) and torch.is_autocast_enabled("cuda"):
            if isinstance(encoder, TDSEncoder) and type(encoder).forward is TDSEncoder.forward:
                from priormatch.kernels import tds_triton

                return tds_triton.encode(encoder, features, lengths)
            if isinstance(encoder, ConformerEncoder):
                from priormatch.kernels import conformer_triton

                if conformer_triton.encodes(encoder, features):
                    return conformer_triton.encode(encoder, features, lengths)
        return encoder(features, lengths)

    def frames(self, batch: Batch, augment: AugmentSettings | None = None, views: int = 1) -> Frames:
        """Encode a batch, or several augmented views of it."""
        return Frames(*self.encode(batch.waveforms, batch.samples, batch.noise, augment, views))

    @torch.no_grad()
    def propose(self, batch: Batch, k: int) -> Beam:
        """The beam B(x): the k best hypotheses of each utterance; k = 1 is greedy search."""
        return self.search(self.frames(batch), k)

    def log_prob(self, batch: Batch, hypotheses: Hypotheses) -> Tensor:
        """log q(y|x) of each hypothesis, with gradients: -> (B, k)."""
        return self.head.log_q(self.frames(batch), hypotheses.labels, hypotheses.lengths)

    def losses(
        self, batch: Batch, hypotheses: Hypotheses, settings: TrainingSettings, window: bool = False
    ) -> Tensor:
        """The loss of each hypothesis, -log q(y|x) regularized: -> (B, k).

        The encoder runs once; with `consistency` c twice, on differently augmented views a and b of the batch, and the
        loss is (loss_a + loss_b) / 2 + c · divergence. `window` enables the soft attention window.
        """
        labels, lengths = hypotheses.labels, hypotheses.lengths
        if settings.consistency == 0 or self.ctc_head is None:
            return self.head.losses(self.frames(batch, settings.augment), labels, lengths, settings, window)
        frames = self.frames(batch, settings.augment, views=2)
        both = self.head.losses(frames, labels.repeat(2, 1, 1), lengths.repeat(2, 1), settings, window)
        divergence = self.ctc_head.divergence(frames)
        return both.unflatten(0, (2, -1)).mean(dim=0) + settings.consistency * divergence[:, None]

    def can_record(self, settings: TrainingSettings) -> bool:
        """Whether `losses` can run as a CUDA graph."""
        return True

    def copy(self) -> Self:
        """An independent copy; the tokenizer is shared."""
        return copy.deepcopy(self, {id(self.tokenizer): self.tokenizer})

    def recorded(self) -> "RecordedProposals":
        """The same proposals for a training loop: on a GPU with kernels they run as CUDA graphs."""
        return RecordedProposals(self)

    def fused(self, prior: Prior, settings: FusionSettings) -> Proposes:
        """Proposals by search with a prior; scores combine both.

        A built-in prior with the same tokenizer takes part in the search; any other rescores its hypotheses.
        """
        if isinstance(prior, ConvPrior) and prior.tokenizer == self.tokenizer:
            return FusedProposals(self, prior.for_search(), settings)
        return RescoredProposals(self, prior, settings)

    @torch.no_grad()
    def search(self, frames: Frames, beam_size: int) -> Beam:
        """The k best hypotheses of encoded utterances."""
        return self.head.search(frames, beam_size)

    @torch.no_grad()
    def search_with(self, lm: ConvLM, frames: Frames, settings: FusionSettings) -> Beam:
        """The best hypotheses by shallow fusion of this model and a language model with the same classes."""
        return self.head.search_with(lm, frames, settings)

    def transcribe(
        self,
        audio: Any,
        rate: int | None = None,
        *,
        prior: Prior | None = None,
        fusion: FusionSettings | str | os.PathLike[str] | None = None,
        beam_size: int | None = None,
        longest: float | None = None,
    ) -> "Transcription":
        """Transcribe a file of any length, samples (N,) or (N, channels) at the given rate, or a pair (samples, rate).

        The rate is 16 kHz unless given; other rates are resampled.
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
        if (found / TRANSFORMERS).is_file():
            raise UserError(
                f"{folder} holds a model of transformers: load it with priormatch.recognizers.load.load_recognizer"
            )
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
        return self.model.search_with(self.lm, self.model.frames(batch), settings).best(k)

    def recorded(self) -> "RecordedProposals":
        """The same proposals for a training loop: on a GPU with kernels they run as CUDA graphs."""
        return RecordedProposals(self.model, self)


@dataclass(frozen=True)
class RescoredProposals:
    """Proposals of a recognizer, rescored by a prior that only scores whole hypotheses, from a beam of at least k."""

    model: SpeechRecognizer
    prior: Prior
    settings: FusionSettings

    def propose(self, batch: Batch, k: int) -> Beam:
        """The k best hypotheses of each utterance by the scores of both."""
        beam = self.model.propose(batch, wide_enough(self.settings, k).beam_size)
        return rescored_by(self.prior, beam, self.model.tokenizer, self.settings).best(k)


class RecordedProposals:
    """Proposals of a recognizer, alone or fused, as CUDA graphs where its kernels support the head and the beam."""

    def __init__(self, model: SpeechRecognizer, fused: FusedProposals | None = None) -> None:
        self.model, self.fused = model, fused
        head = model.head
        if isinstance(head, HybridHead) and head.weight == 0:
            head = head.attention
        self.ctc = head if isinstance(head, CtcHead) and fused is None else None
        self.ctc_search = Graphed(self._search_ctc)
        self.attention = head if isinstance(head, AttentionHead) else None
        if self.attention is not None:
            self.search = RecordedSearch(
                self._remember,
                self.attention.decoder,
                eos=self.attention.eos,
                longest=self.attention.longest,
                lm=None if fused is None else fused.lm,
                fusion=None if fused is None else fused.settings,
            )

    def _remember(self, waveforms: Tensor, samples: Tensor) -> Memory:
        with mixed_precision(waveforms.device):
            return self.model.attention_head.memory(Frames(*self.model.encode(waveforms, samples)))

    @torch.no_grad()
    def _search_ctc(self, waveforms: Tensor, samples: Tensor, k: int) -> Beam:
        with mixed_precision(waveforms.device):
            frames = Frames(*self.model.encode(waveforms, samples))
            return cast(CtcHead, self.ctc).search_on_gpu(frames, k)

    def propose(self, batch: Batch, k: int) -> Beam:
        """The k best hypotheses of each utterance."""
        if self.ctc is not None and self.ctc.searches_on_gpu(k, batch.waveforms.device):
            return self.ctc_search(batch.waveforms, batch.samples, k=k).best(k).clone()
        width = k if self.fused is None else wide_enough(self.fused.settings, k).beam_size
        if self.attention is None or not self.attention.searches_on_gpu(width):
            with mixed_precision(batch.waveforms.device):
                return (self.fused or self.model).propose(batch, k)
        beam = self.search(batch.waveforms, batch.samples, width)
        return beam if self.fused is None else beam.best(k)
