"""Recognizers of Hugging Face: any CTC or sequence-to-sequence model of transformers, with its own features."""

import copy
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from priormatch.config import (
    AugmentSettings,
    ModelSettings,
    PretrainedSettings,
    TrainingSettings,
)
from priormatch.data import SAMPLE_RATE
from priormatch.data.batches import Batch
from priormatch.data.features import time_mask
from priormatch.decoding.beam import Beam
from priormatch.device import has_kernels, mixed_precision
from priormatch.errors import UserError
from priormatch.recognizers.folder import require_finite
from priormatch.recognizers.heads import CtcHead, Frames
from priormatch.recognizers.hf_files import Parts, read_parts, write_parts
from priormatch.recognizers.hf_head import DecoderHead
from priormatch.recognizers.hf_inputs import Inputs, inputs_of, longest_of, mask_group_norms
from priormatch.recognizers.hf_recorded import RecordedSearches
from priormatch.recognizers.hf_steps import can_pack
from priormatch.recognizers.hf_tokenizer import HuggingFaceTokenizer
from priormatch.recognizers.hf_tuning import body_of, merged_weights, prepare
from priormatch.recognizers.hub import reason
from priormatch.recognizers.protocols import Proposes
from priormatch.recognizers.recognizer import PROBE, SpeechRecognizer

LENGTHS = ("_get_feat_extract_output_lengths", "_get_subsampling_output_length")
"""What networks call their function from the lengths of inputs to those of frames."""
ROWS = 32  # utterances that Whisper's encoder takes at a time in a search, where each costs as much as 30 s
WAVE_STRIDE = 320  # samples between two frames of encoders that mask waveforms
MOONSHINE_STRIDE = 384  # samples between two frames
PROBES = 4, 8  # seconds; the difference of their frames gives the frame rate
MOST_TOKENS = 448  # of a hypothesis, unless the network has a limit of its own


