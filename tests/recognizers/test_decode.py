from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from narrowing import present

from priormatch.config import AudioSettings, FusionSettings
from priormatch.data.batches import Batch, UtteranceReader
from priormatch.data.corpus import Corpus
from priormatch.data.plan import Request
from priormatch.decoding.beam import Beam
from priormatch.errors import UserError
from priormatch.progress import Meter
from priormatch.recognizers import decode as module
from priormatch.recognizers.decode import (
    GREEDY,
    batches_of,
    decode,
    decode_to_file,
    encode,
    error_rates,
    greedy_transcripts,
    groups_of,
    mean_cer,
    mean_rate,
    plain_search,
    search_with_prior,
    transcribe,
    validation_errors,
)
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.scoring.transcripts import Transcript, read_transcripts


@pytest.fixture
def corpus(tiny_corpus: Callable[..., Path]) -> Corpus:
    return Corpus.load(tiny_corpus(7), AudioSettings(workers=0))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "exp" / "decoded.jsonl"


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every utterance is a batch of its own."""
    monkeypatch.setattr(module, "BATCH_SECONDS", 0.01)


def together(batches: Iterable[list[Transcript]]) -> list[Transcript]:
    return [each for batch in batches for each in batch]


def test_transcripts_come_in_the_order_of_the_corpus_and_know_their_references(
    tiny_recognizer: SpeechRecognizer, corpus: Corpus, out: Path, alone: None
) -> None:
    decode_to_file(tiny_recognizer, corpus, out, "key")
    found = read_transcripts(out)
    assert [each.id for each in found] == [cut.id for cut in corpus.cuts]
    assert [each.reference for each in found] == [cut.supervisions[0].text for cut in corpus.cuts]


@pytest.mark.parametrize(("beam_size", "with_prior"), [(1, False), (3, False), (3, True)])
def test_batches_do_not_change_the_transcripts(
    tiny_recognizer: SpeechRecognizer,
    tiny_prior: ConvPrior,
    corpus: Corpus,
    monkeypatch: pytest.MonkeyPatch,
    beam_size: int,
    with_prior: bool,
) -> None:
    fusion = FusionSettings(beam_size, token_margin=8.0, attention_jump=20.0)
    search = search_with_prior(tiny_prior, fusion) if with_prior else plain_search(beam_size)
    (batch,) = decode(tiny_recognizer, corpus, search)
    monkeypatch.setattr(module, "BATCH_SECONDS", 0.01)
    alone = {each.id: each for each in together(decode(tiny_recognizer, corpus, search))}
    assert {each.id for each in batch} == alone.keys()
    for name, one in ((each.id, each) for each in batch):
        assert one.hypothesis == alone[name].hypothesis
        assert one.pieces == alone[name].pieces
        scores = [score for _, score in one.nbest]
        assert scores == pytest.approx([score for _, score in alone[name].nbest], abs=1e-3)
        assert scores == sorted(scores, reverse=True)
        assert 1 <= len(scores) <= beam_size


def test_decoding_leaves_the_mode_of_the_model_as_it_was(
    tiny_recognizer: SpeechRecognizer, corpus: Corpus
) -> None:
    for training in (True, False):
        tiny_recognizer.train(training)
        list(decode(tiny_recognizer, corpus))
        assert tiny_recognizer.training is training


def test_decoding_is_without_dropout(tiny_recognizer: SpeechRecognizer, corpus: Corpus) -> None:
    tiny_recognizer.train()
    torch.manual_seed(1)
    one = list(decode(tiny_recognizer, corpus, plain_search(2)))
    torch.manual_seed(2)
    assert list(decode(tiny_recognizer, corpus, plain_search(2))) == one


@pytest.mark.parametrize("beam_size", [1, 3])
def test_what_was_encoded_before_is_transcribed_alike(
    tiny_recognizer: SpeechRecognizer, corpus: Corpus, alone: None, beam_size: int
) -> None:
    search = plain_search(beam_size)
    batches = [batch.to("cpu") for batch in encode(tiny_recognizer, corpus)]
    expected = list(decode(tiny_recognizer, corpus, search))
    found = together(transcribe(tiny_recognizer, batch, search) for batch in batches)
    assert {each.id: each for each in found} == {each.id: each for each in together(expected)}
    assert [len(batch.ids) for batch in batches] == [1] * 7


def test_a_search_that_came_to_no_end_says_so(tiny_recognizer: SpeechRecognizer, corpus: Corpus) -> None:
    with torch.no_grad():
        present(tiny_recognizer.decoder).output.bias[tiny_recognizer.tokenizer.eos] = -50.0
    assert not any(each.ended for each in together(decode(tiny_recognizer, corpus, GREEDY)))


def looping(phrase: str, rounds: int, ended: bool = False) -> Callable[..., Beam]:
    """A search that finds a phrase so many times in every utterance."""

    def search(model: SpeechRecognizer, frames: Any) -> Beam:
        batch, classes = len(frames.values), [*model.tokenizer.encode(phrase) * rounds, model.tokenizer.eos]
        beam = torch.tensor(classes).expand(batch, 1, -1)
        lengths = torch.full((batch, 1), len(classes))
        return Beam(beam, lengths, torch.zeros(batch, 1), torch.full((batch,), ended))

    return search


@pytest.mark.parametrize("ended", [False, True])
def test_what_was_broken_off_is_told_without_its_loop_and_as_long_as_it_then_is(
    tiny_recognizer: SpeechRecognizer,
    corpus: Corpus,
    out: Path,
    capsys: pytest.CaptureFixture[str],
    ended: bool,
) -> None:
    decode_to_file(tiny_recognizer, corpus, out, "key", looping("monday at nine", 4, ended))
    expected = " ".join(["monday at nine"] * (4 if ended else 1))
    pieces = len(tiny_recognizer.tokenizer.encode(expected))
    for each in read_transcripts(out):
        assert (each.hypothesis, each.pieces, each.ended) == (expected, pieces, ended)
        assert each.nbest == [(expected, 0.0)]
    assert ("7 of 7 utterances" in capsys.readouterr().err) == (not ended)


def test_validation_is_by_set_and_its_mean_is_not_weighted(
    tiny_recognizer: SpeechRecognizer, tiny_corpus: Callable[..., Path], corpus: Corpus
) -> None:
    other = Corpus.load(tiny_corpus(2, "other"), AudioSettings(workers=0))
    errors = validation_errors(tiny_recognizer, {"many": corpus, "few": other})
    assert errors.keys() == {"many", "few"}
    errors = {"many": {"wer": 50.0, "cer": 10.0}, "few": {"wer": 60.0, "cer": 30.0}}
    assert (mean_cer(errors), mean_rate(errors, "wer")) == (20.0, 55.0)


def test_error_rates_by_hand() -> None:
    found = [Transcript("a", "at nine", 2, "at ten", []), Transcript("b", "", 0, "nine", [])]
    assert error_rates(found) == {"wer": pytest.approx(100 * 2 / 3), "cer": pytest.approx(100 * 7 / 10)}


def break_audio(corpus: Corpus, *numbers: int) -> None:
    for number in numbers:
        source = corpus.cuts[number].recording.sources[0].source
        with open(source, "r+b") as file:
            file.truncate(300)


def test_one_unreadable_utterance_is_named_and_left_out(
    tiny_recognizer: SpeechRecognizer, corpus: Corpus, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    break_audio(corpus, 2)
    decode_to_file(tiny_recognizer, corpus, out, "key")
    assert [each.id for each in read_transcripts(out)] == [
        cut.id for i, cut in enumerate(corpus.cuts) if i != 2
    ]
    assert f"{corpus.cuts[2].id} cannot be read and is skipped" in capsys.readouterr().err


def test_too_many_unreadable_utterances_stop(
    tiny_recognizer: SpeechRecognizer, corpus: Corpus, out: Path
) -> None:
    break_audio(corpus, 1, 2, 3)
    with pytest.raises(UserError, match=r"3 of 7 utterances cannot be read: .*audio\.max_bad_share"):
        decode_to_file(tiny_recognizer, corpus, out, "key")
    assert not out.exists()
    with pytest.raises(UserError, match=r"3 of 7 utterances cannot be read"):
        validation_errors(tiny_recognizer, {"dev": corpus})
    with pytest.raises(UserError, match=r"3 of 7 utterances cannot be read"):
        greedy_transcripts(tiny_recognizer, corpus)


def test_greedy_transcripts_are_those_of_all_utterances(
    tiny_recognizer: SpeechRecognizer, corpus: Corpus
) -> None:
    found = {each.id: each for each in greedy_transcripts(tiny_recognizer, corpus)}
    assert found == {each.id: each for each in together(decode(tiny_recognizer, corpus))}
    assert found.keys() == {cut.id for cut in corpus.cuts}


@pytest.fixture
def each_its_own_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_SECONDS", 0.01)


@pytest.fixture
def killed(
    tiny_recognizer: SpeechRecognizer,
    corpus: Corpus,
    out: Path,
    each_its_own_part: None,
    monkeypatch: pytest.MonkeyPatch,
) -> list[str]:
    """A decoding that was stopped after three parts of one utterance; gives the names of those done."""
    with monkeypatch.context() as patch:
        patch.setattr(Meter, "advance", stop_at(4))  # before the fourth part is written
        with pytest.raises(KeyboardInterrupt):
            decode_to_file(tiny_recognizer, corpus, out, "key", plain_search(2))
    assert not out.exists()
    parts = Path(f"{out}.partial").glob("*.jsonl")
    assert sorted(each.name for each in parts) == [f"{part:06d}.jsonl" for part in range(3)]
    return [cut.id for cut in corpus.cuts[:3]]


def stop_at(count: int) -> Callable[..., None]:
    advance = Meter.advance

    def stop(self: Meter, amount: int = 1, note: Any = None) -> None:
        advance(self, amount, note)
        if self.done == count:
            raise KeyboardInterrupt

    return stop


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the utterances that are decoded from now on."""
    names: list[str] = []
    read = UtteranceReader.__getitems__

    def recording(self: UtteranceReader, request: Request) -> Batch:
        batch = read(self, request)
        names.extend(batch.ids)
        return batch

    monkeypatch.setattr(UtteranceReader, "__getitems__", recording)
    return names


