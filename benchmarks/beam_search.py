"""Beam search beside its peers: python benchmarks/beam_search.py [--device auto|cpu|cuda] [--json]

All search for k hypotheses of exactly the same number of pieces, over encoder frames that are given: the end of a
sentence is out of reach until then. Beside them stand the output projections of as many steps by themselves, the
least that any of them has to compute: with the classes as they are, and with empty ones behind them up to a round
number, which is faster. On a GPU everything runs in bfloat16.

The peer is `generate` of transformers with beam search and a one-layer BART decoder. Its feed-forward layer is as wide
as the model, so that it does no more arithmetic than the GRU (a usual one, four times as wide, is slower still).
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from measure import Table, describe, fresh_medians, versions
from torch import Tensor
from torch.nn import functional

from priormatch.decoding.beam import BLOCK, Beam, beam_search
from priormatch.device import find_device, has_kernels, mixed_precision
from priormatch.errors import UserError
from priormatch.kernels.graphs import Arena
from priormatch.models.decoder import AttentionDecoder, DecoderSteps

OURS, PLAIN = "priormatch", "priormatch without kernels"
PROJECTIONS, FILLED = "output projections alone", "output projections, classes filled up to whole blocks"
PEER, SPEECHBRAIN = "transformers generate", "SpeechBrain S2SRNNBeamSearcher"

Search = Callable[[Tensor], object]
"""Encoder frames (B, T, 2D), of which peers take the first half of the columns -> whatever the search finds."""


@dataclass(frozen=True)
class Sizes:
    """What is searched: a batch of utterances of 12.5 s with the paper's decoder unless told otherwise."""

    utterances: int = 128
    frames: int = 156
    pieces: int = 45
    classes: int = 5001
    beam_size: int = 4
    size: int = 512


