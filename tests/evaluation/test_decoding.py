import json

import pytest
import torch

from priormatch.config import AudioSettings
from priormatch.data.batches import Corpus
from priormatch.errors import UserError
from priormatch.evaluation import decoding as module
from priormatch.evaluation.decoding import (
    decode,
    decode_to_file,
    greedy_lengths,
    mean_cer,
    validation_errors,
)
from priormatch.evaluation.transcripts import read_transcripts
from priormatch.progress import Meter


@pytest.fixture
def corpus(tiny_corpus):
    return Corpus.load(tiny_corpus(7), AudioSettings(workers=0))


@pytest.fixture
def out(tmp_path):
    return tmp_path / "exp" / "decoded.jsonl"


@pytest.fixture
def alone(monkeypatch):
    """Every utterance is a batch of its own."""
    monkeypatch.setattr(module, "BATCH_SECONDS", 0.01)


def together(batches):
    return [each for batch in batches for each in batch]


def test_transcripts_come_in_the_order_of_the_corpus_and_know_their_references(
    tiny_recognizer, corpus, out, alone
):
    decode_to_file(tiny_recognizer, corpus, out, "key")
    found = read_transcripts(out)
    assert [each.id for each in found] == [cut.id for cut in corpus.cuts]
    assert [each.reference for each in found] == [cut.supervisions[0].text for cut in corpus.cuts]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_batches_do_not_change_the_transcripts(tiny_recognizer, corpus, monkeypatch, beam_size):
    (batch,) = decode(tiny_recognizer, corpus, beam_size)
    monkeypatch.setattr(module, "BATCH_SECONDS", 0.01)
    batches = list(decode(tiny_recognizer, corpus, beam_size))
    assert [len(each) for each in batches] == [1] * 7
    alone = {each.id: each for each in together(batches)}
    assert {each.id for each in batch} == alone.keys()
    for name, one in ((each.id, each) for each in batch):
        assert one.hypothesis == alone[name].hypothesis
        assert one.pieces == alone[name].pieces
        scores = [score for _, score in one.nbest]
        assert scores == pytest.approx([score for _, score in alone[name].nbest], abs=1e-3)
        assert scores == sorted(scores, reverse=True)
        assert 1 <= len(scores) <= beam_size


def test_decoding_leaves_the_mode_of_the_model_as_it_was(tiny_recognizer, corpus):
    for training in (True, False):
        tiny_recognizer.train(training)
        list(decode(tiny_recognizer, corpus))
        assert tiny_recognizer.training is training


def test_decoding_is_without_dropout(tiny_recognizer, corpus):
    tiny_recognizer.train()
    torch.manual_seed(1)
    one = list(decode(tiny_recognizer, corpus, 2))
    torch.manual_seed(2)
    assert list(decode(tiny_recognizer, corpus, 2)) == one


def test_validation_is_by_set_and_its_mean_is_not_weighted(tiny_recognizer, tiny_corpus, corpus):
    other = Corpus.load(tiny_corpus(2, "other"), AudioSettings(workers=0))
    errors = validation_errors(tiny_recognizer, {"many": corpus, "few": other})
    assert errors.keys() == {"many", "few"}
    assert mean_cer({"many": {"cer": 10.0}, "few": {"cer": 30.0}}) == 20.0


def break_audio(corpus, *numbers):
    for number in numbers:
        source = corpus.cuts[number].recording.sources[0].source
        with open(source, "r+b") as file:
            file.truncate(300)


def test_one_unreadable_utterance_is_named_and_left_out(tiny_recognizer, corpus, out, capsys):
    break_audio(corpus, 2)
    decode_to_file(tiny_recognizer, corpus, out, "key")
    assert [each.id for each in read_transcripts(out)] == [
        cut.id for i, cut in enumerate(corpus.cuts) if i != 2
    ]
    assert f"{corpus.cuts[2].id} cannot be read and is skipped" in capsys.readouterr().err


