"""Beams as matching sees them: the paper's Table 1 by hand, and tiny models."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from narrowing import present

from priormatch.config import AudioSettings, FusionSettings
from priormatch.data.corpus import Corpus
from priormatch.data.tokenizer import Tokenizer
from priormatch.decoding.beam import Beam, Hypotheses, pad
from priormatch.matching.hypotheses import inspect, inspect_beam, of_row
from priormatch.matching.lpm import LengthFilter, Weighing
from priormatch.models.conv_lm import ConvLM
from priormatch.recognizers import decode as decoding
from priormatch.recognizers.decode import decode, plain_search, search_with_prior
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.scoring.alignment import AlignedWord

WORDS = ["she", "walked", "looked", "very", "fast", "as", "after", "left", "the", "house"]
EOS = len(WORDS)
REFERENCE = "she walked very fast after she left the house"
LPM = [
    ("she walked very fast as she left the house", -32.24),
    ("she walked very fast after she left the house", -34.14),
    ("she looked very fast as she left the house", -33.10),
    ("she looked very fast after she left the house", -36.59),
]


def decode_words(classes: list[int]) -> str:
    return " ".join(WORDS[each] for each in classes if each != EOS)


def table_of(rows: list[tuple[str, float]]) -> SimpleNamespace:
    """A prior that gives texts the scores of a table."""
    scores = dict(rows)

    def score(hypotheses: Hypotheses, context: Any = None) -> torch.Tensor:
        return torch.tensor([[scores.get(text, 0.0) for text in row] for row in hypotheses.texts])

    return SimpleNamespace(score=score)


TOKENIZER = cast(
    Tokenizer,
    SimpleNamespace(
        pieces=WORDS, eos=EOS, decode=decode_words, encode=lambda text: [*map(WORDS.index, text.split())]
    ),
)


def beam_of(*texts: str, ended: bool = True) -> Beam:
    classes, lengths = pad([[*map(WORDS.index, text.split()), EOS] for text in texts])
    scores = torch.arange(len(texts)) * -0.5 - 1.0
    return Beam(classes[None], lengths[None], scores[None], torch.tensor([ended]))


def test_the_papers_table_1() -> None:
    found = inspect_beam(
        beam_of(*(text for text, _ in LPM)), "u", REFERENCE, TOKENIZER, table_of(LPM), Weighing()
    )
    assert found.reference == REFERENCE
    assert found.reference_log_prior == pytest.approx(-34.14)
    assert [each.text for each in found.hypotheses] == [text for text, _ in LPM]
    assert [each.rank for each in found.hypotheses] == [1, 2, 3, 4]
    assert [each.log_prior for each in found.hypotheses] == pytest.approx([score for _, score in LPM])
    assert [round(each.weight, 2) for each in found.hypotheses] == [0.63, 0.09, 0.27, 0.01]
    assert [each.log_q for each in found.hypotheses] == [-1.0, -1.5, -2.0, -2.5]
    assert [each.dropped for each in found.hypotheses] == [None] * 4
    wrong = [[word for word in present(each.words) if word.kind != "equal"] for each in found.hypotheses]
    looked, hurried = AlignedWord("looked", "walked"), AlignedWord("as", "after")
    assert wrong == [[hurried], [], [looked, hurried], [looked]]


@pytest.mark.parametrize(("exponents", "log_weights"), [((0, 0), [0] * 4), ((0, 1), [0, -0.5, -1, -1.5])])
def test_weights_are_those_that_the_exponents_ask_for(
    exponents: tuple[int, int], log_weights: list[float]
) -> None:
    beam, weighing = beam_of(*(text for text, _ in LPM)), Weighing(exponents=exponents)
    found = inspect_beam(beam, "u", None, TOKENIZER, table_of(LPM), weighing)
    expected = torch.tensor(log_weights, dtype=torch.float).softmax(0)
    assert [each.weight for each in found.hypotheses] == pytest.approx(expected.tolist())


def test_what_the_length_filter_drops_and_why() -> None:
    texts = ["she left", "she left the", "she left the house", "she left the very house", ""]
    prior, weighing = table_of([]), Weighing(LengthFilter(0.9, 1.1), {"u": 3, "silent": 0})  # L = 4: 3 to 5
    found = inspect_beam(beam_of(*texts, ended=False), "u", None, TOKENIZER, prior, weighing)
    assert [each.dropped for each in found.hypotheses] == [None, None, None, "too long, 6 for 4", "empty"]
    assert [each.weight for each in found.hypotheses] == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0, 0])
    assert (found.reference_length, found.reference, found.ended) == (4, None, False)
    assert found.hypotheses[0].words is None
    assert found.reference_log_prior is None
    tight = Weighing(LengthFilter(1.0, 1.0), {"u": 3})
    found = inspect_beam(beam_of("she left"), "u", None, TOKENIZER, prior, tight)
    assert found.hypotheses[0].dropped == "too short, 3 for 4"
    for name in ("silent", "stranger"):
        found = inspect_beam(beam_of(*texts), name, None, TOKENIZER, prior, weighing)
        assert [each.dropped for each in found.hypotheses] == ["no reference length"] * 4 + ["empty"]
        assert [each.weight for each in found.hypotheses] == [0.0] * 5


def test_a_text_that_is_spelled_twice_counts_once_if_so_wanted() -> None:
    beam = beam_of("she left", "the house", "she left")
    ways = [Weighing(merge_spellings=merge) for merge in (False, True)]
    rows = [inspect_beam(beam, "u", None, TOKENIZER, table_of([]), way) for way in ways]
    weights = [[each.weight for each in row.hypotheses] for row in rows]
    assert weights == [pytest.approx([1 / 3] * 3), pytest.approx([0.5, 0.5, 0.0])]
    assert rows[1].hypotheses[2].dropped == "spelled otherwise above"


def test_places_of_a_beam_that_hold_nothing_are_not_shown() -> None:
    beam = beam_of("she left", "the", "the")
    beam.lengths[0, 2], beam.scores[0, 2] = 0, -math.inf
    found = inspect_beam(beam, "u", None, TOKENIZER, table_of([]), Weighing())
    assert [each.text for each in found.hypotheses] == ["she left", "the"]
    assert sum(each.weight for each in found.hypotheses) == pytest.approx(1)


def test_a_row_of_a_batch() -> None:
    beam = Beam(*(torch.arange(3) + 10 * i for i in range(4)))
    assert [getattr(of_row(beam, 1), name).tolist() for name in ("classes", "ended")] == [[1], [31]]


def test_tiny_models(
    tiny_recognizer: SpeechRecognizer, tiny_prior: ConvPrior, tiny_corpus: Callable[..., Path]
) -> None:
    corpus = Corpus.load(tiny_corpus(5), AudioSettings(workers=0))
    lengths = {cut.id: 12 for cut in corpus.cuts}
    found = inspect(tiny_recognizer, tiny_prior, corpus, 3, Weighing(LengthFilter(0.5, 2.0), lengths))
    assert [each.id for each in found] == [cut.id for cut in corpus.cuts]
    decoded = {each.id: each for batch in decode(tiny_recognizer, corpus, plain_search(3)) for each in batch}
    for each in found:
        transcript = decoded[each.id]
        assert (each.reference, each.ended) == (transcript.reference, transcript.ended)
        assert [(one.text, one.log_q) for one in each.hypotheses] == transcript.nbest
        classes = [[*map(tiny_prior.tokenizer.pieces.index, one.pieces), 28] for one in each.hypotheses]
        scores = [float(tiny_prior.score_classes(*pad([row]))[0]) for row in classes]
        assert [one.log_prior for one in each.hypotheses] == pytest.approx(scores, abs=1e-4)
        kept = torch.tensor([one.dropped is None for one in each.hypotheses])
        expected = torch.tensor(scores).masked_fill(~kept, -math.inf).softmax(0) if kept.any() else kept * 0.0
        assert [one.weight for one in each.hypotheses] == pytest.approx(expected.tolist(), abs=1e-4)


def test_beams_of_a_search_with_the_prior(
    tiny_recognizer: SpeechRecognizer, tiny_prior: ConvPrior, tiny_corpus: Callable[..., Path]
) -> None:
    with torch.no_grad():
        present(tiny_recognizer.decoder).output.bias[tiny_recognizer.tokenizer.eos] += 1.5
    corpus, fusion = Corpus.load(tiny_corpus(3), AudioSettings(workers=0)), FusionSettings(beam_size=2)
    weighing = Weighing(exponents=(0.0, 1.0), fusion=fusion)
    found = inspect(tiny_recognizer, tiny_prior, corpus, 3, weighing)
    search = search_with_prior(tiny_prior, replace(fusion, beam_size=3))
    decoded = {each.id: each for batch in decode(tiny_recognizer, corpus, search) for each in batch}
    for each in found:
        nbest = decoded[each.id].nbest
        assert [one.text for one in each.hypotheses] == [text for text, _ in nbest]
        weights = torch.tensor([score for _, score in nbest]).softmax(0)
        assert [one.weight for one in each.hypotheses] == pytest.approx(weights.tolist(), abs=1e-4)
        if each.ended:  # the score is that of both: log q + λ log p_y + a bonus for all pieces but the end
            sums = [
                one.log_q + fusion.lm_weight * one.log_prior + fusion.token_bonus * len(one.pieces)
                for one in each.hypotheses
            ]
            assert sums == pytest.approx([score for _, score in nbest], abs=1e-3)
    assert any(each.ended for each in found)


def test_a_search_with_the_prior_is_made_once_for_all_batches(
    tiny_recognizer: SpeechRecognizer,
    tiny_prior: ConvPrior,
    tiny_corpus: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []

    def counted(prior: ConvPrior) -> ConvLM:
        made.append(prior)
        return prior.lm

    monkeypatch.setattr(ConvPrior, "for_search", counted)
    monkeypatch.setattr(decoding, "BATCH_SECONDS", 0.1)
    corpus = Corpus.load(tiny_corpus(3), AudioSettings(workers=0))
    weighing = Weighing(fusion=FusionSettings(beam_size=2))
    assert len(inspect(tiny_recognizer, tiny_prior, corpus, 3, weighing)) == 3
    assert made == [tiny_prior]


def test_an_unreadable_utterance_is_named_and_left_out(
    tiny_recognizer: SpeechRecognizer,
    tiny_prior: ConvPrior,
    tiny_corpus: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    corpus = Corpus.load(tiny_corpus(3), AudioSettings(workers=0))
    with open(corpus.cuts[1].recording.sources[0].source, "r+b") as file:
        file.truncate(300)
    found = inspect(tiny_recognizer, tiny_prior, corpus, 2, Weighing())
    assert [each.id for each in found] == ["tiny-0", "tiny-2"]
    assert "tiny-1 cannot be read" in capsys.readouterr().err
