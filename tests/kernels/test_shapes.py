"""Batches padded to round shapes train as they did."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from priormatch.config import AudioSettings, BatchSettings, TrainingSettings
from priormatch.data.batches import Batch, UtteranceReader, once
from priormatch.data.corpus import Corpus
from priormatch.data.plan import Request, Shape, Visit, plan_batches
from priormatch.decoding.beam import Hypotheses, pad
from priormatch.kernels.shapes import LABELS, ROWS, SAMPLES, pad_batch, pad_sentences, sentence_shape
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer

QUIET = TrainingSettings(label_smoothing=0.0, input_sampling=0.0, piece_sampling=0.0, ctc_weight=0.3)


@pytest.mark.parametrize(("utterances", "rows"), [(3, 3), (2 * ROWS, 2 * ROWS), (2 * ROWS + 1, 3 * ROWS)])
def test_padding_adds_neither_utterances_nor_loss(
    tiny_recognizer: SpeechRecognizer, tiny_corpus: Callable[..., Path], utterances: int, rows: int
) -> None:
    corpus = Corpus.load(tiny_corpus(utterances), AudioSettings(workers=0))
    batch = next(once(UtteranceReader(corpus, tiny_recognizer.tokenizer), 1000.0))
    padded = pad_batch(batch, tiny_recognizer.tokenizer.eos)
    assert len(padded) == len(batch) == utterances
    assert padded.waveforms.shape[0] == rows
    assert padded.waveforms.shape[1] % SAMPLES == padded.labels.shape[1] % LABELS == 0

    def losses(of: Batch) -> torch.Tensor:
        spoken = Hypotheses(of.labels[:, None], of.label_lengths[:, None], tiny_recognizer.tokenizer)
        return tiny_recognizer.losses(of, spoken, QUIET)[:, 0]

    with torch.no_grad():
        found, expected = losses(padded), losses(batch)
    torch.testing.assert_close(found[:utterances], expected)
    assert torch.all(found[utterances:] == 0)


def test_a_batch_of_a_fixed_shape_is_padded_to_its_rows_alone(
    tiny_recognizer: SpeechRecognizer, tiny_corpus: Callable[..., Path]
) -> None:
    corpus = Corpus.load(tiny_corpus(3), AudioSettings(workers=0))
    reader = UtteranceReader(corpus, tiny_recognizer.tokenizer)
    batch = reader.__getitems__(Request([Visit(0), Visit(2)], Shape(1.0, 5)))
    padded = pad_batch(batch.to(torch.device("cpu")), tiny_recognizer.tokenizer.eos)
    assert (len(padded), padded.waveforms.shape) == (2, (5, 16_000))
    assert padded.label_lengths.tolist()[2:] == [0, 0, 0]


def test_round_batches_stay_as_they_are(
    tiny_recognizer: SpeechRecognizer, tiny_corpus: Callable[..., Path]
) -> None:
    corpus = Corpus.load(tiny_corpus(4), AudioSettings(workers=0))
    eos = tiny_recognizer.tokenizer.eos
    once_padded = pad_batch(next(once(UtteranceReader(corpus, tiny_recognizer.tokenizer), 1000.0)), eos)
    again = pad_batch(once_padded, eos)
    assert torch.equal(again.waveforms, once_padded.waveforms)
    assert torch.equal(again.labels, once_padded.labels)


def test_padded_sentences_have_the_same_loss(tiny_prior: ConvPrior) -> None:
    eos = tiny_prior.lm.eos
    labels, lengths = pad([[3, 1, 4, eos], [5, eos], [9, 2, 6, 5, 3, 5, 8, 9, 7, eos]])
    wide, long = pad_sentences(labels, lengths, eos, 55)
    assert wide.shape == (5, 11)
    assert long.tolist() == [*lengths.tolist(), 0, 0]
    found = tiny_prior.token_log_probabilities(wide, long)
    assert torch.all(found[3:] == 0)
    torch.testing.assert_close(found[:3, :10], tiny_prior.token_log_probabilities(labels, lengths))


@pytest.mark.parametrize("mean", [20, 27, 82])  # of 5,000 pieces, of 1,000 pieces and of characters
@pytest.mark.parametrize("tokens", [8192, 32768])
def test_batches_of_sentences_have_few_shapes(mean: int, tokens: int) -> None:
    spread = 0.75
    drawn = np.random.default_rng(0).lognormal(np.log(mean) - spread**2 / 2, spread, 200_000)
    lengths = 2 + np.minimum(drawn, 10 * mean).astype(np.int64)
    given = [
        (len(batch), int(lengths[batch].max()))
        for epoch in range(2)
        for batch in plan_batches(lengths, BatchSettings(seconds=tokens), 0, epoch)
    ]
    padded = [sentence_shape(*shape, tokens) for shape in given]
    assert len(set(padded)) == len({width for _, width in padded}) < 36
    assert all(
        rows <= more and width <= wider for (rows, width), (more, wider) in zip(given, padded, strict=True)
    )
    assert sum(more * wider for more, wider in padded) < 1.16 * sum(rows * width for rows, width in given)


def test_a_sentence_longer_than_a_batch_stays_alone() -> None:
    assert sentence_shape(1, 300, 256) == (1, 338)
    assert sentence_shape(3, 1, 2) == (3, 1)
