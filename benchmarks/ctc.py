"""CTC beside its peers: python benchmarks/ctc.py [--device auto|cpu|cuda] [--classes 29] [--threads 1] [--json]

Two things are measured: the likelihood of k label sequences per utterance with its gradient, beside PyTorch's CTC loss
on frames that are repeated k times; and prefix search, beside pyctcdecode, flashlight-text and, on a GPU, torchaudio's
CUDA decoder, all without a language model. On a GPU both are measured also with our kernels, launched one by one and
recorded as a CUDA graph, and prefix search also with a prior of the size of the recipe `own`.

The log-probabilities are synthetic: random alignments with sharp peaks and noise. Both peers keep as many beams as we
keep prefixes, but count a prefix before and after a blank as two; pyctcdecode prunes tokens, as it does by default.
Peers search in one process, so by default PyTorch has one thread, too.

torchaudio's decoder writes past the end of its shared memory and aborts the process on Hopper and Blackwell GPUs
(pytorch/audio, issues 3754 and 4181, not fixed in 2.11). It is therefore measured in a process of its own, after the
others.
"""

import argparse
import json
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

import numpy as np
import torch
from measure import Table, describe, fresh_medians, versions
from torch import Tensor
from torch.nn import functional

from priormatch.config import load_settings
from priormatch.decoding.beam import Beam
from priormatch.decoding.prefix_search import PrefixFusion, PrefixSettings, greedy_ctc, prefix_search
from priormatch.device import find_device, has_kernels
from priormatch.errors import UserError
from priormatch.models.conv_lm import ConvLM
from priormatch.models.ctc import ctc_log_likelihood, rescored

OURS, PEER = "priormatch", "torch.nn.functional.ctc_loss"
KERNELS, RECORDED = "priormatch kernels", "priormatch kernels, recorded"
LOGITS = "priormatch kernels with log-softmax, recorded"
SEARCH, RESCORED, GREEDY = "priormatch prefix search", "the same with exact scores", "priormatch greedy"
SEARCH_KERNEL, RECORDED_SEARCH = (
    "priormatch prefix search kernel",
    "priormatch prefix search kernel, recorded",
)
FUSED, RECORDED_FUSED = "priormatch prefix search with a prior", "the same, a frame recorded"
RECIPE = Path(__file__).parents[1] / "recipes" / "own.yaml"
PYCTCDECODE, FLASHLIGHT, TORCHAUDIO = "pyctcdecode", "flashlight-text", "torchaudio"

Given, Found = ParamSpec("Given"), TypeVar("Found")
Text = list[int]
Search = Callable[[Tensor], list[Text]]
"""log q (B, T, C) -> the best label sequence of each utterance."""

Likelihood = Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]
"""log q (B, T, C), frames, labels, lengths, blank -> log q(y|x) (B, k)."""


@dataclass(frozen=True)
class Sizes:
    """What is measured: a batch of utterances of 12.5 s at 25 frames per second unless told otherwise."""

    utterances: int = 128
    frames: int = 312
    classes: int = 29
    tokens: int = 150
    beam_size: int = 4
    width: int = 16