def test_interrupted_decoding_resumes_and_ends_with_the_same_file(
    tiny_recognizer: SpeechRecognizer,
    corpus: Corpus,
    out: Path,
    killed: list[str],
    decoded: list[str],
    tmp_path: Path,
) -> None:
    decode_to_file(tiny_recognizer, corpus, out, "key", plain_search(2))
    assert sorted(decoded + killed) == sorted(cut.id for cut in corpus.cuts)
    whole = tmp_path / "whole.jsonl"
    decode_to_file(tiny_recognizer, corpus, whole, "key", plain_search(2))
    assert out.read_bytes() == whole.read_bytes()
    assert [each.name for each in out.parent.iterdir()] == [out.name]


def test_another_key_begins_anew(
    tiny_recognizer: SpeechRecognizer, corpus: Corpus, out: Path, killed: list[str], decoded: list[str]
) -> None:
    decode_to_file(tiny_recognizer, corpus, out, "other", plain_search(2))
    assert sorted(decoded) == sorted(cut.id for cut in corpus.cuts)


def test_processes_wait_for_the_slowest_at_the_end_of_decoding(
    tiny_recognizer: SpeechRecognizer, corpus: Corpus, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be half an hour of audio behind the others."""
    shared = Mock(side_effect=lambda value, patient=False: [value])
    monkeypatch.setattr(module, "from_all", shared)
    decode_to_file(tiny_recognizer, corpus, out, "key")
    greedy_transcripts(tiny_recognizer, corpus)
    assert [call.kwargs.get("patient", call.args[-1]) for call in shared.call_args_list] == [True, True]


def test_utterances_of_other_lengths_begin_anew(
    tiny_recognizer: SpeechRecognizer, corpus: Corpus, out: Path, killed: list[str], decoded: list[str]
) -> None:
    """Their parts are others: those of the interrupted call would bring utterances back, and others twice."""
    shorter = Corpus(corpus.cuts, AudioSettings(workers=0, longest=corpus.longest - 0.01))
    decode_to_file(tiny_recognizer, shorter, out, "key", plain_search(2))
    assert [each.id for each in read_transcripts(out)] == [cut.id for cut in shorter.cuts]
    assert sorted(decoded) == sorted(cut.id for cut in shorter.cuts)


def test_decoding_stopped_at_its_very_end_decodes_nothing_again(
    tiny_recognizer: SpeechRecognizer,
    corpus: Corpus,
    out: Path,
    each_its_own_part: None,
    decoded: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, "check_share", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            decode_to_file(tiny_recognizer, corpus, out, "key")
    decoded.clear()
    decode_to_file(tiny_recognizer, corpus, out, "key")
    assert decoded == []
    assert len(read_transcripts(out)) == 7


@given(durations=st.lists(st.floats(0.1, 30.0), min_size=1, max_size=40), seconds=st.floats(0.5, 60.0))
def test_groups_keep_the_order_and_are_of_about_the_same_length(
    durations: list[float], seconds: float
) -> None:
    groups = groups_of(np.array(durations), seconds)
    assert np.concatenate(groups).tolist() == list(range(len(durations)))
    assert all(sum(durations[i] for i in group[1:]) <= seconds for group in groups)


def test_a_validation_set_is_read_once(
    tiny_recognizer: SpeechRecognizer, tiny_corpus: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = Corpus.load(tiny_corpus(5), AudioSettings(workers=0))
    first = validation_errors(tiny_recognizer, {"dev": corpus})
    monkeypatch.setattr(UtteranceReader, "__getitems__", lambda *_: pytest.fail("read again"))
    assert validation_errors(tiny_recognizer, {"dev": corpus}) == first


def test_a_set_too_large_to_keep_is_read_again(
    tiny_recognizer: SpeechRecognizer, tiny_corpus: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_KEPT", 1000)
    corpus = Corpus.load(tiny_corpus(5), AudioSettings(workers=0))
    assert validation_errors(tiny_recognizer, {"dev": corpus}) == validation_errors(
        tiny_recognizer, {"dev": corpus}
    )
    assert corpus.kept == []


def test_a_set_that_was_not_read_to_its_end_is_not_kept(
    tiny_recognizer: SpeechRecognizer, tiny_corpus: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH_SECONDS", 0.1)
    corpus = Corpus.load(tiny_corpus(5), AudioSettings(workers=0))
    next(batches_of(tiny_recognizer, corpus, keep=True))
    assert corpus.kept == []
    assert sum(len(batch) for batch in batches_of(tiny_recognizer, corpus, keep=True)) == 5
    assert sum(len(batch) for batch in corpus.kept) == 5
