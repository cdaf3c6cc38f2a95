"""ONNX export of a recognizer: the encoder, with waveforms as input, and one step of an attention decoder."""

import copy
import json
import logging
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from priormatch import __version__
from priormatch.data import SAMPLE_RATE
from priormatch.data.features import (
    FFT,
    FRAME,
    MEL_FLOOR,
    PRE_EMPHASIS,
    STRIDE,
    LogMel,
    frame_counts,
    normalize,
    time_mask,
)
from priormatch.errors import UserError
from priormatch.files import replace_text, replacing
from priormatch.models.decoder import AttentionDecoder, gru_step
from priormatch.recognizers.heads import CtcHead, Frames
from priormatch.recognizers.recognizer import SpeechRecognizer

ENCODER, STEP, PIECES, FACTS = "encoder.onnx", "decoder_step.onnx", "pieces.txt", "export.json"
ATTENTION_OUTPUTS, CTC_OUTPUTS = ("keys", "values", "mask"), ("log_probabilities", "frames")
MOST_DIFFERENCE = 1e-3  # between log-probabilities of the exported model and the original


class LogMelByConvolution(nn.Module):
    """`LogMel` with a convolution of sines and cosines, which every ONNX runtime supports, instead of an FFT.

    Gain, pre-emphasis, window and Fourier transform are all linear in a frame, so one matrix computes them.
    """

    waves: Tensor
    filters: Tensor

    def __init__(self, features: LogMel) -> None:
        super().__init__()
        time = torch.arange(FRAME, dtype=torch.float64)
        angles = torch.outer(torch.arange(FFT // 2 + 1, dtype=torch.float64), time) * (2 * math.pi / FFT)
        windowed = torch.cat([angles.cos(), angles.sin()]) * features.window.double()
        waves = windowed - PRE_EMPHASIS * functional.pad(windowed[:, 1:], (0, 1))
        waves[:, 0] -= PRE_EMPHASIS * windowed[:, 0]  # the first sample is also used as its predecessor
        self.register_buffer("waves", (32768 * waves).float()[:, None])
        self.register_buffer("filters", features.filters)

    def forward(self, waveforms: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
        """(B, N) in [-1, 1], (B,) -> features (B, T, n_mels), frames (B,); T includes padding."""
        padded = functional.pad(waveforms, (0, FRAME))  # at least one frame
        real, imaginary = functional.conv1d(padded[:, None], self.waves, stride=STRIDE).chunk(2, dim=1)
        spectrum = (real.square() + imaginary.square()).sqrt().transpose(1, 2)
        lengths = frame_counts(samples)
        return normalize((spectrum @ self.filters).clamp(min=MEL_FLOOR).log(), lengths), lengths


class Encoder(nn.Module):
    """Waveforms (B, N), their lengths (B,) -> keys and values (B, T, D), mask (B, T)."""

    def __init__(self, model: SpeechRecognizer) -> None:
        super().__init__()
        self.features = LogMelByConvolution(model.features)
        self.encoder, self.decoder = model.encoder, model.attention_head.decoder

    def forward(self, waveforms: Tensor, samples: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the features, the encoder, and the two halves of its output."""
        memory = self.decoder.memory(*self.encoder(*self.features(waveforms, samples)))
        return memory.keys, memory.values, memory.mask


class CtcEncoder(nn.Module):
    """Waveforms (B, N), their lengths (B,) -> log q of every class at every frame (B, T, classes), frames (B,)."""

    def __init__(self, model: SpeechRecognizer, output: nn.Linear) -> None:
        super().__init__()
        self.features = LogMelByConvolution(model.features)
        self.encoder, self.output = model.encoder, output

    def forward(self, waveforms: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the features, the encoder, and the output layer."""
        frames, lengths = self.encoder(*self.features(waveforms, samples))
        return self.output(frames).log_softmax(dim=-1), lengths


class DecoderStep(nn.Module):
    """One step: memory, state (B, D), last chosen class (B,) -> log q of the next (B, classes), new state.

    The beginning is one more class, after the last one, the end of sentence.
    """

    def __init__(self, decoder: AttentionDecoder) -> None:
        super().__init__()
        self.decoder = decoder
        self.inputs = nn.Parameter(torch.cat([decoder.embedding.weight, decoder.start[None]]))

    def forward(
        self, keys: Tensor, values: Tensor, mask: Tensor, state: Tensor, previous: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute the GRU, attention, and the output layer."""
        into, _, bias, _ = self.decoder.gru.all_weights[0]
        inputs = functional.linear(functional.embedding(previous, self.inputs), into, bias)
        state = gru_step(self.decoder.gru, inputs, state)
        scores = (keys @ state[:, :, None])[:, :, 0] / math.sqrt(self.decoder.size)
        unseen = torch.finfo(scores.dtype).min / 2  # finite: an utterance without frames must not give NaN
        weights = scores.masked_fill(~mask, unseen).softmax(dim=-1) * mask
        context = (weights[:, None] @ values)[:, 0]
        return self.decoder.output(state + context).log_softmax(dim=-1), state


@torch.no_grad()
def export(model: SpeechRecognizer, folder: Path) -> None:
    """Write a recognizer's ONNX files, its pieces and, last, the values that a search needs into a folder.

    A hybrid model is exported as an attention model.
    """
    require("onnx", "onnxscript")
    model = copy.deepcopy(model).cpu().eval()
    folder.mkdir(parents=True, exist_ok=True)
    facts: dict[str, float] = {"sample_rate": SAMPLE_RATE, "end": model.tokenizer.eos}
    head = model.head
    if isinstance(head, CtcHead) and model.ctc is not None:
        write_encoder(folder, CtcEncoder(model, model.ctc), list(CTC_OUTPUTS))
        facts |= {"blank": head.blank, "frame_seconds": model.frame_seconds}
    else:
        write_encoder(folder, Encoder(model), list(ATTENTION_OUTPUTS))
        write_step(folder, model)
        facts |= {
            "begin": model.tokenizer.classes,
            "state": model.settings.size,
            "longest_output": model.settings.longest_output,
        }
    model.tokenizer.save(folder)
    replace_text(folder / PIECES, "".join(f"{piece}\n" for piece in model.tokenizer.pieces))
    replace_text(folder / FACTS, json.dumps({**facts, "priormatch": __version__}, indent=2) + "\n")


def write_encoder(folder: Path, encoder: nn.Module, outputs: list[str]) -> None:
    """Export an encoder of waveforms."""
    waveforms, samples = example()
    write_onnx(
        folder / ENCODER,
        encoder,
        {"waveforms": waveforms, "samples": samples},
        outputs,
        {"waveforms": {0: "batch", 1: "time"}, "samples": {0: "batch"}},
    )


def write_step(folder: Path, model: SpeechRecognizer) -> None:
    """Export one step of the attention decoder."""
    decoder, (waveforms, samples) = model.attention_head.decoder, example()
    memory = dict(zip(ATTENTION_OUTPUTS, Encoder(model)(waveforms, samples), strict=True))
    begin = torch.full((len(waveforms),), model.tokenizer.classes)
    write_onnx(
        folder / STEP,
        DecoderStep(decoder),
        {**memory, "state": decoder.first_state(len(waveforms), 1)[:, 0], "previous": begin},
        ["log_probabilities", "new_state"],
        {name: {0: "batch", 1: "frames"} for name in memory}
        | {"state": {0: "batch"}, "previous": {0: "batch"}},
    )


def example() -> tuple[Tensor, Tensor]:
    """Two waveforms of noise, one of them shorter: (2, N), (2,)."""
    noise = torch.randn(2, SAMPLE_RATE, generator=torch.Generator().manual_seed(0))
    return 0.1 * noise, torch.tensor([SAMPLE_RATE, SAMPLE_RATE // 3])


def write_onnx(
    file: Path,
    module: nn.Module,
    inputs: Mapping[str, Tensor],
    outputs: list[str],
    axes: Mapping[str, Mapping[int, str]],
) -> None:
    """Export one module; named axes are dynamic."""
    shapes = {
        name: {axis: torch.export.Dim(size) for axis, size in named.items()} for name, named in axes.items()
    }
    with quietly(), replacing(file) as temporary:
        torch.onnx.export(
            module.eval(),
            tuple(inputs.values()),
            temporary,
            input_names=list(inputs),
            output_names=outputs,
            dynamic_shapes=shapes,
            dynamo=True,
            external_data=False,
            verbose=False,
        )


@contextmanager
def quietly() -> Iterator[None]:
    """Hide the exporter's messages for its own developers."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def check(model: SpeechRecognizer, folder: Path) -> float:
    """Compare the export with the model: return the largest difference of a log-probability, or raise if too large."""
    require("onnxruntime")
    head = model.head
    if isinstance(head, CtcHead):
        worst = difference_of_ctc(model, head, folder)
    else:
        worst = difference_of_attention(model, folder)
    if not worst <= MOST_DIFFERENCE:
        raise UserError(
            f"{folder}: log-probabilities under onnxruntime differ by up to {worst:.2g} from the model's; at most"
            f" {MOST_DIFFERENCE:g} is allowed: do not use this export; try other versions of onnx and onnxruntime"
        )
    return worst


@torch.no_grad()
def difference_of_ctc(model: SpeechRecognizer, head: CtcHead, folder: Path) -> float:
    """The largest difference of log q of a class at a frame."""
    waveforms, samples = example()
    frames = Frames(*model.encode(waveforms, samples))
    log_q, _ = session(folder / ENCODER).run(
        None, {"waveforms": waveforms.numpy(), "samples": samples.numpy()}
    )
    valid = time_mask(frames.lengths, frames.values.shape[1])
    found = torch.from_numpy(log_q)[:, : valid.shape[1]]
    return float((found - head.log_probabilities(frames))[valid].abs().max())


@torch.no_grad()
def difference_of_attention(model: SpeechRecognizer, folder: Path) -> float:
    """The largest difference of log q of a class after a few given ones."""
    encoder, step, head = session(folder / ENCODER), session(folder / STEP), model.attention_head
    waveforms, samples = example()
    classes = torch.arange(8).expand(len(waveforms), 1, 8) % model.tokenizer.classes
    memory = head.memory(Frames(*model.encode(waveforms, samples)))
    wanted = head.decoder(memory, classes).log_softmax(dim=-1)[:, 0]
    found = encoder.run(None, {"waveforms": waveforms.numpy(), "samples": samples.numpy()})
    inputs = dict(zip(ATTENTION_OUTPUTS, found, strict=True))
    state = head.decoder.first_state(len(waveforms), 1)[:, 0].numpy()
    previous = torch.full((len(waveforms),), model.tokenizer.classes)
    worst = 0.0
    for position in range(classes.shape[2]):
        log_q, state = step.run(None, {**inputs, "state": state, "previous": previous.numpy()})
        worst = max(worst, float((torch.from_numpy(log_q) - wanted[:, position]).abs().max()))
        previous = classes[:, 0, position]
    return worst


def session(file: Path) -> Any:
    """An ONNX file under onnxruntime."""
    import onnxruntime

    return onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])


def require(*modules: str) -> None:
    """Raise an error if a library of the `export` extra is not installed."""
    from importlib.util import find_spec

    for module in modules:
        if find_spec(module) is None:
            raise UserError(f"exporting needs {module}: install it with pip install 'priormatch[export]'")
