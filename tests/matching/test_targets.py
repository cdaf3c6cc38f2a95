"""From an unlabeled batch to weighted label sequences."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from narrowing import of_type, present

from priormatch.config import AudioSettings, FusionSettings
from priormatch.data.batches import Batch, UtteranceReader, once
from priormatch.data.corpus import Corpus
from priormatch.data.tokenizer import Tokenizer
from priormatch.decoding.beam import Beam
from priormatch.matching.diagnostics import diagnostics
from priormatch.matching.lpm import (
    BeamTargets,
    LengthFilter,
    Proposal,
    Weighing,
    given_labels,
    keep_all,
    lpm_loss,
    weigh,
)
from priormatch.models.objective import sequence_loss
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.stopwatch import Stopwatch

WATCH = Stopwatch(torch.device("cpu"))


WIDE = LengthFilter(0.0, 100.0)


@pytest.fixture
def batch(tiny_corpus: Callable[..., Path], tiny_tokenizer: Tokenizer) -> Batch:
    texts = ["monday at nine", "ten", "doctor with doctor"]
    corpus = Corpus.load(tiny_corpus(texts, transcribed=False), AudioSettings())
    return next(once(UtteranceReader(corpus, tiny_tokenizer), 60.0))


@pytest.fixture
def proposal(tiny_recognizer: SpeechRecognizer) -> Proposal:
    """A proposal that ends its hypotheses now and then."""
    with torch.no_grad():
        present(tiny_recognizer.decoder).output.bias[tiny_recognizer.tokenizer.eos] += 1.5
    return Proposal(tiny_recognizer, 50.0)


def lengths_of(batch: Batch, pieces: int) -> dict[str, int]:
    return dict.fromkeys(batch.ids, pieces)


def test_weights_are_the_local_prior_of_the_beam(
    batch: Batch, proposal: Proposal, tiny_prior: ConvPrior
) -> None:
    targets, _ = BeamTargets(proposal, tiny_prior, 4, Weighing(WIDE, lengths_of(batch, 3)))(batch, WATCH)
    beam = proposal.model.propose(batch, 4)
    assert torch.equal(targets.labels, beam.classes)
    expected = weigh(tiny_prior.score_classes(beam.classes, beam.lengths), beam.lengths >= 2)
    torch.testing.assert_close(targets.weights, expected)
    assert torch.all(targets.weights[beam.lengths < 2] == 0), "an empty hypothesis is never a target"
    survives = (beam.lengths >= 2).any(dim=-1)
    assert survives.any()
    assert targets.weights.sum(dim=-1).tolist() == pytest.approx(survives.float().tolist())
    assert not targets.weights.requires_grad


def test_the_prior_judges_after_what_came_before(
    batch: Batch, proposal: Proposal, tiny_prior: ConvPrior
) -> None:
    texts = {"another": "ten", batch.ids[2]: "doctor"}
    padded = replace(  # one row more than there are utterances
        batch,
        waveforms=torch.cat([batch.waveforms, batch.waveforms[:1]]),
        samples=torch.cat([batch.samples, batch.samples[:1]]),
    )
    of = BeamTargets(proposal, tiny_prior, 4, Weighing(contexts=texts))
    targets, _ = of(padded, WATCH)
    beam = proposal.model.propose(batch, 4)
    context = tiny_prior.contexts([texts.get(each, "") for each in batch.ids])
    expected = weigh(
        tiny_prior.score_classes(beam.classes, beam.lengths, context), keep_all(beam.lengths, context)
    )
    torch.testing.assert_close(targets.weights[:3], expected)
    alone, _ = BeamTargets(proposal, tiny_prior, 4, Weighing())(batch, WATCH)
    changed = (targets.weights[:3] - alone.weights).abs().amax(dim=-1) > 1e-4
    assert changed.tolist() == [False, False, True]


def test_the_reference_counts_one_more_for_the_end(
    batch: Batch, proposal: Proposal, tiny_prior: ConvPrior
) -> None:
    seen: list[list[int]] = []

    def keep(lengths: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
        seen.append(reference.tolist())
        return lengths > 0

    known = {batch.ids[0]: 4, batch.ids[2]: 0}
    BeamTargets(proposal, tiny_prior, 2, Weighing(keep, known))(batch, WATCH)
    assert seen == [[5, 0, 0]]


def test_an_utterance_without_a_reference_length_teaches_nothing(
    batch: Batch, proposal: Proposal, tiny_prior: ConvPrior
) -> None:
    of = BeamTargets(proposal, tiny_prior, 3, Weighing(WIDE, {batch.ids[1]: 2}))
    targets, figures = of(batch, WATCH)
    assert targets.weights.sum(dim=-1).tolist() == pytest.approx([0.0, 1.0, 0.0])
    assert float(figures["share_without_survivor"]) == pytest.approx(2 / 3)
    of.weighing = replace(of.weighing, keep=keep_all)
    everything, _ = of(batch, WATCH)
    assert everything.weights.sum(dim=-1).tolist() == pytest.approx([1.0, 1.0, 1.0])


def test_nothing_kept_gives_a_loss_and_a_gradient_of_zero(
    batch: Batch, proposal: Proposal, tiny_prior: ConvPrior, tiny_recognizer: SpeechRecognizer
) -> None:
    targets, figures = BeamTargets(proposal, tiny_prior, 3, Weighing(LengthFilter(), lengths_of(batch, 500)))(
        batch, WATCH
    )
    assert torch.all(targets.weights == 0)
    assert figures["survivors"] == 0.0
    assert figures["share_without_survivor"] == 1.0
    assert math.isnan(figures["length_ratio"])
    frames = tiny_recognizer.frames(batch)
    losses = sequence_loss(
        present(tiny_recognizer.decoder)(tiny_recognizer.attention_head.memory(frames), targets.labels),
        targets.labels,
        targets.lengths,
        0.1,
    )
    loss = lpm_loss(losses, targets.weights).sum()
    loss.backward()
    assert loss.item() == 0.0
    grads = [each.grad for each in tiny_recognizer.parameters() if each.grad is not None]
    assert grads
    assert all(torch.all(grad == 0) for grad in grads)


def test_matching_raises_the_weighted_likelihood(
    batch: Batch, proposal: Proposal, tiny_prior: ConvPrior, tiny_recognizer: SpeechRecognizer
) -> None:
    targets, _ = BeamTargets(proposal, tiny_prior, 4, Weighing(WIDE, lengths_of(batch, 3)))(batch, WATCH)
    optimizer = torch.optim.Adam(tiny_recognizer.parameters(), 1e-2)
    history = []
    for _ in range(15):
        frames = tiny_recognizer.frames(batch)
        losses = sequence_loss(
            present(tiny_recognizer.decoder)(tiny_recognizer.attention_head.memory(frames), targets.labels),
            targets.labels,
            targets.lengths,
        )
        loss = lpm_loss(losses, targets.weights).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    assert history[-1] < 0.8 * history[0]


def parrot(beam: Beam, tokenizer: Tokenizer) -> Proposal:
    """A stand-in for a proposal whose beam is known."""
    model = SimpleNamespace(tokenizer=tokenizer, propose=lambda batch, k: beam)
    return cast(Proposal, SimpleNamespace(model=model))


def spelled_twice(tokenizer: Tokenizer) -> Beam:
    """Three hypotheses: "ten" as one piece, "at", and "ten" in letters."""
    spellings = tokenizer.spellings("ten")
    sequences = [[*spellings[0], tokenizer.eos], [*tokenizer.encode("at"), tokenizer.eos]]
    sequences.append([*spellings[1], tokenizer.eos])
    lengths = torch.tensor([[len(each) for each in sequences]])
    width = int(lengths.max())
    rows = [[*each, *[tokenizer.eos] * (width - len(each))] for each in sequences]
    return Beam(torch.tensor([rows]), lengths, torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([True]))


def first_of(batch: Batch) -> Batch:
    return replace(batch, ids=batch.ids[:1], waveforms=batch.waveforms[:1], samples=batch.samples[:1])


@pytest.mark.parametrize("merge", [False, True])
def test_spellings_of_one_text_are_merged_where_asked(
    batch: Batch, tiny_prior: ConvPrior, tiny_tokenizer: Tokenizer, merge: bool
) -> None:
    beam = spelled_twice(tiny_tokenizer)
    one = first_of(batch)
    of = BeamTargets(parrot(beam, tiny_tokenizer), tiny_prior, 3, Weighing(WIDE, {batch.ids[0]: 3}, merge))
    targets, figures = of(one, WATCH)
    assert (targets.weights[0] > 0).tolist() == [True, True, not merge]
    assert figures["survivors"] == (2.0 if merge else 3.0)


def test_a_spelling_that_the_filter_drops_does_not_take_the_others_along(
    batch: Batch, tiny_prior: ConvPrior, tiny_tokenizer: Tokenizer
) -> None:
    beam = spelled_twice(tiny_tokenizer)
    pieces = int(beam.lengths[0, 2]) - 1
    assert pieces > 2, "the spelling in letters fits this reference, the short one does not"
    one = first_of(batch)
    of = BeamTargets(
        parrot(beam, tiny_tokenizer), tiny_prior, 3, Weighing(LengthFilter(), {batch.ids[0]: pieces}, True)
    )
    targets, _ = of(one, WATCH)
    assert targets.weights[0].tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("exponents", [(1.0, 0.0), (0.0, 0.0), (0.0, 1.0), (0.5, 2.0)])
def test_weights_are_powers_of_prior_and_proposal(
    batch: Batch, proposal: Proposal, tiny_prior: ConvPrior, exponents: tuple[float, float]
) -> None:
    prior = tiny_prior if exponents[0] else None
    of = BeamTargets(proposal, prior, 4, Weighing(WIDE, lengths_of(batch, 3), exponents=exponents))
    targets, _ = of(batch, WATCH)
    beam = proposal.model.propose(batch, 4)
    for row, kept in enumerate((beam.lengths >= 2).tolist()):
        weights = [
            math.exp(exponents[0] * prior_score + exponents[1] * score) if keep else 0.0
            for prior_score, score, keep in zip(
                tiny_prior.score_classes(beam.classes, beam.lengths)[row].tolist(),
                beam.scores[row].tolist(),
                kept,
                strict=True,
            )
        ]
        expected = [each / max(sum(weights), 1e-300) for each in weights]
        assert targets.weights[row].tolist() == pytest.approx(expected, abs=1e-5)


def test_pseudo_labels_teach_the_batchs_own_text(
    tiny_corpus: Callable[..., Path], tiny_tokenizer: Tokenizer
) -> None:
    corpus = Corpus.load(tiny_corpus(["monday at nine", "ten"]), AudioSettings())
    corpus.cuts[1].supervisions[0].text = None
    batch = next(once(UtteranceReader(corpus, tiny_tokenizer), 60.0))
    targets, figures = given_labels(batch, WATCH)
    assert figures == {}
    assert targets.labels.shape == (2, 1, 4)
    assert targets.labels[0, 0].tolist() == [*tiny_tokenizer.encode("monday at nine"), tiny_tokenizer.eos]
    assert targets.lengths.tolist() == [[4], [1]]
    assert targets.weights.tolist() == [[1.0], [0.0]]


def test_diagnostics_by_hand() -> None:
    weights = torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    keep = torch.tensor([[True, True, False], [False, True, False], [False, False, False]])
    lengths = torch.tensor([[9, 11, 4], [7, 12, 5], [3, 3, 3]])
    found = diagnostics(weights, keep, lengths, torch.tensor([10, 8, 9]))
    assert {name: float(value) for name, value in found.items()} == {
        "local_prior_entropy": pytest.approx(math.log(2) / 2),
        "survivors": pytest.approx(1.0),
        "share_without_survivor": pytest.approx(1 / 3),
        "length_ratio": pytest.approx((9 / 10 + 12 / 8) / 2),
    }


def test_hypotheses_of_a_search_with_the_prior_are_its_best(
    batch: Batch, proposal: Proposal, tiny_prior: ConvPrior
) -> None:
    fusion = FusionSettings(beam_size=5, lm_weight=0.6, token_bonus=0.4)
    of = BeamTargets(proposal, tiny_prior, 2, Weighing(WIDE, lengths_of(batch, 3), fusion=fusion))
    targets, _ = of(batch, WATCH)
    model = of_type(SpeechRecognizer, proposal.model)
    frames = model.frames(batch)
    beam = model.search_with(tiny_prior.lm, frames, fusion)
    assert torch.equal(targets.labels, beam.classes[:, :2, : targets.labels.shape[-1]])
    assert torch.equal(targets.lengths, beam.lengths[:, :2].clamp(min=1))
    log_prior = tiny_prior.score_classes(beam.classes[:, :2], beam.lengths[:, :2])
    torch.testing.assert_close(targets.weights, weigh(log_prior, beam.lengths[:, :2] >= 2))
    alone, _ = BeamTargets(proposal, tiny_prior, 2, Weighing())(batch, WATCH)
    assert alone.labels.shape != targets.labels.shape or not torch.equal(alone.labels, targets.labels)


def test_a_search_with_the_prior_is_as_wide_as_there_are_hypotheses(
    batch: Batch, proposal: Proposal, tiny_prior: ConvPrior
) -> None:
    narrow = BeamTargets(proposal, tiny_prior, 4, Weighing(fusion=FusionSettings(beam_size=1)))
    wide = BeamTargets(proposal, tiny_prior, 4, Weighing(fusion=FusionSettings(beam_size=4)))
    found, expected = narrow(batch, WATCH)[0], wide(batch, WATCH)[0]
    assert found.labels.shape[1] == 4
    assert torch.equal(found.labels, expected.labels)


def test_what_weights_ask_of_the_proposal_is_the_score_of_its_search(
    batch: Batch, proposal: Proposal, tiny_prior: ConvPrior
) -> None:
    fusion = FusionSettings(beam_size=3, lm_weight=0.6)
    of = BeamTargets(
        proposal, tiny_prior, 3, Weighing(WIDE, lengths_of(batch, 3), exponents=(0.0, 1.0), fusion=fusion)
    )
    model = of_type(SpeechRecognizer, proposal.model)
    frames = model.frames(batch)
    beam = model.search_with(tiny_prior.lm, frames, fusion)
    torch.testing.assert_close(of(batch, WATCH)[0].weights, weigh(beam.scores, beam.lengths >= 2))
