"""Searches in steps that can be recorded, run here as they are; `training/test_recorded_steps.py` has them recorded."""

import pytest
import torch

from priormatch.config import AudioSettings, FusionSettings
from priormatch.data.batches import Corpus, UtteranceReader, once
from priormatch.matching.recorded import RecordedEncoder, RecordedSearch


@pytest.mark.parametrize(
    "bias", [0.0, 1.5, 6.0]
)  # hypotheses that never end, that end now and then, and at once
@pytest.mark.parametrize(
    "fusion",
    [
        FusionSettings(beam_size=3, lm_weight=0.6, token_bonus=0.4),
        FusionSettings(beam_size=4, eos_threshold=1.1, attention_jump=3.0, beam_threshold=4.0),
    ],
)
@torch.no_grad()
def test_steps_in_one_place_find_what_the_plain_search_finds(
    tiny_corpus, tiny_recognizer, tiny_prior, fusion, bias
):
    model = tiny_recognizer
    model.decoder.output.bias[model.tokenizer.eos] += bias
    encode, searches = RecordedEncoder(model), {}
    for texts in (["monday at nine", "ten"], ["doctor", "nine with doctor"], ["ten", "at nine"]):
        corpus = Corpus.load(tiny_corpus(texts, "-".join(texts[0].split())), AudioSettings())
        batch = next(once(UtteranceReader(corpus, model.tokenizer), 60.0))
        memory = encode(batch.waveforms, batch.samples)
        expected = model.search_with(tiny_prior.lm, memory, fusion)
        shape = tuple(memory.keys.shape)
        if shape not in searches:
            searches[shape] = RecordedSearch(model, tiny_prior.lm, memory, fusion, recorded=False)
        for _ in range(2):  # the second begins anew
            found = searches[shape]()
            for name in ("classes", "lengths", "scores", "ended"):
                assert torch.equal(getattr(found, name), getattr(expected, name)), name
