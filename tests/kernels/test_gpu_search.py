"""The GPU's search, against the plain one."""

import math
from typing import Any

import pytest
import torch

from priormatch.config import ConvLMSettings, FusionSettings
from priormatch.decoding.beam import beam_search
from priormatch.decoding.fusion import fused_search
from priormatch.kernels.graphs import Arena
from priormatch.models.conv_lm import ConvLM, OneMore
from priormatch.models.decoder import AttentionDecoder, DecoderSteps

pytest.importorskip("triton")
if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

from priormatch.kernels.gpu_search import GpuSearch, LanguageModel, search_on_gpu

LONGEST = 20


def make(classes: Any, size: Any, end: Any, seed: int = 0) -> Any:
    """A decoder whose hypotheses end now and then, and frames for it."""
    torch.manual_seed(seed)
    decoder = AttentionDecoder(classes, size).cuda().eval()
    with torch.no_grad():
        decoder.output.weight.mul_(2.0)
        decoder.output.bias[classes - 1] = end
    frames = torch.tensor([70, 1, 33, 32, 64], device="cuda")
    return decoder, decoder.memory(torch.randn(5, 70, 2 * size, device="cuda"), frames)


def plain_search(decoder: Any, memory: Any, beam_size: Any, classes: Any) -> Any:
    state = decoder.first_state(len(memory.keys), beam_size)
    return beam_search(DecoderSteps(decoder, memory), state, classes - 1, LONGEST)


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("end", [-40.0, 0.5, 3.0])
@pytest.mark.parametrize("beam_size", [1, 4, 5, 8])
@pytest.mark.parametrize(("classes", "size"), [(37, 24), (5001, 512)])
@torch.no_grad()
def test_it_finds_what_the_plain_search_finds(
    classes: Any, size: Any, beam_size: Any, end: Any, recorded: Any
) -> None:
    decoder, memory = make(classes, size, end)
    expected = plain_search(decoder, memory, beam_size, classes)
    search = GpuSearch(decoder, memory, beam_size, classes - 1, LONGEST, Arena(), recorded=recorded)
    for _ in range(2):  # the second time from what the first has left behind
        assert_alike(search(memory), expected)


def assert_alike(found: Any, expected: Any) -> None:
    """The same scores, and the same hypotheses but for ties."""
    torch.testing.assert_close(found.scores, expected.scores, rtol=1e-4, atol=1e-4)
    assert torch.equal(found.ended, expected.ended)
    gaps = expected.scores.diff(dim=1).abs()
    clear = torch.ones_like(expected.scores, dtype=torch.bool)  # not in a tie with a neighbor
    clear[:, 1:] &= ~(gaps < 1e-4)
    clear[:, :-1] &= ~(gaps < 1e-4)
    assert torch.equal(found.lengths[clear], expected.lengths[clear])
    width = min(found.classes.shape[2], expected.classes.shape[2])
    assert torch.equal(found.classes[clear][:, :width], expected.classes[clear][:, :width])


def make_lm(classes: Any, settings: Any) -> Any:
    torch.manual_seed(1)
    lm = ConvLM(settings, classes).cuda()
    lm.fuse()
    return lm


NARROW = ConvLMSettings(embedding=20, width=24, bottlenecks=[[12, 24, 2], [10, 40, 2]], head=18)
WIDE = ConvLMSettings(embedding=128, width=256, bottlenecks=[[64, 256, 2], [128, 512, 1]], head=128)
FUSIONS = [
    FusionSettings(beam_size=4),
    FusionSettings(beam_size=5, lm_weight=1.0, token_bonus=1.0, eos_threshold=math.inf),
    FusionSettings(beam_size=2, lm_weight=0.7, token_margin=1.5, eos_threshold=1.05),
    FusionSettings(beam_size=8, attention_jump=6.0, beam_threshold=2.0),
    FusionSettings(beam_size=3, attention_jump=1.0),
    FusionSettings(beam_size=4, lm_weight=0.8, centered=True, token_bonus=0.0),
]


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("end", [-40.0, 0.5, 3.0])
@pytest.mark.parametrize(("classes", "size", "wanted"), [(37, 24, NARROW), (501, 256, WIDE)])
@torch.no_grad()
def test_with_a_language_model_it_finds_what_the_plain_search_finds(
    classes: Any, size: Any, wanted: Any, end: Any, fusion: Any, recorded: Any
) -> None:
    decoder, memory = make(classes, size, end)
    lm, shape = make_lm(classes, wanted), (len(memory.keys), fusion.beam_size)
    states = decoder.first_state(*shape), lm.first_cache(*shape)
    with torch.autocast("cuda", enabled=False):
        steps = DecoderSteps(decoder, memory).with_peaks
        expected = fused_search(
            steps, states[0], step32(lm), states[1], classes - 1, LONGEST, settings=fusion
        )
    both = LanguageModel.of(lm, fusion)
    search = GpuSearch(
        decoder, memory, fusion.beam_size, classes - 1, LONGEST, Arena(), recorded=recorded, lm=both
    )
    for _ in range(2):
        assert_alike(search(memory), expected)


def step32(lm: Any) -> Any:
    """The language model's step in the precision of its weights."""

    def step(cache: Any, classes: Any) -> Any:
        if classes is None:
            classes = torch.full(cache.shape[:-1], lm.eos, device=cache.device)
        windows = OneMore(cache)
        return lm._logits(classes, windows).log_softmax(dim=-1), torch.cat(windows.kept, dim=-1)

    return step


@torch.no_grad()
def test_a_language_model_in_half_precision_changes_scores_little() -> None:
    decoder, memory = make(501, 256, 0.5)
    lm, fusion = make_lm(501, WIDE), FUSIONS[0]
    with torch.autocast(
        "cuda", dtype=torch.bfloat16
    ):  # as where corpora are decoded: it must not reach the model
        exact = search_on_gpu(decoder, memory, 4, 500, LONGEST, LanguageModel.of(lm, fusion))
        found = search_on_gpu(decoder, memory, 4, 500, LONGEST, LanguageModel.of(lm.half(), fusion))
    torch.testing.assert_close(found.scores[:, 0], exact.scores[:, 0], rtol=1e-3, atol=0.05)


@torch.no_grad()
def test_a_recorded_search_follows_the_weights() -> None:
    decoder, memory = make(37, 24, 0.5)
    search = GpuSearch(decoder, memory, 4, 36, LONGEST, Arena())
    search(memory)
    other, _ = make(37, 24, 1.0, seed=1)
    decoder.load_state_dict(other.state_dict())
    torch.testing.assert_close(search(memory).scores, search_on_gpu(other, memory, 4, 36, LONGEST).scores)
