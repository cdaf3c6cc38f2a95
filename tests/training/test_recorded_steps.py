"""Recorded steps with kernels, against the same steps out of plain layers: they need a GPU."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from narrowing import of_type

from priormatch.config import (
    AudioSettings,
    BatchSettings,
    ConformerSettings,
    ConvLMSettings,
    FusionSettings,
    MatchingSettings,
    ModelSettings,
    PriorSettings,
    TrainingSettings,
)
from priormatch.data.corpus import Corpus
from priormatch.data.sentences import Sentences
from priormatch.data.tokenizer import Tokenizer
from priormatch.device import has_kernels, plainly
from priormatch.matching.lpm import BeamTargets, Proposal, Weighing
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.stopwatch import Stopwatch
from priormatch.training.matching_step import Matching
from priormatch.training.prior_step import PriorTraining
from priormatch.training.supervised_step import Supervised

if not torch.cuda.is_available() or not has_kernels(torch.device("cuda")):
    pytest.skip("needs a GPU", allow_module_level=True)

QUIET = TrainingSettings(label_smoothing=0.0, input_sampling=0.0, piece_sampling=0.0, window_updates=0)
DEVICE = torch.device("cuda")


@pytest.fixture(
    params=[("attention", "tds"), ("hybrid", "tds"), ("ctc", "tds"), ("ctc", "conformer")], ids="-".join
)
def model(
    request: pytest.FixtureRequest, tiny_model_settings: ModelSettings, tiny_tokenizer: Tokenizer
) -> SpeechRecognizer:
    """A recognizer of every kind, without dropout, whose hypotheses end soon."""
    kind, encoder = request.param
    sizes = ConformerSettings(width=16, layers=2, heads=2, kernel=5)
    settings = replace(tiny_model_settings, kind=kind, encoder=encoder, conformer=sizes, dropout=0.0)
    made = SpeechRecognizer(settings, tiny_tokenizer)
    if made.decoder is not None:
        with torch.no_grad():
            made.decoder.output.bias[tiny_tokenizer.eos] += 1.5
    return made.to(DEVICE).train()


@pytest.fixture
def speech(tiny_corpus: Callable[..., Path]) -> Corpus:
    """Batches of three and two utterances, so of two shapes."""
    return Corpus.load(tiny_corpus(5), AudioSettings(workers=0))


def training_of(model: SpeechRecognizer) -> TrainingSettings:
    hybrid, twice = model.settings.kind == "hybrid", model.settings.kind == "ctc"
    return replace(QUIET, ctc_weight=0.3 * hybrid, consistency=0.2 * twice)


def supervised(model: SpeechRecognizer, speech: Corpus, prior: ConvPrior) -> Supervised:
    return Supervised(model, speech, {}, training_of(model), BatchSettings(utterances=3))


def matching(model: SpeechRecognizer, speech: Corpus, prior: ConvPrior) -> Matching:
    proposal = Proposal(model, 0.0)
    targets = BeamTargets(proposal, prior.to(DEVICE), 3, Weighing())
    settings = MatchingSettings(batch=BatchSettings(utterances=3), mixing=[1, 1], combine="sum")
    return Matching(
        model,
        speech,
        speech,
        {},
        targets=targets,
        proposal=proposal,
        training=training_of(model),
        matching=settings,
    )


@pytest.mark.parametrize("make", [supervised, matching])
def test_losses_and_gradients_are_those_of_the_plain_layers(
    make: Any, model: SpeechRecognizer, speech: Corpus, tiny_prior: ConvPrior
) -> None:
    recorded, plain = make(model, speech, tiny_prior), make(model, speech, tiny_prior)
    for update in range(4):  # each shape twice: when it is recorded, and from the recording
        results = []
        for task in (recorded, plain):
            model.zero_grad(set_to_none=True)
            if task is plain:
                with plainly():
                    loss, _ = task.backward(update, Stopwatch(DEVICE))
            else:
                loss, _ = task.backward(update, Stopwatch(DEVICE))
            gradients = [each.grad.flatten() for each in model.parameters() if each.grad is not None]
            results.append((float(loss), torch.cat(gradients)))
        (found, slope), (expected, plain_slope) = results
        assert found == pytest.approx(expected, rel=2e-2)
        found_slopes = slope[slope != 0].norm(), plain_slope[plain_slope != 0].norm()
        assert float(found_slopes[0]) == pytest.approx(float(found_slopes[1]), rel=5e-2)


def test_proposals_of_changing_shapes_are_those_of_the_plain_search(
    model: SpeechRecognizer, speech: Corpus, tiny_prior: ConvPrior
) -> None:
    frozen = of_type(SpeechRecognizer, Proposal(model, 0.0).model)
    task, proposer = matching(model, speech, tiny_prior), frozen.recorded()
    for _ in range(4):  # each shape twice: when its steps are recorded, and from the recording
        batch = task.streams["unpaired"].take()[0].to(DEVICE)
        with torch.no_grad():
            found = proposer.propose(batch, 3)
            with plainly():
                expected = proposer.propose(batch, 3)
        torch.testing.assert_close(found.scores[:, 0], expected.scores[:, 0], rtol=5e-2, atol=0.3)


def test_proposals_with_the_prior_are_those_of_the_plain_search(
    model: SpeechRecognizer, speech: Corpus, tiny_prior: ConvPrior
) -> None:
    proposal, prior = Proposal(model, 0.0), tiny_prior.to(DEVICE)
    fusion = FusionSettings(beam_size=4, lm_weight=0.5, attention_jump=20.0)
    proposer = BeamTargets(proposal, prior, 3, Weighing(fusion=fusion)).proposer
    stream = matching(model, speech, tiny_prior).streams["unpaired"]
    for _ in range(4):
        batch = stream.take()[0].to(DEVICE)
        with torch.no_grad():
            found = proposer.propose(batch, 3)
            with plainly():
                expected = proposer.propose(batch, 3)
        assert found.classes.shape[1] == 3
        torch.testing.assert_close(found.scores[:, 0], expected.scores[:, 0], rtol=5e-2, atol=0.3)
        with torch.no_grad():  # a proposal that has been refreshed is what is searched with
            for each in proposal.model.parameters():
                each.add_(0.01)


def test_the_losses_of_the_prior_are_those_of_the_plain_layers(
    tiny_prior_settings: ConvLMSettings, tiny_tokenizer: Tokenizer, tiny_sentences: list[str]
) -> None:
    prior = ConvPrior(replace(tiny_prior_settings, dropout=0.0), tiny_tokenizer).to(DEVICE).train()
    text = Sentences.of(tiny_sentences[:40], tiny_tokenizer)
    recorded, plain = (PriorTraining(prior, text, text, PriorSettings(batch_tokens=60), 0) for _ in range(2))
    for update in range(12):
        prior.zero_grad(set_to_none=True)
        found, _ = recorded.backward(update, Stopwatch(DEVICE))
        value = float(found)
        prior.zero_grad(set_to_none=True)
        with plainly():
            expected, _ = plain.backward(update, Stopwatch(DEVICE))
        assert value == pytest.approx(float(expected), rel=2e-2)


def test_audio_stays_on_the_gpu_until_its_stream_is_closed(
    model: SpeechRecognizer, speech: Corpus, tiny_prior: ConvPrior
) -> None:
    alone, both = supervised(model, speech, tiny_prior), matching(model, speech, tiny_prior)
    for stream in (alone.stream, both.streams["paired"], both.streams["unpaired"]):
        assert stream.audio is not None
        assert stream.take()[0].waveforms.is_cuda
