import pytest
import torch

from priormatch.config import AudioSettings
from priormatch.data.batches import Corpus
from priormatch.errors import UserError
from priormatch.evaluation import decoding as module
from priormatch.evaluation.decoding import (
    Transcript,
    decode,
    decode_with_progress,
    mean_cer,
    read_transcripts,
    validation_errors,
    write_transcripts,
)


@pytest.fixture
def corpus(tiny_corpus):
    return Corpus.load(tiny_corpus(7), AudioSettings(workers=0))


def test_transcripts_come_in_the_order_of_the_corpus_and_know_their_references(tiny_recognizer, corpus):
    found = decode_with_progress(tiny_recognizer, corpus, "decoding")
    assert [each.id for each in found] == [cut.id for cut in corpus.cuts]
    assert [each.reference for each in found] == [cut.supervisions[0].text for cut in corpus.cuts]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_batches_do_not_change_the_transcripts(tiny_recognizer, corpus, monkeypatch, beam_size):
    together = {each.id: each for each in decode(tiny_recognizer, corpus, beam_size)}
    monkeypatch.setattr(module, "BATCH_SECONDS", 0.01)
    alone = {each.id: each for each in decode(tiny_recognizer, corpus, beam_size)}
    assert together.keys() == alone.keys()
    for name, one in together.items():
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


def test_one_unreadable_utterance_is_named_and_left_out(tiny_recognizer, corpus, capsys):
    break_audio(corpus, 2)
    found = decode_with_progress(tiny_recognizer, corpus, "decoding")
    assert [each.id for each in found] == [cut.id for i, cut in enumerate(corpus.cuts) if i != 2]
    assert f"{corpus.cuts[2].id} cannot be read and is skipped" in capsys.readouterr().err


def test_too_many_unreadable_utterances_stop(tiny_recognizer, corpus):
    break_audio(corpus, 1, 2, 3)
    with pytest.raises(UserError, match=r"3 of 7 utterances cannot be read: .*audio\.max_bad_share"):
        decode_with_progress(tiny_recognizer, corpus, "decoding")
    with pytest.raises(UserError, match=r"3 of 7 utterances cannot be read"):
        validation_errors(tiny_recognizer, {"dev": corpus})


def test_transcripts_survive_being_written(tmp_path):
    several = [
        Transcript("a", "at nine", 2, "at ten", [("at nine", -1.5), ("at", -2.0)]),
        Transcript("b\u2028c\x85", "naïve\u2028", 2, "", [("x", -1.0), ("y", -2.0)]),
        Transcript("d", "", 0, None, []),
    ]
    path = tmp_path / "new" / "decoded.jsonl"
    write_transcripts(path, several)
    assert read_transcripts(path) == several
    assert [each.name for each in path.parent.iterdir()] == ["decoded.jsonl"]


@pytest.mark.parametrize(
    "content", [b"{half", b"3\n", b"[]\n", b"null\n", b'{"id": "a"}\n', b"\x1f\x8b\x08\xff\xff", b'"text"\n']
)
def test_what_is_no_transcript_names_file_and_line(tmp_path, content):
    path = tmp_path / "decoded.jsonl"
    path.write_bytes(b'{"id": "a", "hypothesis": "x"}\n' + content)
    with pytest.raises(UserError, match=r"decoded\.jsonl:2: not a transcript"):
        read_transcripts(path)


def test_missing_and_empty_files_are_named(tmp_path):
    with pytest.raises(UserError, match=r"no transcripts at .*nowhere\.jsonl"):
        read_transcripts(tmp_path / "nowhere.jsonl")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(UserError, match=r"empty\.jsonl holds no transcripts"):
        read_transcripts(tmp_path / "empty.jsonl")