def main() -> None:
    """Measure, and print tables or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    for name, default in asdict(Sizes()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    sizes = Sizes(**{name: getattr(options, name) for name in asdict(Sizes())})
    device = find_device(options.device)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)

    likelihoods = {k: _likelihoods(replace(sizes, beam_size=k), device, options.repetitions) for k in (1, 4)}
    what = f"{sizes.utterances} utterances, {sizes.frames} frames, {sizes.classes} classes"
    if not options.json:
        show_likelihoods(likelihoods, f"{describe(device)}: {what}")

    searches, skipped = _searches(sizes, device)
    times = fresh_medians(searches, lambda: speech(sizes, device), device, options.repetitions)
    log_q = speech(sizes, device)
    found = {name: search(log_q) for name, search in searches.items()}
    if device.type == "cuda":
        given = sizes, device, options.repetitions, log_q.cpu().numpy()
        try:
            times[TORCHAUDIO], found[TORCHAUDIO] = alone(_measured_torchaudio, *given)
        except BrokenProcessPool:
            skipped[TORCHAUDIO] = "crashed"
        except (ImportError, OSError):
            skipped[TORCHAUDIO] = "not installed"
        except RuntimeError as error:
            skipped[TORCHAUDIO] = f"failed: {str(error).partition(chr(10))[0]}"
    same = _agreement(found, log_q, sizes)
    if options.json:
        result = {
            "likelihood_ms": likelihoods,
            "likelihood_ratios": {
                k: {name: each[PEER] / milliseconds for name, milliseconds in each.items()}
                for k, each in likelihoods.items()
            },
            "search_ms": times,
            "search_ratios": {name: each / times[SEARCH] for name, each in times.items()},
            "agreement": same,
            "skipped": skipped,
            "device": describe(device),
            "sizes": asdict(sizes),
            "versions": versions("torch", "triton", PYCTCDECODE, FLASHLIGHT, TORCHAUDIO),
        }
        print(json.dumps(result))
        return
    table = Table(f"Prefix search on {describe(device)}: {what}, width {sizes.width}, k = {sizes.beam_size}")
    for name, milliseconds in times.items():
        table.add(name, milliseconds, f"{milliseconds / times[SEARCH]:.2f} x ours; {same[name]}")
    for name, why in skipped.items():
        table.add(name, None, f"skipped: {why}")
    table.show()


def show_likelihoods(likelihoods: dict[int, dict[str, float]], where: str) -> None:
    """Print the milliseconds of each likelihood, for each k."""
    table = Table(f"CTC likelihood and gradient on {where}")
    for k, each in likelihoods.items():
        for name, milliseconds in each.items():
            table.add(
                f"{name}, k = {k}", milliseconds, f"{each[PEER] / milliseconds:.2f} x as fast as PyTorch"
            )
    table.show()


def alone(work: Callable[Given, Found], *given: Given.args, **named: Given.kwargs) -> Found:
    """Call a function in a process of its own; raise BrokenProcessPool if that process crashes."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(work, *given, **named).result()


def speech(sizes: Sizes, device: torch.device) -> Tensor:
    """log q (B, T, C) of random alignments with sharp peaks."""
    shape = sizes.utterances, sizes.frames
    emits = torch.rand(shape).argsort(dim=1) < sizes.tokens
    path = torch.where(emits, torch.randint(sizes.classes - 1, shape), sizes.classes - 1)
    peaks = 8 + 3 * torch.randn(*shape, 1)
    logits = torch.randn(*shape, sizes.classes).scatter_add(2, path[:, :, None], peaks)
    return logits.log_softmax(dim=-1).to(device)


def _likelihoods(sizes: Sizes, device: torch.device, repetitions: int) -> dict[str, float]:
    """Milliseconds of a forward and a backward pass."""
    shape = sizes.utterances, sizes.beam_size, sizes.tokens + 1
    labels = torch.randint(sizes.classes - 1, shape, device=device)
    labels[:, :, -1] = sizes.classes - 1
    lengths = torch.full(shape[:2], shape[2], device=device)
    frames = torch.full(shape[:1], sizes.frames, device=device)

    def gradient_of(likelihood: Likelihood) -> Callable[[Tensor], Tensor]:
        def ours(log_q: Tensor) -> Tensor:
            mine = log_q.clone().requires_grad_()
            likelihoods = likelihood(mine, frames, labels, lengths, sizes.classes - 1)
            return torch.autograd.grad(likelihoods.sum(), mine)[0]

        return ours

    def theirs(log_q: Tensor) -> None:
        mine = log_q.clone().requires_grad_()
        functional.ctc_loss(
            mine.repeat_interleave(sizes.beam_size, dim=0).transpose(0, 1),
            labels.flatten(0, 1),
            frames.repeat_interleave(sizes.beam_size),
            lengths.flatten() - 1,
            blank=sizes.classes - 1,
            reduction="sum",
        ).backward()

    works: dict[str, Callable[[Tensor], object]] = {OURS: gradient_of(ctc_log_likelihood), PEER: theirs}
    if has_kernels(device):
        from priormatch.kernels import ctc as kernels
        from priormatch.kernels.graphs import Graphed

        works[KERNELS] = gradient_of(kernels.ctc_log_likelihood)
        works[RECORDED] = Graphed(gradient_of(kernels.ctc_log_likelihood))
        works[LOGITS] = Graphed(gradient_of(kernels.ctc_log_likelihood_of_logits))
    return fresh_medians(works, lambda: speech(sizes, device), device, repetitions)


