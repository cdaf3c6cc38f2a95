"""Training teaches: tones become words, sentences become likelier."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from narrowing import present

from priormatch.config import (
    AudioSettings,
    BatchSettings,
    ConvLMSettings,
    ModelSettings,
    OptimizerSettings,
    PriorSettings,
    TrainingSettings,
)
from priormatch.data.batches import Batch
from priormatch.data.corpus import Corpus, cut_text
from priormatch.data.recordings import audio_of
from priormatch.data.sentences import Sentences
from priormatch.data.tokenizer import Tokenizer
from priormatch.decoding.beam import Hypotheses
from priormatch.errors import UserError
from priormatch.models.ctc import ctc_losses
from priormatch.recognizers.decode import validation_errors
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.stopwatch import Stopwatch
from priormatch.training.loop import Schedule, fit
from priormatch.training.prior_step import PriorTraining
from priormatch.training.supervised_step import Supervised

WATCH = Stopwatch(torch.device("cpu"))


def test_a_tiny_recognizer_learns_its_utterances_by_heart(
    tiny_corpus: Callable[..., Path],
    tiny_tokenizer: Tokenizer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = ModelSettings(20, [4, 6], [1, 1], 5, 48, dropout=0.0, kind="hybrid", longest_output=30)
    training = TrainingSettings(
        batch=BatchSettings(utterances=8), window_updates=60, window_deviation=3.0, ctc_weight=0.5
    )
    corpus = Corpus.load(tiny_corpus(8), AudioSettings(workers=0))
    task = Supervised(
        SpeechRecognizer(settings, tiny_tokenizer), corpus, {"dev": corpus}, training, training.batch
    )
    optimizer = OptimizerSettings("adamw", 0.005, clip=5.0, warm_up=20)
    fit(task, Schedule(120, optimizer, 0, 40, report_every=40), tmp_path / "out", tmp_path)
    best = SpeechRecognizer.load(tmp_path / "out" / "model")
    assert validation_errors(best, {"dev": corpus})["dev"] == {"wer": 0.0, "cer": 0.0}
    middle = sorted(corpus.cuts, key=lambda cut: cut.duration)[4]
    shown = capsys.readouterr().err.partition(f"{audio_of(middle)}\n")[2].splitlines()
    assert shown[0] == f"  reference:  {cut_text(middle)}"
    assert shown[1].startswith("  hypothesis: ")
    assert best.longest_heard == pytest.approx(max(corpus.durations), abs=0.01)


def test_a_tiny_prior_lowers_its_perplexity(tiny_tokenizer: Tokenizer, tmp_path: Path) -> None:
    grammar = [f"meeting at {hour} with {who}" for hour in ("nine", "ten") for who in ("doctor", "monday")]
    text, held_out = Sentences.of(grammar * 4, tiny_tokenizer), Sentences.of(grammar, tiny_tokenizer)
    prior = ConvPrior(ConvLMSettings(16, 16, [[8, 16, 1]], 16, kernel=5, dropout=0.0), tiny_tokenizer)
    task = PriorTraining(prior, text, held_out, PriorSettings(batch_tokens=100), seed=0)
    before, _ = task.validate(0)
    optimizer = OptimizerSettings("adamw", 0.02, clip=1.0, warm_up=10)
    fit(task, Schedule(100, optimizer, 0, 50), tmp_path, tmp_path)
    found = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    after = min(each["perplexity"] for each in found if "perplexity" in each)
    assert before > 10
    # Two free choices of two: the mean over the pieces can fall to 4 ** (1 / pieces), and no lower.
    floor = 4 ** (1 / (len(held_out.flat) / 4))
    assert floor <= after < 1.15 * floor


def test_perplexity_is_per_piece_and_per_word(tiny_prior: ConvPrior, tiny_tokenizer: Tokenizer) -> None:
    held_out = Sentences.of(["meeting at nine", "with doctor"], tiny_tokenizer)
    task = PriorTraining(tiny_prior, held_out, held_out, PriorSettings(batch_tokens=5), seed=0)
    total = -float(tiny_prior.score_texts(["meeting at nine", "with doctor"]).sum())
    score, figures = task.validate(0)
    assert score == pytest.approx(math.exp(total / len(held_out.flat)), rel=1e-5)
    assert figures["word_perplexity"] == pytest.approx(math.exp(total / 5), rel=1e-5)


def test_sentences_are_flat_and_end_with_eos(tiny_tokenizer: Tokenizer) -> None:
    found = Sentences.of(["at nine", "", " ", "ten"], tiny_tokenizer)
    eos = tiny_tokenizer.eos
    rows = [[*tiny_tokenizer.encode("at nine"), eos], [*tiny_tokenizer.encode("ten"), eos]]
    assert found.flat.tolist() == rows[0] + rows[1]
    labels, lengths = found.batch(np.array([1, 0]))
    assert lengths.tolist() == [len(rows[1]), len(rows[0])]
    assert labels[1].tolist() == rows[0]
    assert labels[0].tolist() == rows[1] + [eos] * (len(rows[0]) - len(rows[1]))


def test_sentences_are_encoded_as_one_by_one(
    monkeypatch: pytest.MonkeyPatch, tiny_tokenizer: Tokenizer, tiny_sentences: list[str]
) -> None:
    monkeypatch.setattr("priormatch.data.sentences.SENTENCES_AT_ONCE", 7)
    texts = ["9 9", *tiny_sentences[:30], "", "mo€nday 9  ten", "9", *tiny_sentences[:3]]
    found = Sentences.of(texts, tiny_tokenizer)
    rows = [[*row, tiny_tokenizer.eos] for text in texts if (row := tiny_tokenizer.encode(text))]
    assert found.flat.tolist() == [each for row in rows for each in row]
    assert found.lengths.tolist() == [len(row) for row in rows]
    assert found.ends.tolist() == np.cumsum(found.lengths).tolist()
    assert found.words == sum(len(text.split()) for text in texts)


@pytest.mark.parametrize("texts", [[], ["", " "]])
def test_text_without_a_known_piece_is_refused(tiny_tokenizer: Tokenizer, texts: list[str]) -> None:
    with pytest.raises(UserError, match="no sentence"):
        Sentences.of(texts, tiny_tokenizer)


def test_an_epoch_of_the_prior_sees_every_sentence_once(
    tiny_prior: ConvPrior, tiny_tokenizer: Tokenizer, tiny_sentences: list[str]
) -> None:
    text = Sentences.of(tiny_sentences[:20], tiny_tokenizer)
    task = PriorTraining(tiny_prior, text, text, PriorSettings(batch_tokens=50), seed=0)
    pieces, updates = 0.0, 0
    while task.epoch == 0:
        _, figures = task.backward(updates, WATCH)
        pieces, updates = pieces + float(figures["pieces"]), updates + 1
    assert updates > 1
    assert pieces == len(text.flat)


def test_updates_of_the_prior_are_the_same_on_padded_batches(
    monkeypatch: pytest.MonkeyPatch,
    tiny_prior: ConvPrior,
    tiny_tokenizer: Tokenizer,
    tiny_sentences: list[str],
) -> None:
    text = Sentences.of(tiny_sentences[:40], tiny_tokenizer)
    plain, padded = (
        PriorTraining(tiny_prior, text, text, PriorSettings(batch_tokens=60), 0) for _ in range(2)
    )
    results = []
    for update in range(8):
        for task in (plain, padded):
            tiny_prior.zero_grad()
            with monkeypatch.context() as patch:
                patch.setattr("priormatch.kernels.shapes.has_kernels", lambda _, task=task: task is padded)
                loss, figures = task.backward(update, WATCH)
            slopes = [each.grad for each in tiny_prior.parameters() if each.grad is not None]
            results.append((loss, figures["pieces"], torch.cat([each.flatten() for each in slopes])))
        torch.testing.assert_close(results[-1], results[-2])


def test_a_prior_with_context_learns_what_follows_what(tiny_tokenizer: Tokenizer, tmp_path: Path) -> None:
    """A cycle of six words: alone each is as likely as the others, and after another it is certain."""
    cycle = ["monday", "tuesday", "morning", "evening", "meeting", "doctor"]
    text, held_out = Sentences.of(cycle * 8, tiny_tokenizer), Sentences.of(cycle * 2, tiny_tokenizer)
    settings = ConvLMSettings(16, 16, [[16, 16, 2]], 16, kernel=5, dropout=0.0, context=True)
    task = PriorTraining(
        ConvPrior(settings, tiny_tokenizer), text, held_out, PriorSettings(batch_tokens=200), 0
    )
    fit(task, Schedule(150, OptimizerSettings("adamw", 0.02, clip=1.0), 0, 150), tmp_path, tmp_path)
    prior = ConvPrior.load(tmp_path / "model")
    alone = prior.score_texts(cycle)
    after = prior.score_texts(cycle, [cycle[-1], *cycle[:-1]])
    assert alone.mean() == pytest.approx(-math.log(6), abs=0.3)
    assert after.min() > math.log(0.8)
    wrong = prior.score_texts(cycle, cycle)
    assert wrong.max() < math.log(0.2)
    # All of the held-out sentences but the first follow another.
    _, figures = task.validate(150)
    by_hand = -(float(alone[0]) + float(after[1:].sum()) + float(after.sum())) / len(held_out.flat)
    assert figures["perplexity_in_context"] == pytest.approx(math.exp(by_hand), rel=1e-3)
    assert figures["perplexity"] == pytest.approx(
        math.exp(-2 * float(alone.sum()) / len(held_out.flat)), rel=1e-3
    )


def test_half_of_the_sentences_are_read_after_another_anew_in_each_epoch(
    tiny_prior: ConvPrior, tiny_tokenizer: Tokenizer, tiny_sentences: list[str]
) -> None:
    text = Sentences.of(tiny_sentences, tiny_tokenizer)
    eos = tiny_tokenizer.eos
    labels, lengths = text.batch(np.array([0, 1]), text.lengths_after(np.ones(200, bool)))
    first, second = (tiny_tokenizer.encode(each) for each in tiny_sentences[:2])
    assert labels[0, : lengths[0]].tolist() == [*first, eos]
    assert labels[1, : lengths[1]].tolist() == [*first, eos, *second, eos]

    def drawn(epoch: int, seed: int = 0) -> list[bool]:
        task = PriorTraining(tiny_prior, text, text, PriorSettings(), seed)
        task.epoch = epoch
        return (task._lengths() > text.lengths).tolist()

    assert sum(drawn(0)) == 0
    tiny_prior.settings.context = True
    assert 80 < sum(drawn(0)) < 120
    assert drawn(0) == drawn(0)
    assert drawn(0) != drawn(1)
    assert drawn(0) != drawn(0, seed=1)


def first_batch(
    tiny_corpus: Callable[..., Path], model: SpeechRecognizer, training: TrainingSettings
) -> Batch:
    corpus = Corpus.load(tiny_corpus(4), AudioSettings(workers=0))
    return Supervised(model, corpus, {}, training, BatchSettings(utterances=4)).stream.take()[0]


def plain(**changes: Any) -> TrainingSettings:
    quiet = TrainingSettings(label_smoothing=0.0, input_sampling=0.0, piece_sampling=0.0, window_updates=0)
    return replace(quiet, **changes)


def test_the_loss_is_the_mean_over_utterances_of_their_summed_cross_entropy(
    tiny_recognizer: SpeechRecognizer, tiny_corpus: Callable[..., Path]
) -> None:
    model, corpus = tiny_recognizer, Corpus.load(tiny_corpus(4), AudioSettings(workers=0))
    task = Supervised(model, corpus, {}, plain(), BatchSettings(utterances=4))
    loss, figures = task.backward(0, WATCH)
    task.stream = Supervised(model, corpus, {}, plain(), BatchSettings(utterances=4)).stream
    batch = task.stream.take()[0]
    by_hand = []
    for row in range(4):
        samples = batch.samples[row : row + 1]
        encoded, frames = model.encode(batch.waveforms[row : row + 1, : samples[0]], samples)
        labels = batch.labels[row : row + 1, : batch.label_lengths[row]]
        decoder = present(model.decoder)
        log_q = decoder(decoder.memory(encoded, frames), labels[:, None])[0, 0].log_softmax(-1)
        by_hand.append(-log_q[range(labels.shape[1]), labels[0]].sum().detach())
    assert float(loss) == pytest.approx(float(sum(by_hand)) / 4, rel=1e-4)
    assert float(figures["loss_per_piece"]) == pytest.approx(
        float(sum(by_hand) / batch.label_lengths.sum()), rel=1e-4
    )


def transcript_losses(
    model: SpeechRecognizer, batch: Batch, training: TrainingSettings, window: bool = False
) -> torch.Tensor:
    spoken = Hypotheses(batch.labels[:, None], batch.label_lengths[:, None], model.tokenizer)
    return model.losses(batch, spoken, training, window)[:, 0]


def test_the_soft_window_lasts_for_so_many_updates(
    tiny_recognizer: SpeechRecognizer, tiny_corpus: Callable[..., Path]
) -> None:
    training = plain(window_updates=10, window_deviation=0.5)
    corpus = Corpus.load(tiny_corpus(4), AudioSettings(workers=0))

    def task() -> Supervised:
        return Supervised(tiny_recognizer, corpus, {}, training, BatchSettings(utterances=4))

    inside, last, after = (task().backward(update, WATCH)[0] for update in (0, 9, 10))
    batch = task().stream.take()[0]
    with_window = transcript_losses(tiny_recognizer, batch, training, window=True).mean()
    without = transcript_losses(tiny_recognizer, batch, training).mean()
    assert not torch.allclose(with_window, without)
    expected = [float(with_window.detach()), float(with_window.detach()), float(without.detach())]
    assert [float(inside), float(last), float(after)] == pytest.approx(expected, rel=1e-5)


def test_the_ctc_term_is_added_with_its_weight(
    tiny_recognizer: SpeechRecognizer, tiny_corpus: Callable[..., Path]
) -> None:
    batch = first_batch(tiny_corpus, tiny_recognizer, plain())
    with torch.no_grad():
        encoded, frames = tiny_recognizer.encode(batch.waveforms, batch.samples)
        labels, lengths = batch.labels[:, None], batch.label_lengths[:, None]
        eos = tiny_recognizer.tokenizer.eos
        term = ctc_losses(present(tiny_recognizer.ctc)(encoded), frames, labels, lengths, eos)[:, 0]
        without = transcript_losses(tiny_recognizer, batch, plain())
        together = transcript_losses(tiny_recognizer, batch, plain(ctc_weight=0.3))
    torch.testing.assert_close(together, without + 0.3 * term)
    assert (term > 0).all()


def test_ctc_by_hand_and_free_where_the_transcript_does_not_fit() -> None:
    """Two frames, one piece a: the paths are (a, a), (a, blank), (blank, a)."""
    eos = 7
    logits = torch.randn(2, 2, eos + 1)
    labels = torch.tensor([[[3, eos, eos, eos], [4, eos, eos, eos]], [[1, 2, 3, eos], [eos, eos, eos, eos]]])
    found = ctc_losses(logits, torch.tensor([2, 2]), labels, torch.tensor([[2, 2], [4, 1]]), eos)
    p = logits[0].softmax(-1)
    for rank, piece in enumerate((3, 4)):
        paths = p[0, piece] * p[1, piece] + p[0, piece] * p[1, eos] + p[0, eos] * p[1, piece]
        assert float(found[0, rank]) == pytest.approx(-math.log(paths), rel=1e-5)
    assert float(found[1, 0]) == 0.0  # three pieces in two frames
    p = logits[1].softmax(-1)
    assert float(found[1, 1]) == pytest.approx(-math.log(p[0, eos] * p[1, eos]), rel=1e-5)


def test_text_is_tokenized_once_into_a_folder_and_mapped_from_there(
    tmp_path: Path, tiny_tokenizer: Tokenizer, tiny_sentences: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("priormatch.data.sentences.SENTENCES_AT_ONCE", 7)
    text = tmp_path / "text.txt"
    text.write_text("\n".join(tiny_sentences[:30]) + "\n")
    plain = Sentences.of(tiny_sentences[:30], tiny_tokenizer)
    for again in range(2):
        found = Sentences.of_file(text, tiny_tokenizer, tmp_path / "tokenized")
        assert isinstance(found.flat, np.memmap)
        assert found.flat.tolist() == plain.flat.tolist()
        assert found.lengths.tolist() == plain.lengths.tolist()
        assert found.words == plain.words
        some = np.array([4, 0, 17])
        for ours, theirs in zip(found.batch(some), plain.batch(some), strict=True):
            assert torch.equal(ours, theirs)
        if not again:
            monkeypatch.setattr("priormatch.data.sentences.tokenized", None)  # not called again
    monkeypatch.undo()
    text.write_text("monday at nine\n")
    assert Sentences.of_file(text, tiny_tokenizer, tmp_path / "tokenized").words == 3


def test_a_tokenized_text_without_its_record_is_made_again(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    text, folder = tmp_path / "text.txt", tmp_path / "tokenized"
    text.write_text("monday at nine\n")
    folder.mkdir()
    (folder / "pieces.bin").write_bytes(b"what a kill left")
    assert Sentences.of_file(text, tiny_tokenizer, folder).flat.tolist() == [
        *tiny_tokenizer.encode("monday at nine"),
        tiny_tokenizer.eos,
    ]


@pytest.mark.parametrize("content", [None, ""])
def test_a_missing_or_empty_text_is_refused(
    tmp_path: Path, tiny_tokenizer: Tokenizer, content: str | None
) -> None:
    text = tmp_path / "text.txt"
    if content is not None:
        text.write_text(content)
    with pytest.raises(UserError, match=r"there is no text file|text.txt contains no sentences"):
        Sentences.of_file(text, tiny_tokenizer, tmp_path / "tokenized")
