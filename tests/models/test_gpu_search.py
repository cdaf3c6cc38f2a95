"""The GPU's search, against the plain one."""

import pytest
import torch

from priormatch.graphs import Arena
from priormatch.models.decoder import AttentionDecoder, DecoderSteps
from priormatch.search.beam import beam_search

pytest.importorskip("triton")
if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

from priormatch.models.gpu_search import GpuSearch, search_on_gpu

LONGEST = 20


def make(classes, size, end, seed=0):
    """A decoder whose hypotheses end now and then, and frames for it."""
    torch.manual_seed(seed)
    decoder = AttentionDecoder(classes, size).cuda().eval()
    with torch.no_grad():
        decoder.output.weight.mul_(2.0)
        decoder.output.bias[classes - 1] = end
    frames = torch.tensor([70, 1, 33, 32, 64], device="cuda")
    return decoder, decoder.memory(torch.randn(5, 70, 2 * size, device="cuda"), frames)


def plain_search(decoder, memory, beam_size, classes):
    state = decoder.first_state(len(memory.keys), beam_size)
    return beam_search(DecoderSteps(decoder, memory), state, classes - 1, LONGEST)


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("end", [-40.0, 0.5, 3.0])
@pytest.mark.parametrize("beam_size", [1, 4, 5, 8])
@pytest.mark.parametrize(("classes", "size"), [(37, 24), (5001, 512)])
@torch.no_grad()
def test_it_finds_what_the_plain_search_finds(classes, size, beam_size, end, recorded):
    decoder, memory = make(classes, size, end)
    expected = plain_search(decoder, memory, beam_size, classes)
    search = GpuSearch(decoder, memory, beam_size, classes - 1, LONGEST, Arena(), recorded)
    for _ in range(2):  # the second time from what the first has left behind
        found = search(memory)
        torch.testing.assert_close(found.scores, expected.scores, rtol=1e-4, atol=1e-4)
        assert torch.equal(found.ended, expected.ended)
        gaps = expected.scores.diff(dim=1).abs()
        clear = torch.ones_like(expected.scores, dtype=torch.bool)  # not in a tie with a neighbour
        clear[:, 1:] &= ~(gaps < 1e-4)
        clear[:, :-1] &= ~(gaps < 1e-4)
        assert torch.equal(found.lengths[clear], expected.lengths[clear])
        width = min(found.classes.shape[2], expected.classes.shape[2])
        assert torch.equal(found.classes[clear][:, :width], expected.classes[clear][:, :width])


@torch.no_grad()
def test_a_recorded_search_follows_the_weights():
    decoder, memory = make(37, 24, 0.5)
    search = GpuSearch(decoder, memory, 4, 36, LONGEST, Arena())
    search(memory)
    other, _ = make(37, 24, 1.0, seed=1)
    decoder.load_state_dict(other.state_dict())
    torch.testing.assert_close(search(memory).scores, search_on_gpu(other, memory, 4, 36, LONGEST).scores)