def _searches(sizes: Sizes, device: torch.device) -> tuple[dict[str, Search], dict[str, str]]:
    """What is measured in this process, by name, and a word on what cannot be."""
    blank, settings = sizes.classes - 1, PrefixSettings(sizes.beam_size, sizes.width)

    def search(log_q: Tensor) -> list[Text]:
        return _best(prefix_search(log_q, _frames(log_q), blank, settings))

    def exact(log_q: Tensor) -> list[Text]:
        beam = prefix_search(log_q, _frames(log_q), blank, settings)
        return _best(rescored(beam, log_q, _frames(log_q), blank))

    def greedy(log_q: Tensor) -> list[Text]:
        return _best(greedy_ctc(log_q, _frames(log_q), blank))

    searches: dict[str, Search] = {SEARCH: search, RESCORED: exact, GREEDY: greedy}
    if has_kernels(device):
        searches |= _search_kernels(blank, settings) | _fused_searches(sizes, device)
    skipped = {}
    for name, make in {PYCTCDECODE: _pyctcdecode, FLASHLIGHT: _flashlight}.items():
        try:
            searches[name] = make(sizes)
        except (ImportError, OSError, RuntimeError):  # the latter two from an extension that does not load
            skipped[name] = "not installed"
    return searches, skipped


def _fused_searches(sizes: Sizes, device: torch.device) -> dict[str, Search]:
    """Searches with the prior of the recipe `own`, whose weights are random."""
    from priormatch.kernels.ctc import fused_prefix_search

    lm = ConvLM(load_settings(RECIPE).prior.model, sizes.classes).to(device)
    lm.fuse()
    lm.half()
    blank, settings = sizes.classes - 1, PrefixSettings(sizes.beam_size, sizes.width)

    def fusion(log_q: Tensor) -> PrefixFusion:
        return PrefixFusion(lm.step, lm.first_cache(len(log_q), 1), lm_weight=0.1, token_bonus=0.0)

    return {
        FUSED: lambda log_q: _best(prefix_search(log_q, _frames(log_q), blank, settings, fusion(log_q))),
        RECORDED_FUSED: lambda log_q: _best(
            fused_prefix_search(log_q, _frames(log_q), blank, settings, fusion(log_q))
        ),
    }


def _search_kernels(blank: int, settings: PrefixSettings) -> dict[str, Search]:
    from priormatch.kernels.ctc import padded_prefix_search
    from priormatch.kernels.ctc import prefix_search as prefix_search_kernel
    from priormatch.kernels.graphs import Graphed

    recorded = Graphed(lambda log_q, frames: padded_prefix_search(log_q, frames, blank, settings))
    return {
        SEARCH_KERNEL: lambda log_q: _best(prefix_search_kernel(log_q, _frames(log_q), blank, settings)),
        RECORDED_SEARCH: lambda log_q: _best(recorded(log_q, _frames(log_q))),
    }


def _frames(log_q: Tensor) -> Tensor:
    return torch.full((len(log_q),), log_q.shape[1], device=log_q.device)


