"""Choosing utterances to validate and to match on, and pseudo-labels."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from lhotse import CutSet
from narrowing import present

from priormatch.config import AudioSettings, ModelSettings, load_settings
from priormatch.data.corpus import Corpus, cut_text
from priormatch.data.tokenizer import Tokenizer, train_tokenizer
from priormatch.errors import UserError
from priormatch.pipeline.match import with_lengths
from priormatch.pipeline.match_files import transcribed_sample
from priormatch.pipeline.recipe import recipe_of_matching, recipe_of_schedule, recipe_of_training
from priormatch.pipeline.work import load_validation, report_misfits, schedule_of, thin
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.training.loop import Schedule
from priormatch.training.optimizer import learning_rate


@pytest.fixture
def corpus(tiny_corpus: Callable[..., Path]) -> Corpus:
    return Corpus.load(tiny_corpus(9), AudioSettings(workers=0))


def ids(corpus: Corpus) -> list[str]:
    return [cut.id for cut in corpus.cuts]


@pytest.mark.parametrize("most", [1, 4, 8])
def test_thinning_keeps_an_exact_number_always_the_same_in_order(corpus: Corpus, most: int) -> None:
    kept = ids(thin(corpus, most))
    assert len(kept) == most
    assert kept == ids(thin(corpus, most))
    assert kept == [each for each in ids(corpus) if each in kept]
    assert thin(corpus, most).name == corpus.name


def test_thinning_does_not_take_the_first(corpus: Corpus) -> None:
    assert ids(thin(corpus, 4)) != ids(corpus)[:4]  # they may all be of one speaker


@pytest.mark.parametrize("most", [0, 9, 100])
def test_nothing_to_thin(corpus: Corpus, most: int) -> None:
    assert thin(corpus, most) is corpus


def test_validation_sets_are_thinned_each(tiny_corpus: Callable[..., Path]) -> None:
    settings = load_settings(None, ["training.validate_on=3", "audio.workers=0"])
    sets = load_validation({"many": tiny_corpus(5, "many"), "few": tiny_corpus(2, "few")}, settings)
    assert {name: len(each) for name, each in sets.items()} == {"many": 3, "few": 2}


@pytest.fixture
def transcribed(corpus: Corpus, tmp_path: Path) -> Path:
    """The corpus with its transcripts, but for that of tiny-2."""
    path = tmp_path / "known.jsonl.gz"
    CutSet.from_cuts(cut.drop_supervisions() if cut.id == "tiny-2" else cut for cut in corpus.cuts).to_file(
        path
    )
    return path


def sample(transcribed: Path, corpus: Corpus, *overrides: str) -> Corpus | None:
    return transcribed_sample(transcribed, corpus, load_settings(None, ["audio.workers=0", *overrides]))


def test_labels_are_scored_on_unlabeled_utterances_whose_transcripts_are_known(
    transcribed: Path, corpus: Corpus
) -> None:
    unlabeled = Corpus(corpus.cuts[:6], corpus.audio)
    known = present(sample(transcribed, unlabeled))
    assert ids(known) == ["tiny-0", "tiny-1", "tiny-3", "tiny-4", "tiny-5"]
    assert all(cut_text(cut) for cut in known.cuts)


def test_they_are_so_many_and_the_same_for_every_seed(transcribed: Path, corpus: Corpus) -> None:
    few, more = (
        ids(present(sample(transcribed, corpus, f"matching.score_labels_on={most}"))) for most in (3, 5)
    )
    assert (len(few), len(more)) == (3, 5)
    assert set(few) < set(more)
    again = present(sample(transcribed, corpus, "matching.score_labels_on=3", "training.seed=7"))
    assert few == ids(again)


def test_labels_are_not_scored_where_none_is_wanted_or_known(
    transcribed: Path, corpus: Corpus, tiny_corpus: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert sample(transcribed, corpus, "matching.score_labels_on=0") is None
    assert capsys.readouterr().err == ""
    assert sample(tiny_corpus(3, "others"), corpus) is None
    assert "the proposal's labels are not scored" in capsys.readouterr().err


def test_what_is_scored_does_not_make_another_work() -> None:
    plain = recipe_of_matching(load_settings(None))
    told = ["matching.score_labels_on=7", "matching.inspect_on=3"]
    assert recipe_of_matching(load_settings(None, told)) == plain
    for another in ("baseline=slimipl", "list_once=true"):
        assert recipe_of_matching(load_settings(None, [f"matching.{another}"])) != plain


@pytest.mark.parametrize("group", ["training", "matching"])
def test_buckets_are_recorded_only_where_there_are_some(group: str) -> None:
    plain, grouped = load_settings(None), load_settings(None, [f"{group}.batch.buckets=3"])
    for recipe_of in (recipe_of_training, recipe_of_schedule, recipe_of_matching):
        recipe = recipe_of(plain)
        if group in recipe:
            assert recipe[group]["batch"] == {"seconds": 0.0, "utterances": 16}
            assert recipe_of(grouped)[group]["batch"] == {"seconds": 0.0, "utterances": 16, "buckets": 3}


def test_utterances_in_which_nothing_was_heard_are_left_out(
    corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    lengths = dict.fromkeys(ids(corpus), 3) | {"tiny-2": 0, "stranger": 5}
    del lengths["tiny-5"]
    kept = with_lengths(corpus, lengths)
    assert ids(kept) == [each for each in ids(corpus) if each not in ("tiny-2", "tiny-5")]
    assert "2 of 9 utterances have no reference length and are left out" in capsys.readouterr().err


def test_with_a_length_for_all_nothing_is_left_out(
    corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    assert with_lengths(corpus, dict.fromkeys(ids(corpus), 1)) is corpus
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("lengths", [{}, {"stranger": 4}, {"tiny-0": 0}])
def test_lengths_of_nothing_here_are_refused(corpus: Corpus, lengths: dict[str, int]) -> None:
    with pytest.raises(
        UserError, match=r"no utterance of .*tiny\.jsonl\.gz has a reference length: .*decode"
    ):
        with_lengths(corpus, lengths)


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_a_longer_training_goes_through_the_same_rates(kind: str) -> None:
    settings = load_settings(None, [f"training.optimizer.kind={kind}", "training.optimizer.warm_up=0"])
    usual, longer = (schedule_of(settings.training, settings.training.updates * n, settings) for n in (1, 10))

    def rates(schedule: Schedule) -> list[float]:
        shares = (0.0, 0.3, 0.6, 0.99)
        return [
            learning_rate(schedule.optimizer, int(share * schedule.updates), schedule.updates)
            for share in shares
        ]

    assert rates(longer) == pytest.approx(rates(usual))
    assert rates(usual)[-1] < rates(usual)[0]


@pytest.fixture
def fast(tiny_corpus: Callable[..., Path]) -> Corpus:
    return Corpus.load(tiny_corpus(["tuesday evening"] * 2, "fast"), AudioSettings(workers=0))


def test_transcripts_that_ctc_cannot_align_are_reported_or_refused(
    corpus: Corpus,
    fast: Corpus,
    tiny_model_settings: ModelSettings,
    tiny_sentences: list[str],
    tiny_tokenizer: Tokenizer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A word of the tiny language has 0.2 s: 5 frames for one word piece, or for up to 8 characters."""
    characters = train_tokenizer(tiny_sentences, 0, kind="characters")

    def model(kind: Literal["attention", "ctc", "hybrid"], tokenizer: Tokenizer) -> SpeechRecognizer:
        return SpeechRecognizer(replace(tiny_model_settings, kind=kind), tokenizer)

    report_misfits(model("ctc", tiny_tokenizer), corpus)
    assert capsys.readouterr().err == ""
    report_misfits(model("attention", characters), corpus)
    assert (
        "more characters than a hypothesis can have: raise model.longest_output=12" in capsys.readouterr().err
    )
    report_misfits(model("hybrid", characters), corpus)
    said = capsys.readouterr().err
    assert "of 9 transcripts have more characters than the encoder has frames" in said
    assert "use longer tokens (tokenizer.kind=unigram)" in said
    report_misfits(model("ctc", characters), corpus)
    assert "CTC cannot learn them" in capsys.readouterr().err
    with pytest.raises(UserError, match="CTC cannot learn them"):
        report_misfits(model("ctc", characters), fast)
