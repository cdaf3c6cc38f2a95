"""Recorded steps with kernels, against the same steps out of plain layers: they need a GPU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from priormatch.config import AudioSettings, BatchSettings, FusionSettings, MatchingSettings, TrainingSettings
from priormatch.data.batches import Corpus
from priormatch.device import has_kernels, plainly
from priormatch.matching.lpm import BeamTargets, Proposal, Weighing
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.stopwatch import Stopwatch
from priormatch.training.matching_step import Matching
from priormatch.training.supervised_step import Supervised

if not torch.cuda.is_available() or not has_kernels(torch.device("cuda")):
    pytest.skip("needs a GPU", allow_module_level=True)

QUIET = TrainingSettings(label_smoothing=0.0, input_sampling=0.0, piece_sampling=0.0, window_updates=0)
DEVICE = torch.device("cuda")


@pytest.fixture
def model(tiny_recognizer: SpeechRecognizer) -> Any:
    with torch.no_grad():
        tiny_recognizer.decoder.output.bias[tiny_recognizer.tokenizer.eos] += 1.5
    for each in tiny_recognizer.modules():
        if isinstance(each, torch.nn.Dropout):
            each.p = 0.0
    return tiny_recognizer.to(DEVICE).train()


@pytest.fixture
def speech(tiny_corpus: Callable[..., Path]) -> Any:
    """Batches of three and two utterances, so of two shapes."""
    return Corpus.load(tiny_corpus(5), AudioSettings(workers=0))


def supervised(model: Any, speech: Any, prior: Any) -> Any:
    return Supervised(model, speech, {}, QUIET, BatchSettings(utterances=3))


def matching(model: Any, speech: Any, prior: Any) -> Any:
    proposal = Proposal(model, 0.0)
    targets = BeamTargets(proposal, prior.to(DEVICE), 3, Weighing())
    settings = MatchingSettings(batch=BatchSettings(utterances=3), mixing=[1, 1], combine="sum")
    return Matching(
        model, speech, speech, {}, targets=targets, proposal=proposal, training=QUIET, matching=settings
    )


@pytest.mark.parametrize("make", [supervised, matching])
def test_losses_and_gradients_are_those_of_the_plain_layers(
    make: Any, model: Any, speech: Any, tiny_prior: ConvPrior
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
    model: Any, speech: Any, tiny_prior: ConvPrior
) -> None:
    task = matching(model, speech, tiny_prior)
    propose = task.targets.propose
    for _ in range(4):
        batch = task.unpaired.take().to(DEVICE)
        with torch.no_grad():
            found = propose(batch.waveforms, batch.samples)
            with plainly():
                expected = propose(batch.waveforms, batch.samples)
        torch.testing.assert_close(found.scores[:, 0], expected.scores[:, 0], rtol=5e-2, atol=0.3)
    assert len(propose.searches) >= 1


def test_proposals_with_the_prior_are_those_of_the_plain_search(
    model: Any, speech: Any, tiny_prior: ConvPrior
) -> None:
    proposal, prior = Proposal(model, 0.0), tiny_prior.to(DEVICE)
    fusion = FusionSettings(beam_size=4, lm_weight=0.5, attention_jump=20.0)
    propose = BeamTargets(proposal, prior, 3, Weighing(fusion=fusion)).propose
    stream = matching(model, speech, tiny_prior).unpaired
    for _ in range(4):  # each shape twice: when its steps are recorded, and from the recording
        batch = stream.take().to(DEVICE)
        with torch.no_grad():
            found = propose(batch.waveforms, batch.samples)
            with plainly():
                expected = propose(batch.waveforms, batch.samples)
        assert found.classes.shape[1] == 3
        torch.testing.assert_close(found.scores[:, 0], expected.scores[:, 0], rtol=5e-2, atol=0.3)
        with torch.no_grad():  # a proposal that has been refreshed is what is searched with
            for each in proposal.model.parameters():
                each.add_(0.01)
    assert len(propose.searches) >= 1
