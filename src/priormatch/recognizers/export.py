"""ONNX export of a recognizer: the encoder, with waveforms as input, and one step of the decoder."""

import copy
import json
import logging
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

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
)
from priormatch.errors import UserError
from priormatch.files import replace_text, replacing
from priormatch.models.decoder import AttentionDecoder, gru_step
from priormatch.recognizers.recognizer import SpeechRecognizer

ENCODER, STEP, PIECES, FACTS = "encoder.onnx", "decoder_step.onnx", "pieces.txt", "export.json"
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
        self.encoder, self.decoder = model.encoder, model.decoder

    def forward(self, waveforms: Tensor, samples: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the features, the encoder, and the two halves of its output."""
        memory = self.decoder.memory(*self.encoder(*self.features(waveforms, samples)))
        return memory.keys, memory.values, memory.mask


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
    """Write a recognizer's ONNX files, its pieces and, last, the values that a search needs into a folder."""
    require("onnx", "onnxscript")
    model = copy.deepcopy(model).cpu().eval()
    folder.mkdir(parents=True, exist_ok=True)
    encoder, waveforms, samples = Encoder(model), *example()
    write_onnx(
        folder / ENCODER,
        encoder,
        {"waveforms": waveforms, "samples": samples},
        ["keys", "values", "mask"],
        {"waveforms": {0: "batch", 1: "time"}, "samples": {0: "batch"}},
    )
    memory = dict(zip(("keys", "values", "mask"), encoder(waveforms, samples), strict=True))
    begin = torch.full((len(waveforms),), model.tokenizer.classes)
    write_onnx(
        folder / STEP,
        DecoderStep(model.decoder),
        {**memory, "state": model.decoder.first_state(len(waveforms), 1)[:, 0], "previous": begin},
        ["log_probabilities", "new_state"],
        {name: {0: "batch", 1: "frames"} for name in memory}
        | {"state": {0: "batch"}, "previous": {0: "batch"}},
    )
    model.tokenizer.save(folder)
    replace_text(folder / PIECES, "".join(f"{piece}\n" for piece in model.tokenizer.pieces))
    facts = {
        "sample_rate": SAMPLE_RATE,
        "end": model.tokenizer.eos,
        "begin": model.tokenizer.classes,
        "state": model.settings.size,
        "longest_output": model.settings.longest_output,
        "priormatch": __version__,
    }
    replace_text(folder / FACTS, json.dumps(facts, indent=2) + "\n")


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


@torch.no_grad()
def check(model: SpeechRecognizer, folder: Path) -> float:
    """Compare the export with the model: return the largest difference of a log-probability, or raise if too large."""
    require("onnxruntime")
    import onnxruntime

    encoder, step = (
        onnxruntime.InferenceSession(folder / name, providers=["CPUExecutionProvider"])
        for name in (ENCODER, STEP)
    )
    waveforms, samples = example()
    classes = torch.arange(8).expand(len(waveforms), 1, 8) % model.tokenizer.classes
    wanted = model.decoder(model.memory(*model.encode(waveforms, samples)), classes).log_softmax(dim=-1)[:, 0]
    heard = encoder.run(None, {"waveforms": waveforms.numpy(), "samples": samples.numpy()})
    memory = dict(zip(("keys", "values", "mask"), heard, strict=True))
    state = model.decoder.first_state(len(waveforms), 1)[:, 0].numpy()
    previous = torch.full((len(waveforms),), model.tokenizer.classes)
    worst = 0.0
    for position in range(classes.shape[2]):
        log_q, state = step.run(None, {**memory, "state": state, "previous": previous.numpy()})
        worst = max(worst, float((torch.from_numpy(log_q) - wanted[:, position]).abs().max()))
        previous = classes[:, 0, position]
    if not worst <= MOST_DIFFERENCE:
        raise UserError(
            f"{folder}: log-probabilities under onnxruntime differ by up to {worst:.2g} from the model's; at most"
            f" {MOST_DIFFERENCE:g} is allowed: do not use this export; try other versions of onnx and onnxruntime"
        )
    return worst


def require(*modules: str) -> None:
    """Raise an error if a library of the `export` extra is not installed."""
    from importlib.util import find_spec

    for module in modules:
        if find_spec(module) is None:
            raise UserError(f"exporting needs {module}: install it with pip install 'priormatch[export]'")
