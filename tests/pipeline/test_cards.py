"""What the cards of models say, and that the Hub's own library understands it."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from priormatch.config import AudioSettings, CardSettings, ConformerSettings, ModelSettings, Settings
from priormatch.data.corpus import Corpus
from priormatch.data.tokenizer import train_tokenizer
from priormatch.pipeline.cards import (
    Trained,
    add_results,
    called,
    heard,
    judged,
    leave_card,
    parameters,
    plain_card,
    title_of,
    trained_card,
    with_license,
    with_results,
)
from priormatch.recognizers.card import CARD, Card, read_card
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer

TESTS = {
    "clean": {"wer": 4.616, "wer_interval": [3.935, 5.331], "cer": 3.781},
    "other": {"wer": 6.658, "wer_interval": [5.834, 7.510], "cer": 5.294},
}
RESULTS = {"systems": {"lpm": TESTS}, "notes": ["of the sets that chose it"]}


def trained(model: SpeechRecognizer | ConvPrior, **wanted: str) -> Card:
    facts = Trained("Trained.", ["speech: some"], "CER: 5 %", {"model": ModelSettings(), "seed": 3})
    return trained_card("tones", model, facts, CardSettings(**wanted))


def test_a_recognizer_and_a_prior_are_told_apart(
    tiny_recognizer: SpeechRecognizer, tiny_prior: ConvPrior
) -> None:
    assert plain_card("x", tiny_recognizer).facts["pipeline_tag"] == "automatic-speech-recognition"
    assert plain_card("x", tiny_prior).facts["pipeline_tag"] == "text-generation"
    assert "Prior.load(" in plain_card("x", tiny_prior).sections["Use"]
    use = plain_card("x", tiny_recognizer).sections["Use"]
    assert 'Recognizer.load("MODEL")\nprint(model.transcribe("talk.wav").text)' in use
    assert "`priormatch transcribe MODEL recordings`" in use
    assert "normalizer" not in plain_card("x", tiny_recognizer).summary
    assert "at most 12 word pieces" in plain_card("x", tiny_recognizer).sections["Limits"]


def test_a_license_is_told_or_asked_for(tiny_recognizer: SpeechRecognizer) -> None:
    asked = trained(tiny_recognizer)
    assert asked.facts.keys().isdisjoint({"license", "language"})
    assert "None has been chosen yet" in asked.sections["License"]
    told = trained(tiny_recognizer, license="cc-by-4.0", language="de")
    assert (told.facts["license"], told.facts["language"]) == ("cc-by-4.0", "de")
    assert "License" not in told.sections


@pytest.mark.parametrize("asked", ["License", "Licence"])
def test_a_chosen_license_replaces_the_request_for_one_of_any_version(asked: str) -> None:
    card = Card({}, "model", "A model.", {"Use": "So.", asked: "None has been chosen yet."})
    chosen = with_license(card, "cc-by-4.0")
    assert (chosen.facts, chosen.sections) == ({"license": "cc-by-4.0"}, {"Use": "So."})


def test_speech_is_named_without_its_place(tiny_corpus: Callable[..., Path]) -> None:
    corpus = Corpus.load(tiny_corpus(["monday"] * 5, name="train"), AudioSettings())
    assert heard("speech", corpus, Settings()).startswith("speech: train (")
    assert heard("speech", corpus, Settings()).endswith("s, 5 utterances)")


def test_what_a_run_has_made_is_called_as_its_source() -> None:
    own = Settings(runs="r", name="mine", labeled="/home/ann/calls", text="more/books.txt")
    manifest = Path("r/mine/data/labeled.jsonl.gz")
    assert called(manifest, own) == "calls"
    assert called(Path("r/mine/data/text.txt"), own) == "books.txt"
    assert called(Path("elsewhere/labeled.jsonl.gz"), own) == "labeled"
    assert called(manifest, replace(own, corpus="demo")) == "labeled of the demo corpus"
    assert title_of(Path("r/mine/lpm"), own) == "mine-lpm"
    assert title_of(Path("exp/lpm"), own) == "lpm"


def test_the_prior_is_told_with_the_text_it_has_learned_from(tiny_prior: ConvPrior, tmp_path: Path) -> None:
    size = f"a language model of {parameters(tiny_prior)} parameters"
    assert judged(tiny_prior, None) == judged(tiny_prior, tmp_path) == f"prior: {size}"
    facts = Trained("", ["text: books (9 sentences)"], "", {})
    leave_card(tmp_path, trained_card("words", tiny_prior, facts, CardSettings()))
    assert judged(tiny_prior, tmp_path) == f"prior: words, {size}, trained on books (9 sentences)"


def test_language_and_date_are_told(tiny_recognizer: SpeechRecognizer) -> None:
    sections = trained(tiny_recognizer, language="en").sections
    assert sections["Data"].splitlines()[-1] == ("- language: en, normalizer `english`")
    assert "language: not set (card.language)" in trained(tiny_recognizer).sections["Data"]
    assert re.search(r"numpy [\w.]+, on \d{4}-\d\d-\d\d\.$", sections["Made with"])


def test_results_are_a_table_and_what_the_hub_reads(
    tiny_recognizer: SpeechRecognizer, tmp_path: Path
) -> None:
    from huggingface_hub import ModelCard

    leave_card(tmp_path, trained(tiny_recognizer))
    for _ in range(2):  # a run that is called again says the same once more
        add_results({"lpm": tmp_path}, RESULTS)
    card = read_card(tmp_path)
    assert card is not None
    assert card.sections["Results"].splitlines() == [
        "- CER: 5 %",
        "- on test sets, with greedy search:",
        "",
        "| test set | WER, % (95 %) | CER, % |",
        "|---|---|---|",
        "| clean | 4.62 (3.94-5.33) | 3.78 |",
        "| other | 6.66 (5.83-7.51) | 5.29 |",
        "",
        "of the sets that chose it",
    ]
    read = ModelCard.load(tmp_path / CARD).data
    assert read.model_name == "tones"
    figures = {(each.dataset_name, each.metric_type): each.metric_value for each in read.eval_results}
    assert figures["clean", "wer"] == 4.62
    assert figures["other", "cer"] == 5.29
    assert len(figures) == 4


def test_a_set_without_words_has_no_result(tiny_recognizer: SpeechRecognizer) -> None:
    card = trained(tiny_recognizer)
    nothing = {"wer": math.nan, "wer_interval": [math.nan, math.nan], "cer": math.nan}
    assert with_results(card, {"silent": nothing}, []) == card
    assert "silent" not in with_results(card, {**TESTS, "silent": nothing}, []).sections["Results"]


def test_an_edited_card_is_left_alone_and_that_is_said(
    tiny_recognizer: SpeechRecognizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_card(tmp_path, trained(tiny_recognizer))
    edited = (tmp_path / CARD).read_text().replace("Trained.", "Trained by me.")
    (tmp_path / CARD).write_text(edited)
    leave_card(tmp_path, trained(tiny_recognizer))
    add_results({"lpm": tmp_path}, RESULTS)
    assert (tmp_path / CARD).read_text() == edited
    assert capsys.readouterr().err.count("has been edited") == 2
    add_results({"lpm": tmp_path / "nowhere"}, RESULTS)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("kind", "weight", "encoder", "network"),
    [
        ("attention", 0.0, "tds", "time-depth separable convolutions, and a GRU that attends to the frames"),
        ("ctc", 0.0, "conformer", "a Conformer, and a CTC output layer"),
        (
            "hybrid",
            0.0,
            "tds",
            "a GRU that attends to the frames; a CTC output layer only helped to train it",
        ),
        (
            "hybrid",
            0.3,
            "tds",
            "convolutions, a GRU that attends to the frames, and a CTC output layer with weight 0.3 in the search",
        ),
    ],
)
def test_a_card_names_the_network_that_there_is(
    tiny_model_settings: ModelSettings,
    tiny_sentences: list[str],
    kind: str,
    weight: float,
    encoder: str,
    network: str,
) -> None:
    sizes = ConformerSettings(width=16, layers=1, heads=2, kernel=5)
    wanted: dict[str, Any] = {"kind": kind, "ctc_weight": weight, "encoder": encoder, "conformer": sizes}
    characters = train_tokenizer(tiny_sentences, 0, kind="characters")
    card = plain_card("x", SpeechRecognizer(replace(tiny_model_settings, **wanted), characters))
    assert f"{network}. " in card.summary
    assert f"{characters.classes} classes, characters and the end of sentence." in card.summary
    bounded = kind == "attention" or (kind == "hybrid" and weight == 0)
    assert ("at most 12 characters at a time" in card.sections["Limits"]) == bounded