class HuggingFaceRecognizer(SpeechRecognizer):
    """A network of transformers as a recognizer.

    The frames of a CTC model are its logits. Those of a sequence-to-sequence model are its encoder's, and its decoder
    first reads `prompt`, which CTC models do not have. Audio of more than `longest_audio` seconds is cut off.
    SpecAugment is that of the network's own configuration. `state_dict` has only the weights that training changes, and
    copies share the others.
    """

    tokenizer: HuggingFaceTokenizer
    prompt: Tensor
    never: Tensor
    never_first: Tensor

    def __init__(self, parts: Parts, settings: PretrainedSettings) -> None:
        nn.Module.__init__(self)
        self.network, self.tokenizer, self.origin = parts.network, parts.tokenizer, parts.origin
        self.inputs, self.longest_audio = inputs_of(parts.extractor), longest_of(parts.extractor)
        self.padded_to = self.longest_audio if self.longest_audio < math.inf else 0.0
        self.norms = mask_group_norms(self.network)
        self.decoder, self.ctc, self.longest_heard = None, None, parts.longest_heard
        self.packs = False
        longest = longest_output(self.network) - len(parts.prompt)
        self.settings = ModelSettings(kind="attention" if parts.prompt else "ctc", longest_output=longest)
        never, first = never_proposed(self.network, parts.tokenizer)
        self.register_buffer("prompt", torch.tensor(parts.prompt, dtype=torch.long), persistent=False)
        self.register_buffer("never", never, persistent=False)
        self.register_buffer("never_first", first, persistent=False)
        self.seconds_per_frame = self._measured()
        prepare(self.network, settings)
        self.encoder_is_frozen = settings.train == "decoder"
        self.frozen = {name for name, each in self.named_parameters() if not each.requires_grad}

    def _measured(self) -> float:
        """The time between two frames, from the frames of a probe; also how its decoder can be run."""
        if self.settings.kind == "ctc":
            inputs = self.inputs(torch.zeros(2, SAMPLE_RATE * PROBES[1]), SAMPLE_RATE * torch.tensor(PROBES))
            short, long = self._frame_counts(inputs.lengths).tolist()
            return (PROBES[1] - PROBES[0]) / max(long - short, 1)
        inputs = self.inputs(PROBE, torch.tensor([PROBE.shape[1]]))
        with torch.no_grad():
            values, mask = self._encoded(inputs, inputs.mask)
        frames = Frames(values, torch.tensor([values.shape[1]]), mask)
        self.packs = can_pack(self.network, self.prompt, frames, self.tokenizer.classes)
        return (self.padded_to or PROBE.shape[1] / SAMPLE_RATE) / values.shape[1]

    def _frame_counts(self, lengths: Tensor | None) -> Tensor:
        """The number of frames that a CTC model makes of inputs: (B,) -> (B,)."""
        for owner in (self.network, body_of(self.network)):
            for name in LENGTHS:
                if lengths is not None and hasattr(owner, name):
                    return cast(Tensor, getattr(owner, name)(lengths)).long().clamp(min=1)
        raise UserError(
            f"{self.origin.source} ({type(self.network).__name__}) does not report how many frames it computes for an"
            " utterance: use another model"
        )

    @property
    def attention_head(self) -> DecoderHead:  # type: ignore[override]
        """The decoder, of a sequence-to-sequence model."""
        return DecoderHead(
            self.network,
            self.prompt,
            self.tokenizer.eos,
            never=self.never,
            never_first=self.never_first,
            longest=self.settings.longest_output,
            frame_seconds=self.frame_seconds,
            packs=self.packs,
        )

    @property
    def ctc_head(self) -> CtcHead | None:
        """CTC over logits, of a CTC model."""
        is_ctc = self.settings.kind == "ctc"
        return CtcHead(nn.Identity(), self.tokenizer.eos, self.never) if is_ctc else None

    @property
    def frame_seconds(self) -> float:
        """The time between two frames of the network."""
        return self.seconds_per_frame

    def encode(
        self,
        waveforms: Tensor,
        samples: Tensor,
        noise: Tensor | None = None,
        augment: AugmentSettings | None = None,
        views: int = 1,
    ) -> tuple[Tensor, Tensor]:
        """Waveforms (B, N) and their lengths (B,) -> frames (B, T, D), or logits of CTC, and their lengths (B,)."""
        found = self.frames(Batch.of_audio(waveforms, samples), augment, views)
        return found.values, found.lengths

    def frames(self, batch: Batch, augment: AugmentSettings | None = None, views: int = 1) -> Frames:
        """Encode a batch, or several views of it with masks of their own; `augment` has no effect."""
        waveforms, samples = batch.waveforms.repeat(views, 1), batch.samples.repeat(views)
        if torch.is_grad_enabled() or self.longest_audio == math.inf:
            return self._frames(waveforms, samples)
        pairs = zip(waveforms.split(ROWS), samples.split(ROWS), strict=True)
        parts = [self._frames(*each) for each in pairs]
        return Frames(torch.cat([each.values for each in parts]), torch.cat([each.lengths for each in parts]))

    def _frames(self, waveforms: Tensor, samples: Tensor) -> Frames:
        inputs = self.inputs(waveforms, samples)
        mask = inputs.mask
        for norm in self.norms:
            norm.samples = None if mask is None else inputs.lengths
        if self.settings.kind == "ctc":
            counts = self._frame_counts(inputs.lengths)
            with masks_of(self.network, int(counts.max())):
                logits = self.network(inputs.values, attention_mask=mask).logits
            return Frames(logits, counts.clamp(max=logits.shape[1]), mask)
        values, mask = self._encoded(inputs, mask)
        lengths = (
            samples / (SAMPLE_RATE * self.frame_seconds)
        ).long()  # of the audio alone, not of the batch
        return Frames(values, lengths.clamp(1, values.shape[1]), mask)

    def _encoded(self, inputs: Inputs, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The frames of the encoder of a sequence-to-sequence model, (B, T, D), and the mask for its decoder."""
        values, network = inputs.values, self.network
        kind = network.config.model_type
        if kind == "moonshine" and mask is not None:
            # Its own mask includes frames that reach into the padding.
            counts = map(network._get_feat_extract_output_lengths, mask.sum(dim=1).tolist())
            lengths = torch.tensor([*counts], device=mask.device) * MOONSHINE_STRIDE
            mask = time_mask(lengths, mask.shape[1]).long()
        room = values.shape[-1 if inputs.lengths is None else 1]
        with masks_of(network, room // WAVE_STRIDE - 1 if values.dim() == 2 else room):
            if kind == "whisper":  # which masks before its encoder
                values = network.model._mask_input_features(values)
            encoder = network.get_encoder()
            # Otherwise the default is warned about.
            uncached = {"use_cache": False} if getattr(encoder, "gradient_checkpointing", False) else {}
            found = encoder(values, attention_mask=mask, **uncached)
        return found.last_hidden_state, getattr(found, "attention_mask", mask)

    def can_record(self, settings: TrainingSettings) -> bool:
        """Steps are not recorded as CUDA graphs: networks of transformers read values on the host."""
        return False

    def copy(self) -> Self:
        """An independent copy; the tokenizer and the memory of weights that are never trained are shared."""
        shared: dict[int, Any] = {id(self.tokenizer): self.tokenizer}
        for name, each in self.named_parameters():
            if name in self.frozen:
                shared[id(each)] = nn.Parameter(each.data, requires_grad=False)
        return copy.deepcopy(self, shared)

    def recorded(self) -> Proposes:  # type: ignore[override]
        """The same proposals for a training loop, in the precision of the device."""
        return ProposalsInPrecision(self)

    def train(self, mode: bool = True) -> Self:
        """Choose between training and evaluation mode; an encoder that is not trained stays in evaluation mode."""
        super().train(mode)
        if self.encoder_is_frozen:
            body_of(self.network).eval()
        return self

    def state_dict(self, *args: Any, **given: Any) -> dict[str, Any]:  # type: ignore[override]
        """The weights that training changes, each once, and the buffers."""
        kept = {name for name, _ in self.named_parameters()} - self.frozen
        kept |= {name for name, _ in self.named_buffers()}
        return {name: each for name, each in super().state_dict(*args, **given).items() if name in kept}

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Replace the weights that training changes."""
        own = self.state_dict()
        shapes = {name: each.shape for name, each in own.items()}
        if shapes != {name: each.shape for name, each in state_dict.items()}:
            raise RuntimeError("the weights are those of another network, or of another pretrained.train")
        with torch.no_grad():
            for name, each in own.items():
                each.copy_(state_dict[name])

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a folder that transformers can load, with adapters merged into the weights."""
        parts = Parts(
            self.network,
            self.inputs.own,
            self.tokenizer,
            self.prompt.tolist(),
            self.origin,
            self.longest_heard,
        )
        write_parts(Path(folder), parts, merged_weights(self.network))

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        device: str | torch.device = "cpu",
        settings: PretrainedSettings | None = None,
    ) -> Self:
        """Load a model of transformers from its folder or from the Hub (`owner/name[@revision]`), ready to use."""
        settings = settings or PretrainedSettings()
        parts = read_parts(folder, settings)
        try:
            model = cls(parts, settings).eval()
            with torch.no_grad():
                values, _ = model.encode(PROBE, torch.tensor([PROBE.shape[1]]))
        except (UserError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # whatever the classes of each model raise
            raise UserError(
                f"the parts of {folder} do not fit together ({reason(error)[:300]}): copy or download it again"
            ) from error
        require_finite(values, Path(folder))
        return model.to(device)


class ProposalsInPrecision:
    """Proposals of a recognizer in the precision of its device, on a GPU as CUDA graphs where its shapes allow it."""

    def __init__(self, model: HuggingFaceRecognizer) -> None:
        self.model, self.searches = model, RecordedSearches()

    @torch.no_grad()
    def propose(self, batch: Batch, k: int) -> Beam:
        """The k best hypotheses of each utterance."""
        model, head = self.model, self.model.head
        with mixed_precision(batch.waveforms.device):
            if isinstance(head, DecoderHead) and self._records(batch.waveforms.device):
                return self.searches.search(head, model.frames(batch), k)
            return model.propose(batch, k)

    def _records(self, device: torch.device) -> bool:
        return self.model.packs and self.model.padded_to > 0 and has_kernels(device)


@contextmanager
def masks_of(network: Any, frames: int) -> Iterator[None]:
    """Let a network in training mode draw its masks from torch's random numbers, which a resumed run repeats.

    It draws them from NumPy's. There are none along the time if one would not fit into so few frames.
    """
    config: Any = body_of(network).config
    if not network.training or not hasattr(config, "mask_time_prob"):
        yield
        return
    share, state = config.mask_time_prob, np.random.get_state()
    np.random.seed(int(torch.randint(2**31, ())))
    if frames <= config.mask_time_length:
        config.mask_time_prob = 0.0
    try:
        yield
    finally:
        config.mask_time_prob = share
        np.random.set_state(state)


def never_proposed(network: Any, tokenizer: HuggingFaceTokenizer) -> tuple[Tensor, Tensor]:
    """The classes that a search never proposes, and those that it does not propose first: 2 x (C,).

    These are special tokens, outputs without a token, Whisper's times, and what the model's own decoding suppresses.
    """
    generation = getattr(network, "generation_config", None)
    never = torch.zeros(tokenizer.classes, dtype=torch.bool)
    never[[each for each in tokenizer.special if 0 <= each < tokenizer.classes]] = True
    never[tokenizer.known :] = True
    times = getattr(generation, "no_timestamps_token_id", None)
    if times is not None:
        never[times:] = True
    first = torch.zeros_like(never)
    for mask, name in ((never, "suppress_tokens"), (first, "begin_suppress_tokens")):
        ids = getattr(generation, name, None) or []
        mask[[each for each in ids if 0 <= each < len(mask)]] = True
    never[tokenizer.eos] = False
    return never, first


def longest_output(network: Any) -> int:
    """The most tokens that a network reads or writes, with its prompt."""
    generation = getattr(network, "generation_config", None)
    config = network.config.get_text_config(decoder=True)
    limits = [
        getattr(generation, "max_length", None),
        getattr(config, "max_target_positions", None),
        getattr(config, "max_position_embeddings", None),
    ]
    return min((each for each in limits if isinstance(each, int)), default=MOST_TOKENS)