def _best(beam: Beam) -> list[Text]:
    lengths = beam.lengths[:, 0].tolist()
    return [each[: n - 1] for each, n in zip(beam.classes[:, 0].tolist(), lengths, strict=True)]


def _pyctcdecode(sizes: Sizes) -> Search:
    from pyctcdecode import build_ctcdecoder

    letters = [chr(0x4E00 + each) for each in range(sizes.classes - 1)]  # no space: all is one word
    decoder = build_ctcdecoder([*letters, ""])

    def search(log_q: Tensor) -> list[Text]:
        found = []
        for each in log_q.cpu().numpy():
            beams = decoder.decode_beams(each, beam_width=sizes.width)
            found.append([ord(letter) - 0x4E00 for letter in beams[0][0]])
        return found

    return search


def _flashlight(sizes: Sizes) -> Search:
    from flashlight.lib.text.decoder import (
        CriterionType,
        LexiconFreeDecoder,
        LexiconFreeDecoderOptions,
        ZeroLM,
    )

    blank = sizes.classes - 1
    options = LexiconFreeDecoderOptions(
        beam_size=sizes.width, beam_size_token=sizes.classes, beam_threshold=1000.0, lm_weight=0.0,
        sil_score=0.0, log_add=True, criterion_type=CriterionType.CTC,
    )  # fmt: skip
    decoder = LexiconFreeDecoder(options, ZeroLM(), -1, blank, [])

    def search(log_q: Tensor) -> list[Text]:
        found = []
        for each in log_q.cpu().contiguous():
            path = torch.tensor(decoder.decode(each.data_ptr(), *each.shape)[0].tokens)
            path = path.unique_consecutive()
            found.append(path[(path != blank) & (path >= 0)].tolist())
        return found

    return search


def _torchaudio(sizes: Sizes) -> Search:
    from torchaudio.models.decoder import cuda_ctc_decoder

    names = [str(each) for each in range(sizes.classes)]
    decoder = cuda_ctc_decoder(names, nbest=1, beam_size=sizes.width, blank_skip_threshold=1.0)

    def search(log_q: Tensor) -> list[Text]:
        blank_first = log_q.roll(1, dims=2)  # the only place where it may be
        found = decoder(blank_first, _frames(log_q).int())
        return [(beams[0].tokens - 1).tolist() for beams in found]

    return search


def _measured_torchaudio(
    sizes: Sizes, device: torch.device, repetitions: int, log_q: np.ndarray
) -> tuple[float, list[Text]]:
    """The median milliseconds of torchaudio's search, and what it finds in log q (B, T, C)."""
    torch.manual_seed(0)
    search = _torchaudio(sizes)
    times = fresh_medians({TORCHAUDIO: search}, lambda: speech(sizes, device), device, repetitions)
    return times[TORCHAUDIO], search(torch.from_numpy(log_q).to(device))


def _agreement(found: dict[str, list[Text]], log_q: Tensor, sizes: Sizes) -> dict[str, str]:
    """How often each search found the same best text as ours, and the mean difference in log q(y|x)."""
    exact = {name: _log_likelihoods(texts, log_q, sizes) for name, texts in found.items()}
    words = {}
    for name, texts in found.items():
        same = sum(mine == other for mine, other in zip(found[SEARCH], texts, strict=True))
        difference = (exact[name] - exact[SEARCH]).mean().item()
        words[name] = f"same best text for {same} of {len(texts)}, log q {difference:+.4f}"
    return words


def _log_likelihoods(texts: list[Text], log_q: Tensor, sizes: Sizes) -> Tensor:
    blank, longest = sizes.classes - 1, max(map(len, texts)) + 1
    labels = [[each + [blank] * (longest - len(each))] for each in texts]
    lengths = torch.tensor([[len(each) + 1] for each in texts], device=log_q.device)
    return ctc_log_likelihood(
        log_q, _frames(log_q), torch.tensor(labels, device=log_q.device), lengths, blank
    )


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(str(error))