def main() -> None:
    """Measure, and print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    for name, default in asdict(Sizes()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    sizes = Sizes(**{name: getattr(options, name) for name in asdict(Sizes())})
    device = find_device(options.device)
    torch.manual_seed(0)

    searches, skipped = _searches(sizes, device)
    frames_type = torch.bfloat16 if device.type == "cuda" else torch.float32
    shape = sizes.utterances, sizes.frames, 2 * sizes.size

    def fresh_frames() -> Tensor:
        return torch.randn(shape, device=device, dtype=frames_type)

    with torch.no_grad(), mixed_precision(device):
        times = fresh_medians(searches, fresh_frames, device, options.repetitions, warm_up=2)

    ours, peer = times[OURS], times.get(PEER)
    result = {
        "ours_ms": ours,
        "peer_ms": peer,
        "ratio": peer / ours if peer is not None else None,
        "peer": PEER,
        "over_projections": ours / times[PROJECTIONS],
        "over_filled_projections": ours / times[FILLED],
        "rows_ms": times,
        "skipped": skipped,
        "device": describe(device),
        "sizes": asdict(sizes),
        "versions": versions("torch", "triton", "transformers", "speechbrain"),
    }
    if options.json:
        print(json.dumps(result))
        return
    table = Table(
        f"Beam search on {describe(device)}: {sizes.utterances} utterances, k = {sizes.beam_size}, "
        f"{sizes.pieces} pieces, {sizes.classes} classes"
    )
    for name, milliseconds in times.items():
        table.add(name, milliseconds, f"{milliseconds / ours:.2f} x ours")
    for name, why in skipped.items():
        table.add(name, None, f"skipped: {why}")
    table.show()


def _searches(sizes: Sizes, device: torch.device) -> tuple[dict[str, Search], dict[str, str]]:
    """Everything to be measured here, by name, and a word on what cannot be."""
    decoder = AttentionDecoder(sizes.classes, sizes.size).to(device).eval()
    with torch.no_grad():
        decoder.output.bias[-1] = -1e4  # the end of a sentence
    searches: dict[str, Search] = {OURS: _plain(decoder, sizes)}
    if has_kernels(device):
        searches = {OURS: _with_kernels(decoder, sizes), PLAIN: _plain(decoder, sizes)}
    more = -sizes.classes % BLOCK
    weight, bias = decoder.output.weight.detach(), decoder.output.bias.detach()
    searches[PROJECTIONS] = _projections(weight, bias, sizes)
    searches[FILLED] = _projections(
        functional.pad(weight, (0, 0, 0, more)), functional.pad(bias, (0, more)), sizes
    )
    skipped = {}
    for name, make in ((PEER, _transformers), (SPEECHBRAIN, _speechbrain)):
        try:
            searches[name] = make(sizes, device)
        except ModuleNotFoundError:
            skipped[name] = "not installed"
        except (
            ImportError,
            OSError,
            AttributeError,
        ):  # a library of theirs does not fit the torch that is here
            skipped[name] = "does not import"
    return searches, skipped


def _plain(decoder: AttentionDecoder, sizes: Sizes) -> Search:
    def search(frames: Tensor) -> Beam:
        lengths = torch.full((sizes.utterances,), sizes.frames, device=frames.device)
        memory = decoder.memory(frames, lengths)
        state = decoder.first_state(sizes.utterances, sizes.beam_size)
        beam = beam_search(DecoderSteps(decoder, memory), state, sizes.classes - 1, sizes.pieces - 1)
        return _checked(beam, sizes)

    return search


def _with_kernels(decoder: AttentionDecoder, sizes: Sizes) -> Search:
    from priormatch.kernels.gpu_search import GpuSearch

    recorded: list[GpuSearch] = []  # at the first call, as in a run whose batches have one shape

    def search(frames: Tensor) -> Beam:
        memory = decoder.memory(frames, torch.full((sizes.utterances,), sizes.frames, device=frames.device))
        if not recorded:
            ends = sizes.classes - 1, sizes.pieces - 1
            recorded.append(GpuSearch(decoder, memory, sizes.beam_size, *ends, Arena()))
        return _checked(recorded[0](memory), sizes)

    return search


def _checked(beam: Beam, sizes: Sizes) -> Beam:
    """Let no search be fast because it stopped early."""
    if beam.classes.shape[2] != sizes.pieces:
        raise RuntimeError(f"the search found {beam.classes.shape[2]} pieces instead of {sizes.pieces}")
    return beam


def _projections(weight: Tensor, bias: Tensor, sizes: Sizes) -> Search:
    def project(frames: Tensor) -> None:
        rows = frames[:, : sizes.beam_size, : sizes.size].contiguous()
        for _ in range(sizes.pieces):
            functional.linear(rows, weight, bias)

    return project


def _transformers(sizes: Sizes, device: torch.device) -> Search:
    from transformers import BartConfig, BartForConditionalGeneration, GenerationConfig
    from transformers.modeling_outputs import BaseModelOutput

    end, heads = sizes.classes - 1, max(1, sizes.size // 64)
    settings = BartConfig(
        vocab_size=sizes.classes, d_model=sizes.size, max_position_embeddings=sizes.pieces + 1,
        encoder_layers=1, encoder_attention_heads=heads, encoder_ffn_dim=sizes.size,
        decoder_layers=1, decoder_attention_heads=heads, decoder_ffn_dim=sizes.size,
        pad_token_id=end, bos_token_id=end, eos_token_id=end, decoder_start_token_id=end, forced_eos_token_id=None,
    )  # fmt: skip
    model = BartForConditionalGeneration(settings).to(device).eval()
    generation = GenerationConfig(
        num_beams=sizes.beam_size, num_return_sequences=sizes.beam_size, do_sample=False, length_penalty=0.0,
        min_new_tokens=sizes.pieces, max_new_tokens=sizes.pieces, use_cache=True,
        pad_token_id=end, bos_token_id=end, eos_token_id=end, decoder_start_token_id=end,
    )  # fmt: skip
    if device.type == "cuda":
        model = model.to(torch.bfloat16)

    def search(frames: Tensor) -> None:
        encoded = BaseModelOutput(last_hidden_state=frames[:, :, : sizes.size].contiguous())
        there = torch.ones(frames.shape[:2], dtype=torch.long, device=device)
        with torch.autocast(device.type, enabled=False):
            found = model.generate(
                encoder_outputs=encoded, attention_mask=there, generation_config=generation
            )
        if found.shape[1] != sizes.pieces + 1:  # with the start
            raise RuntimeError(f"transformers found {found.shape[1] - 1} pieces instead of {sizes.pieces}")

    return search


def _speechbrain(sizes: Sizes, device: torch.device) -> Search:
    from speechbrain.decoders.seq2seq import S2SRNNBeamSearcher
    from speechbrain.nnet.linear import Linear
    from speechbrain.nnet.RNN import AttentionalRNNDecoder

    size, end = sizes.size, sizes.classes - 1
    steps = (sizes.pieces + 0.5) / sizes.frames
    searcher = S2SRNNBeamSearcher(
        embedding=torch.nn.Embedding(sizes.classes, size),
        decoder=AttentionalRNNDecoder("gru", "keyvalue", size, size, 1, enc_dim=size, input_size=size),
        linear=Linear(n_neurons=sizes.classes, input_size=size),
        bos_index=end, eos_index=end, min_decode_ratio=steps, max_decode_ratio=steps,
        beam_size=sizes.beam_size, return_topk=True, topk=sizes.beam_size,
        using_eos_threshold=False, length_normalization=False,
    )  # fmt: skip
    searcher = searcher.to(device).eval()

    def search(frames: Tensor) -> None:
        encoded = frames[:, :, :size].contiguous()
        searcher(encoded, torch.ones(sizes.utterances, device=device))

    return search


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(str(error))
