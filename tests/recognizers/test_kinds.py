"""The three kinds of recognizer over both encoders: what each proposes, scores, learns and saves."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from priormatch.config import (
    AudioSettings,
    AugmentSettings,
    BatchSettings,
    ConformerSettings,
    ConvLMSettings,
    FusionSettings,
    ModelSettings,
    TrainingSettings,
)
from priormatch.data.augment import numbers_of
from priormatch.data.batches import Batch, UtteranceReader, once
from priormatch.data.corpus import Corpus
from priormatch.data.features import time_mask
from priormatch.data.tokenizer import Tokenizer, train_tokenizer
from priormatch.decoding.beam import Hypotheses, pad
from priormatch.device import find_device
from priormatch.errors import UserError
from priormatch.matching.lpm import BeamTargets, Proposal, Weighing
from priormatch.models.ctc import ctc_log_likelihood
from priormatch.recognizers.decode import decode, plain_search, search_with_prior
from priormatch.recognizers.heads import CtcHead, Frames, HybridHead
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.stopwatch import Stopwatch
from priormatch.training.supervised_step import Supervised

WATCH = Stopwatch(find_device("cpu"))
KINDS = [("attention", 0.0), ("ctc", 0.0), ("hybrid", 0.0), ("hybrid", 0.4)]
QUIET = TrainingSettings(label_smoothing=0.0, input_sampling=0.0, piece_sampling=0.0)
CONFORMER = ConformerSettings(width=16, layers=2, heads=2, kernel=5)

Make = Callable[..., SpeechRecognizer]


@pytest.fixture
def make(tiny_model_settings: ModelSettings, tiny_tokenizer: Tokenizer) -> Make:
    """Factory: a tiny recognizer of a kind in evaluation mode, always with the same weights."""

    def made(
        kind: str, weight: float = 0.0, encoder: str = "tds", tokenizer: Tokenizer = tiny_tokenizer
    ) -> SpeechRecognizer:
        torch.manual_seed(7)
        chosen = dict[str, Any](kind=kind, ctc_weight=weight, encoder=encoder, conformer=CONFORMER)
        return SpeechRecognizer(replace(tiny_model_settings, **chosen), tokenizer).eval()

    return made


@pytest.fixture
def batch(tiny_corpus: Callable[..., Path], tiny_tokenizer: Tokenizer) -> Batch:
    corpus = Corpus.load(tiny_corpus(4), AudioSettings(workers=0))
    return next(once(UtteranceReader(corpus, tiny_tokenizer), 60.0))


def spoken(batch: Batch, model: SpeechRecognizer) -> Hypotheses:
    return Hypotheses(batch.labels[:, None], batch.label_lengths[:, None], model.tokenizer)


@pytest.mark.parametrize("encoder", ["tds", "conformer"])
@pytest.mark.parametrize(("kind", "weight"), KINDS)
@torch.no_grad()
def test_proposals_have_distinct_texts_and_their_own_log_q(
    make: Make, batch: Batch, kind: str, weight: float, encoder: str
) -> None:
    model = make(kind, weight, encoder)
    beam = model.propose(batch, 4)
    assert beam.classes.shape[:2] == (4, 4)
    found = Hypotheses(beam.classes, beam.lengths, model.tokenizer)
    log_q = model.log_prob(batch, found)
    there = (beam.lengths > 0) & beam.ended[:, None]
    torch.testing.assert_close(beam.scores[there], log_q[there], atol=1e-3, rtol=1e-4)
    assert torch.all(beam.scores[:, :-1] >= beam.scores[:, 1:])
    if kind == "ctc" or weight > 0:
        for row, lengths in zip(beam.classes.tolist(), beam.lengths.tolist(), strict=True):
            sequences = [tuple(each[:n]) for each, n in zip(row, lengths, strict=True) if n]
            assert len(set(sequences)) == len(sequences)


@pytest.mark.parametrize("encoder", ["tds", "conformer"])
@pytest.mark.parametrize(("kind", "weight"), KINDS)
@torch.no_grad()
def test_padding_and_neighbors_change_nothing(
    make: Make, batch: Batch, kind: str, weight: float, encoder: str
) -> None:
    model = make(kind, weight, encoder)
    together, log_q = model.propose(batch, 3), model.log_prob(batch, spoken(batch, model))
    for row, samples in enumerate(batch.samples.tolist()):
        alone = Batch.of_audio(batch.waveforms[row : row + 1, :samples], batch.samples[row : row + 1])
        beam = model.propose(alone, 3)
        width = min(beam.classes.shape[2], together.classes.shape[2])
        assert torch.equal(together.lengths[row], beam.lengths[0])
        assert torch.equal(together.classes[row, :, :width], beam.classes[0, :, :width])
        labels = batch.labels[row : row + 1, None], batch.label_lengths[row : row + 1, None]
        own = model.log_prob(alone, Hypotheses(*labels, model.tokenizer))
        torch.testing.assert_close(own[0], log_q[row], atol=1e-3, rtol=1e-4)


def test_log_q_of_ctc_is_the_sum_over_all_alignments(make: Make, batch: Batch) -> None:
    model = make("ctc", encoder="conformer")
    head = model.head
    assert isinstance(head, CtcHead)
    given, frames = spoken(batch, model), model.frames(batch)
    log_q = head.output(frames.values).log_softmax(dim=-1)
    expected = ctc_log_likelihood(log_q, frames.lengths, given.labels, given.lengths, head.blank)
    torch.testing.assert_close(model.log_prob(batch, given), expected)
    losses = model.losses(batch, given, QUIET)
    fits = expected.isfinite()
    torch.testing.assert_close(losses[fits], -expected[fits], atol=1e-4, rtol=1e-5)
    assert torch.all(losses[~fits] == 0)


@torch.no_grad()
def test_divergence_is_the_mean_of_both_kls_over_the_frames_of_an_utterance() -> None:
    head = CtcHead(torch.nn.Identity(), blank=1)
    a, b = [[0.5, 0.5], [0.9, 0.1], [0.7, 0.3]], [[0.5, 0.5], [0.6, 0.4], [0.2, 0.8]]
    frames = Frames(torch.tensor([a, b]).log(), torch.tensor([2, 2]))  # the third frame is padding
    kl_ab = 0.9 * math.log(0.9 / 0.6) + 0.1 * math.log(0.1 / 0.4)
    kl_ba = 0.6 * math.log(0.6 / 0.9) + 0.4 * math.log(0.4 / 0.1)
    torch.testing.assert_close(head.divergence(frames), torch.tensor([(kl_ab + kl_ba) / 2]))


@pytest.mark.parametrize("encoder", ["tds", "conformer"])
@pytest.mark.parametrize(("kind", "weight"), KINDS[1:])
def test_consistency_of_equal_views_changes_nothing(
    make: Make, batch: Batch, kind: str, weight: float, encoder: str
) -> None:
    """Without augmentation and dropout both views are the same utterance."""
    model, given = make(kind, weight, encoder), spoken(batch, make(kind))
    gradients = []
    for settings in (QUIET, replace(QUIET, consistency=0.5)):
        model.zero_grad()
        losses = model.losses(batch, given, replace(settings, ctc_weight=0.3 if kind == "hybrid" else 0.0))
        losses.sum().backward()
        each = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
        gradients.append((losses.detach(), torch.cat(each)))
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-3, rtol=1e-3)


def test_views_are_augmented_by_themselves_and_taught_by_each_other(make: Make, batch: Batch) -> None:
    model, given = make("ctc", encoder="conformer"), spoken(batch, make("ctc"))
    masks = replace(QUIET, augment=AugmentSettings(frequency_masks=2, frequency_width=8))
    batch = replace(batch, noise=torch.rand(len(batch), 2 * numbers_of(masks.augment)))
    losses = [
        model.losses(batch, given, replace(masks, consistency=weight)).detach() for weight in (1e-9, 1.0, 2.0)
    ]
    assert torch.all(losses[1] > losses[0])  # the views differ
    torch.testing.assert_close(losses[2] - losses[1], losses[1] - losses[0], atol=1e-3, rtol=1e-3)


@torch.no_grad()
def test_log_q_of_a_hybrid_is_the_weighted_sum_of_both(make: Make, batch: Batch) -> None:
    model = make("hybrid", 0.4)
    head, given, frames = model.head, spoken(batch, model), model.frames(batch)
    assert isinstance(head, HybridHead)
    parts = [each.log_q(frames, given.labels, given.lengths) for each in (head.attention, head.ctc)]
    torch.testing.assert_close(model.log_prob(batch, given), 0.6 * parts[0] + 0.4 * parts[1])
    losses = [
        each.losses(frames, given.labels, given.lengths, QUIET, False) for each in (head.attention, head.ctc)
    ]
    both = model.losses(batch, given, replace(QUIET, ctc_weight=0.3))
    torch.testing.assert_close(both, losses[0] + 0.3 * losses[1])


@torch.no_grad()
def test_a_hybrid_with_weight_zero_is_the_attention_model_to_the_bit(
    make: Make, batch: Batch, tiny_prior: ConvPrior
) -> None:
    hybrid, attention = make("hybrid", 0.0), make("attention")
    attention.load_state_dict({k: v for k, v in hybrid.state_dict().items() if not k.startswith("ctc.")})
    given, fusion = spoken(batch, hybrid), FusionSettings(beam_size=3, lm_weight=0.5)
    for found, wanted in (
        (hybrid.propose(batch, 3), attention.propose(batch, 3)),
        (
            hybrid.fused(tiny_prior, fusion).propose(batch, 2),
            attention.fused(tiny_prior, fusion).propose(batch, 2),
        ),
    ):
        assert torch.equal(found.classes, wanted.classes)
        assert torch.equal(found.scores, wanted.scores)
    assert torch.equal(hybrid.log_prob(batch, given), attention.log_prob(batch, given))
    assert torch.equal(hybrid.losses(batch, given, QUIET), attention.losses(batch, given, QUIET))


@pytest.mark.parametrize("encoder", ["tds", "conformer"])
@pytest.mark.parametrize(("kind", "weight"), KINDS)
def test_a_folder_gives_it_back(
    make: Make, batch: Batch, tmp_path: Path, kind: str, weight: float, encoder: str
) -> None:
    model = make(kind, weight, encoder)
    model.save(tmp_path)
    back = SpeechRecognizer.load(tmp_path)
    assert back.settings == model.settings
    assert torch.equal(back.propose(batch, 2).classes, model.propose(batch, 2).classes)
    copied = model.copy()
    assert torch.equal(copied.propose(batch, 2).scores, model.propose(batch, 2).scores)
    for mine, its in zip(model.parameters(), copied.parameters(), strict=True):
        assert mine.data_ptr() != its.data_ptr()


def test_folders_of_older_versions_have_a_kind(make: Make, tmp_path: Path) -> None:
    for kind, flag in (("hybrid", "true"), ("attention", "false")):
        folder = tmp_path / kind
        model = make(kind)
        model.save(folder)
        text = (folder / "model.yaml").read_text()
        old = text.replace(f"kind: {kind}\n", f"ctc: {flag}\n", 2)
        for line in ("  ctc_weight: 0.0\n", "  encoder: tds\n"):
            old = old.replace(line, "")
        old = old.partition("  conformer:")[0]
        (folder / "model.yaml").write_text(old)
        (folder / "model.safetensors").unlink()
        from safetensors.torch import save_file

        save_file(model.state_dict(), folder / "model.safetensors")
        assert "ctc: " + flag in old
        assert SpeechRecognizer.load(folder).settings.kind == kind


@pytest.mark.parametrize("encoder", ["tds", "conformer"])
@pytest.mark.parametrize(("kind", "weight"), KINDS)
def test_it_learns_a_batch(
    make: Make, tiny_corpus: Callable[..., Path], kind: str, weight: float, encoder: str
) -> None:
    corpus = Corpus.load(tiny_corpus(4), AudioSettings(workers=0))
    model = make(kind, weight, encoder).train()
    settings = replace(QUIET, ctc_weight=0.5 if kind == "hybrid" else 0.0, window_updates=0)
    task = Supervised(model, corpus, {}, settings, BatchSettings(utterances=4))
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    history = []
    for update in range(25):
        optimizer.zero_grad()
        loss, _ = task.backward(update, WATCH)
        optimizer.step()
        history.append(float(loss))
    assert history[-1] < 0.7 * history[0]
    unused = [name for name, each in model.named_parameters() if each.grad is None]
    assert unused == []


@pytest.mark.parametrize(("kind", "weight"), KINDS)
def test_decoding_with_the_prior_shifts_hypotheses_toward_it(
    make: Make, tiny_corpus: Callable[..., Path], tiny_prior: ConvPrior, kind: str, weight: float
) -> None:
    corpus, model = Corpus.load(tiny_corpus(3), AudioSettings(workers=0)), make(kind, weight)

    def log_p(lm_weight: float) -> float:
        fusion = FusionSettings(beam_size=6, lm_weight=lm_weight, token_bonus=0.0)
        found = [
            each for batch in decode(model, corpus, search_with_prior(tiny_prior, fusion)) for each in batch
        ]
        return float(tiny_prior.score_texts([each.hypothesis for each in found]).sum())

    assert log_p(5.0) > log_p(0.0)


def test_a_prior_with_another_tokenizer_rescores_by_both_scores(
    make: Make, batch: Batch, tiny_prior_settings: ConvLMSettings, other_tokenizer: Tokenizer
) -> None:
    model, prior = make("ctc"), ConvPrior(tiny_prior_settings, other_tokenizer).eval()
    fusion = FusionSettings(beam_size=6, lm_weight=0.7, token_bonus=0.3)
    beam = model.fused(prior, fusion).propose(batch, 6)
    found = Hypotheses(beam.classes, beam.lengths, model.tokenizer)
    log_q = model.log_prob(batch, found)
    expected = log_q + 0.7 * prior.score(found) + 0.3 * (beam.lengths - 1)
    there = beam.lengths > 0
    torch.testing.assert_close(beam.scores[there], expected[there], atol=1e-3, rtol=1e-4)


def test_a_prior_with_another_tokenizer_can_be_centered(
    make: Make, batch: Batch, tiny_prior_settings: ConvLMSettings, other_tokenizer: Tokenizer
) -> None:
    model, prior = make("ctc"), ConvPrior(tiny_prior_settings, other_tokenizer).eval()
    fusion = FusionSettings(beam_size=6, lm_weight=0.7, token_bonus=0.0, centered=True)
    beam = model.fused(prior, fusion).propose(batch, 6)
    found = Hypotheses(beam.classes, beam.lengths, model.tokenizer)
    labels, lengths = pad(
        [[*other_tokenizer.encode(text), prior.lm.eos] for row in found.texts for text in row]
    )
    log_p = prior.lm(labels).log_softmax(dim=-1)
    expected = (log_p.exp() * log_p).sum(dim=-1).masked_fill(~time_mask(lengths, labels.shape[1]), 0.0)
    centered = prior.token_log_probabilities(labels, lengths).sum(dim=-1) - expected.sum(dim=-1)
    there = beam.lengths > 0
    scores = model.log_prob(batch, found) + 0.7 * centered.view_as(beam.lengths)
    torch.testing.assert_close(beam.scores[there], scores[there], atol=1e-3, rtol=1e-4)
    assert centered.abs().mean() < 0.5 * prior.score(found).abs().mean()


def test_a_prior_that_cannot_be_centered_is_refused(make: Make, batch: Batch) -> None:
    class Longest:
        def score(self, hypotheses: Hypotheses, context: Sequence[str] | None = None) -> torch.Tensor:
            return hypotheses.lengths.float()

    model = make("ctc")
    assert model.fused(Longest(), FusionSettings()).propose(batch, 2).scores.shape == (4, 2)
    with pytest.raises(UserError, match=r"a Longest has none.*set fusion.centered=false"):
        model.fused(Longest(), FusionSettings(centered=True)).propose(batch, 2)


def test_a_character_recognizer_is_matched_with_a_prior_of_word_pieces(
    make: Make, batch: Batch, tiny_sentences: list[str], tiny_prior: ConvPrior
) -> None:
    letters = train_tokenizer(tiny_sentences, 0, kind="characters")
    model = make("ctc", encoder="conformer", tokenizer=letters)
    assert model.tokenizer != tiny_prior.tokenizer
    targets, figures = BeamTargets(Proposal(model, 0.0), tiny_prior, 3, Weighing())(batch, WATCH)
    texts = Hypotheses(targets.labels, targets.lengths, letters).texts
    for row, weights in zip(texts, targets.weights, strict=True):
        kept = [(text, weight) for text, weight in zip(row, weights.tolist(), strict=True) if weight > 0]
        expected = tiny_prior.score_texts([text for text, _ in kept]).softmax(dim=0)
        assert [weight for _, weight in kept] == pytest.approx(expected.tolist(), abs=1e-4)
    assert figures["survivors"] > 0


def test_greedy_search_of_ctc_takes_the_best_path(make: Make, batch: Batch) -> None:
    model = make("ctc")
    head = model.head
    assert isinstance(head, CtcHead)
    (row, *_), frames = model.propose(batch, 1).classes, model.frames(batch)
    path = head.log_probabilities(frames)[0, : frames.lengths[0]].argmax(dim=1)
    text = [each for each in path.unique_consecutive().tolist() if each != head.blank]
    assert [each for each in row[0].tolist() if each != head.blank] == text


def test_transcripts_of_a_corpus(make: Make, tiny_corpus: Callable[..., Path]) -> None:
    corpus, model = Corpus.load(tiny_corpus(3), AudioSettings(workers=0)), make("ctc", encoder="conformer")
    found = [each for batch in decode(model, corpus, plain_search(2)) for each in batch]
    assert {each.id for each in found} == {cut.id for cut in corpus.cuts}
    assert all(each.ended for each in found)