def test_too_many_unreadable_utterances_stop(tiny_recognizer, corpus, out):
    break_audio(corpus, 1, 2, 3)
    with pytest.raises(UserError, match=r"3 of 7 utterances cannot be read: .*audio\.max_bad_share"):
        decode_to_file(tiny_recognizer, corpus, out, "key")
    assert not out.exists()
    with pytest.raises(UserError, match=r"3 of 7 utterances cannot be read"):
        validation_errors(tiny_recognizer, {"dev": corpus})
    with pytest.raises(UserError, match=r"3 of 7 utterances cannot be read"):
        greedy_lengths(tiny_recognizer, corpus)


def test_greedy_lengths_are_those_of_the_transcripts(tiny_recognizer, corpus):
    expected = {each.id: each.pieces for each in together(decode(tiny_recognizer, corpus))}
    assert greedy_lengths(tiny_recognizer, corpus) == expected
    assert expected.keys() == {cut.id for cut in corpus.cuts}


@pytest.fixture
def killed(tiny_recognizer, corpus, out, alone, monkeypatch):
    """A decoding that was stopped after three batches; gives the names of those done."""
    with monkeypatch.context() as patch:
        patch.setattr(module.Meter, "advance", stop_at(3))
        with pytest.raises(KeyboardInterrupt):
            decode_to_file(tiny_recognizer, corpus, out, "key", 2)
    lines = partial(out).read_text().splitlines()
    assert json.loads(lines[0]) == {"key": "key"}
    done = [json.loads(line)["id"] for line in lines[1:]]
    assert len(done) == 3
    assert not out.exists()
    return done


def stop_at(count):
    advance = Meter.advance

    def stop(self, amount=1, note=None):
        advance(self, amount, note)
        if self.done == count:
            raise KeyboardInterrupt

    return stop


def partial(out):
    return out.with_name(f"{out.name}.partial")


@pytest.fixture
def heard(monkeypatch):
    """The names of the utterances that are decoded from now on."""
    names = []

    def recording(model, corpus, beam_size=1):
        for batch in decode(model, corpus, beam_size):
            names.extend(each.id for each in batch)
            yield batch

    monkeypatch.setattr(module, "decode", recording)
    return names


def test_a_stopped_decoding_goes_on_and_ends_with_the_same_file(
    tiny_recognizer, corpus, out, killed, heard, tmp_path
):
    decode_to_file(tiny_recognizer, corpus, out, "key", 2)
    assert sorted(heard + killed) == sorted(cut.id for cut in corpus.cuts)
    whole = tmp_path / "whole.jsonl"
    decode_to_file(tiny_recognizer, corpus, whole, "key", 2)
    assert out.read_bytes() == whole.read_bytes()
    assert [each.name for each in out.parent.iterdir()] == [out.name]


def test_another_key_begins_anew(tiny_recognizer, corpus, out, killed, heard):
    decode_to_file(tiny_recognizer, corpus, out, "other", 2)
    assert sorted(heard) == sorted(cut.id for cut in corpus.cuts)


def test_an_utterance_whose_line_was_cut_off_is_decoded_again(tiny_recognizer, corpus, out, killed, heard):
    content = partial(out).read_bytes()
    partial(out).write_bytes(content[:-9])
    decode_to_file(tiny_recognizer, corpus, out, "key", 2)
    assert killed[-1] in heard
    assert not set(killed[:-1]) & set(heard)
    assert len(read_transcripts(out)) == 7


def test_a_decoding_stopped_at_its_very_end_decodes_nothing_again(
    tiny_recognizer, corpus, out, alone, heard, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(module.Meter, "advance", stop_at(7))
        with pytest.raises(KeyboardInterrupt):
            decode_to_file(tiny_recognizer, corpus, out, "key")
    heard.clear()
    decode_to_file(tiny_recognizer, corpus, out, "key")
    assert heard == []
    assert len(read_transcripts(out)) == 7


def test_what_was_decoded_of_a_larger_corpus_stays_out(tiny_recognizer, corpus, out, killed):
    """The key tells the corpus too; should it ever not, no stranger slips into the file."""
    smaller = Corpus([cut for cut in corpus.cuts if cut.id != killed[0]], corpus.audio, "smaller")
    decode_to_file(tiny_recognizer, smaller, out, "key", 2)
    assert [each.id for each in read_transcripts(out)] == [cut.id for cut in smaller.cuts]
