"""Choosing utterances to validate and to match on, and pseudo-labels."""

import pytest

from priormatch.config import AudioSettings, load_settings
from priormatch.data.batches import Corpus
from priormatch.errors import UserError
from priormatch.runs.work import load_validation, thin, with_lengths


@pytest.fixture
def corpus(tiny_corpus):
    return Corpus.load(tiny_corpus(9), AudioSettings(workers=0))


def ids(corpus):
    return [cut.id for cut in corpus.cuts]


@pytest.mark.parametrize("most", [1, 4, 8])
def test_thinning_keeps_an_exact_number_always_the_same_in_order(corpus, most):
    kept = ids(thin(corpus, most))
    assert len(kept) == most
    assert kept == ids(thin(corpus, most))
    assert kept == [each for each in ids(corpus) if each in kept]
    assert thin(corpus, most).name == corpus.name


def test_thinning_does_not_take_the_first(corpus):
    assert ids(thin(corpus, 4)) != ids(corpus)[:4]  # they may all be of one speaker


@pytest.mark.parametrize("most", [0, 9, 100])
def test_nothing_to_thin(corpus, most):
    assert thin(corpus, most) is corpus


def test_validation_sets_are_thinned_each(tiny_corpus):
    settings = load_settings(None, ["training.validate_on=3", "audio.workers=0"])
    sets = load_validation({"many": tiny_corpus(5, "many"), "few": tiny_corpus(2, "few")}, settings)
    assert {name: len(each) for name, each in sets.items()} == {"many": 3, "few": 2}


def test_utterances_in_which_nothing_was_heard_are_left_out(corpus, capsys):
    lengths = dict.fromkeys(ids(corpus), 3) | {"tiny-2": 0, "stranger": 5}
    del lengths["tiny-5"]
    kept = with_lengths(corpus, lengths)
    assert ids(kept) == [each for each in ids(corpus) if each not in ("tiny-2", "tiny-5")]
    assert "2 of 9 utterances have no reference length: left out" in capsys.readouterr().err


def test_with_a_length_for_all_nothing_is_left_out(corpus, capsys):
    assert with_lengths(corpus, dict.fromkeys(ids(corpus), 1)) is corpus
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("lengths", [{}, {"stranger": 4}, {"tiny-0": 0}])
def test_lengths_of_nothing_here_are_refused(corpus, lengths):
    with pytest.raises(
        UserError, match=r"no utterance of .*tiny\.jsonl\.gz has a reference length: .*lengths"
    ):
        with_lengths(corpus, lengths)
