"""The doctor's checks of a recipe: its settings, its data and the models of its run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from priormatch.config import (
    AudioSettings,
    ConvLMSettings,
    Settings,
    load_settings,
    recipe_names,
    recipe_path,
)
from priormatch.data.normalizer import ENGLISH, Normalizer
from priormatch.data.tokenizer import Tokenizer
from priormatch.doctor.recipe import (
    amount_findings,
    data_findings,
    decoding_findings,
    duration_findings,
    frame_findings,
    language_findings,
    letter_findings,
    model_findings,
    output_findings,
    overlap_findings,
    settings_findings,
    speech_findings,
    text_finding,
    transcript_findings,
)
from priormatch.prepare.overview import Speech, durations_of, survey_speech
from priormatch.prepare.source import Utterance
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer

MASKS = ["training.augment.frequency_masks=2", "training.augment.frequency_width=27"]


@pytest.mark.parametrize(("mels", "given", "count"), [(40, MASKS, 1), (80, MASKS, 0), (40, MASKS[1:], 0)])
def test_masks_wider_than_half_of_the_mel_bands_are_a_warning(mels: Any, given: Any, count: Any) -> None:
    found = list(settings_findings(load_settings(None, [f"model.n_mels={mels}", *given])))
    assert [str(each) for each in found] == count * [
        "warning  training.augment.frequency_width=27 may mask most of the model.n_mels=40 mel bands; "
        "lower it to about 10"
    ]


@pytest.mark.parametrize("name", recipe_names())
def test_the_shipped_recipes_have_no_warnings(name: Any) -> None:
    assert not list(settings_findings(load_settings(recipe_path(name))))


def statuses(found: Any) -> Any:
    return [each.status for each in found]


@pytest.mark.parametrize(
    ("tried", "bad", "status"), [(20, 0, "ok"), (20, 1, "warning"), (20, 2, "problem"), (1, 1, "problem")]
)
def test_files_that_cannot_be_decoded(tried: Any, bad: Any, status: Any) -> None:
    found = list(decoding_findings("labeled", tried, [(Path("x.wav"), "empty")] * bad, 0.05))
    assert statuses(found) == [status]
    assert ("x.wav (empty)" in found[0].what) == bool(bad)


def test_utterances_that_would_be_skipped() -> None:
    audio = AudioSettings(shortest=1, longest=10)
    assert statuses(duration_findings("x", [1, 5, 10], audio)) == []
    short, long = duration_findings("x", [0.5, 5, 11.5], audio)
    assert statuses([short, long]) == ["warning", "warning"]
    assert short.what == "x: 1 of 3 utterances would be skipped: shorter than 1 s (audio.shortest)"
    assert "pauses" not in short.advice
    assert long.what == "x: 1 of 3 utterances would be skipped: longer than 10 s; the longest has 11.5 s"
    assert "cut them at pauses" in long.advice
    assert statuses(duration_findings("x", [11, 12], audio)) == ["problem"]


def test_every_unusable_file_of_many_is_named(tmp_path: Path) -> None:
    for number in range(60):
        soundfile.write(tmp_path / f"{number}.wav", np.zeros(8000), 8000)
    for number in (7, 33, 59):
        (tmp_path / f"{number}.wav").write_bytes(b"")
    settings = load_settings(None, ["audio.shortest=0.5"])
    problem, *others = speech_findings("unlabeled", survey_speech(tmp_path), settings)
    assert "60 utterances" in problem.what
    (bad, decoded) = others
    assert (bad.status, decoded.status) == ("warning", "ok")
    assert "unlabeled: 3 of 60 files cannot be used" in bad.what
    assert all(f"{number}.wav (the file is empty)" in bad.what for number in (7, 33, 59))


def test_long_untranscribed_speech_does_not_count_as_transcribed(tmp_path: Path) -> None:
    for name, seconds in (("short", 1), ("long", 100)):
        soundfile.write(tmp_path / f"{name}.wav", np.zeros(8000 * seconds), 8000)
    (tmp_path / "short.txt").write_text("hello")
    (found,) = amount_findings(survey_speech(tmp_path), None)
    assert found.what == "labeled: 1s of transcribed speech is too little to train a recognizer"


def test_a_rate_that_training_cannot_change_is_named(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros(15_013), 15_013)
    assert "15013 Hz cannot be resampled" in survey_speech(tmp_path).bad[tmp_path / "a.wav"]


@pytest.mark.parametrize(
    ("speakers", "said"),
    [([None, None], "no speakers are named, so"), (["ann", None], "only one speaker is named, so")],
)
def test_too_few_speakers_are_counted_as_they_are(speakers: list[str | None], said: str) -> None:
    utterances = [Utterance(Path, "at ten", each, 1.0) for each in speakers]
    found = list(speech_findings("labeled", Speech(utterances, [1.0, 1.0], [1.0, 1.0]), Settings()))
    assert said in found[-1].what
    assert ("speakers unknown" in found[0].what) == (speakers[0] is None)


def test_transcripts_that_are_no_words() -> None:
    assert statuses(transcript_findings("x", [], 0.05)) == ["problem"]
    assert statuses(transcript_findings("x", ["hello", "there"], 0.05)) == []
    assert statuses(transcript_findings("x", ["hello"] * 20 + ["at 9"], 0.05)) == ["warning"]
    (many,) = transcript_findings("x", ["hello", "at 9", "..."], 0.05)
    assert many.status == "problem"
    assert "has digits" in many.what


def test_letters_of_transcripts_and_text() -> None:
    assert statuses(letter_findings(["abc"], ["cab", "bca"], "text")) == ["ok"]
    (few,) = letter_findings(["a" * 99 + "é"], ["aa" * 5000], "text")
    assert few.status == "warning"
    assert (
        "1.0 % of the letters in the transcripts never occur in the text, and tokenizer.source=text"
        in few.what
    )
    assert few.what.endswith(": é")
    assert statuses(letter_findings(["да"] * 5000, ["yes"] * 5000, "text")) == ["problem", "problem"]


def test_little_of_another_language_is_a_problem_too() -> None:
    assert statuses(letter_findings(["да нет"] * 20, ["yes no"] * 20, "text")) == ["problem", "problem"]


def test_letters_missing_in_a_few_words_are_no_matter_of_spelling() -> None:
    (few,) = letter_findings(["at ten"], ["at ten", "quiz"] * 2000, "text")
    assert few.status == "warning"
    assert few.what == (
        "5 letters in the transcripts are too few to check whether text and transcripts use the same letters"
    )
    assert few.advice == "add transcripts"


@pytest.mark.parametrize(
    ("labeled", "unlabeled", "expected"),
    [
        (
            12,
            100,
            ["12s of transcribed speech is too little to train a recognizer; a small grammar"],
        ),
        (1200, 7200, ["20m00s of transcribed speech is little; a small grammar"]),
        (7200, 36_000, []),
        (7200, 3600, ["1h00m is less than the transcribed speech; matching helps"]),
    ],
)
def test_little_speech_is_reported_with_its_amount(labeled: Any, unlabeled: Any, expected: Any) -> None:
    found = list(amount_findings(speech(labeled), speech(unlabeled)))
    assert len(found) == len(expected)
    assert all(words in str(each) for each, words in zip(found, expected, strict=True))


def test_only_what_is_transcribed_counts() -> None:
    (found,) = amount_findings(speech(3600, transcripts=["at", None]), None)
    assert found.what == "labeled: 30m00s of transcribed speech is little"


def speech(seconds: Any, transcripts: Any = ("at", "ten")) -> Any:
    each = seconds / len(transcripts)
    utterances = [Utterance(Path, text, None, each) for text in transcripts]
    return Speech(utterances, *durations_of([(utterance, each) for utterance in utterances]))


def test_the_recipe_sets_the_normalizer_of_another_language() -> None:
    russian = Normalizer("unicode", "адеёиклмнопрстя")
    assert statuses(transcript_findings("x", ["Ёлка моя!"], 0.05, russian)) == []
    (foreign,) = transcript_findings("x", ["Ёлка", "жар"], 0.05, russian)
    assert "has ж, not in the alphabet" in foreign.what
    (doubt,) = language_findings({"text": ["ёлка"], "labeled": ["tree"]}, ENGLISH)
    assert (doubt.status, doubt.what[:5]) == ("warning", "text:")
    assert "language.normalizer=unicode" in doubt.advice
    assert statuses(language_findings({"text": ["ёлка"]}, russian)) == []


def test_long_recordings_that_a_run_cuts_are_not_a_problem(tiny_corpus: Callable[..., Path]) -> None:
    path = str(tiny_corpus(["monday at ten"]))
    for segment, status in ((0.0, ["problem"]), (0.2, [])):
        audio = AudioSettings(longest=0.3, segment=segment)
        found = data_findings(Settings(unlabeled=path, audio=audio))
        assert statuses(each for each in found if "would be skipped" in each.what) == status


def test_text_that_contains_the_transcripts() -> None:
    spoken = "one two three four five six seven eight nine"
    (known,) = overlap_findings({"test.a": [spoken]}, ["well", spoken])
    assert (known.status, "100.0 %" in known.what) == ("warning", True)
    (unknown,) = overlap_findings({"test.a": [spoken]}, [spoken[: len(spoken) // 2], "and so on"])
    assert unknown.status == "ok"


def test_little_text() -> None:
    assert text_finding(["a b c"]).status == "warning"
    assert text_finding(["a b c d"] * 50_000).status == "ok"


def test_all_problems_of_a_recipe_are_reported_at_once(
    tmp_path: Path, tiny_corpus: Callable[..., Path]
) -> None:
    (tmp_path / "text.txt").write_text("monday at ten\n" * 10)
    settings = Settings(
        labeled=str(tiny_corpus(["monday at ten"], name="one")),
        unlabeled="",
        text=str(tmp_path / "text.txt"),
        validation=["nowhere.jsonl.gz"],
        test={"a": str(tiny_corpus(["evening"], name="two", transcribed=False))},
    )
    problems = [each.what for each in data_findings(settings) if each.status == "problem"]
    assert len(problems) == 3
    for words in (
        "unlabeled: it is not set",
        "validation-nowhere: nowhere.jsonl.gz",
        "test.a: no transcripts",
    ):
        assert any(words in each for each in problems)


def test_validation_without_speaker_names_is_a_warning(
    tmp_path: Path, tiny_corpus: Callable[..., Path]
) -> None:
    one = str(tiny_corpus(["monday"]))
    warning = "shares speakers with training"
    assert any(warning in each.what for each in data_findings(Settings(labeled=one)))
    assert not any(warning in each.what for each in data_findings(Settings(labeled=one, validation=[one])))


def run_folder(folder: Any, recognizer: Any, prior: Any, tokenizer: Any) -> Any:
    tokenizer.save(folder / "tokenizer")
    recognizer.save(folder / "supervised" / "model")
    prior.save(folder / "prior" / "model")
    return folder


def test_models_that_agree(
    tmp_path: Path, tiny_recognizer: SpeechRecognizer, tiny_prior: ConvPrior, tiny_tokenizer: Tokenizer
) -> None:
    (finding,) = model_findings(run_folder(tmp_path, tiny_recognizer, tiny_prior, tiny_tokenizer))
    assert finding.status == "ok"
    assert "tokenizer, prior/model, supervised/model" in finding.what


def test_a_prior_of_other_pieces(
    tmp_path: Path,
    tiny_recognizer: SpeechRecognizer,
    tiny_prior_settings: ConvLMSettings,
    other_tokenizer: Tokenizer,
    tiny_tokenizer: Tokenizer,
) -> None:
    other = ConvPrior(tiny_prior_settings, other_tokenizer)
    (finding,) = model_findings(run_folder(tmp_path, tiny_recognizer, other, tiny_tokenizer))
    assert finding.status == "problem"
    assert f"{tmp_path / 'prior' / 'model'} has other word pieces" in finding.what
    assert f"remove {tmp_path / 'prior'};" in finding.advice
    other_tokenizer.save(tmp_path / "tokenizer-prior")  # a tokenizer of its own
    both = list(model_findings(tmp_path))
    assert [each.status for each in both] == ["ok", "ok"]
    assert "tokenizer-prior, prior/model in" in both[1].what


def test_damaged_models(
    tmp_path: Path, tiny_recognizer: SpeechRecognizer, tiny_prior: ConvPrior, tiny_tokenizer: Tokenizer
) -> None:
    folder = run_folder(tmp_path, tiny_recognizer, tiny_prior, tiny_tokenizer)
    weights = folder / "supervised" / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    (folder / "prior" / "model" / "model.yaml").unlink()
    *damaged, rest = model_findings(folder)
    assert [each.status for each in damaged] == ["problem", "problem"]
    assert rest.status == "ok"


def test_no_run_yet(tmp_path: Path) -> None:
    assert list(model_findings(tmp_path / "nowhere")) == []


CHARACTERS = ["tokenizer.kind=characters", "model.kind=ctc"]


@pytest.mark.parametrize(
    ("seconds", "given", "expected"),
    [
        (2.0, [*CHARACTERS, "model.encoder=conformer"], []),
        (2.0, CHARACTERS, ["warning"]),
        (1.0, CHARACTERS, ["problem"]),
        (1.0, ["model.kind=ctc"], []),
        (1.0, CHARACTERS[:1], []),
    ],
)
def test_ctc_needs_a_frame_for_each_character(seconds: float, given: Any, expected: Any) -> None:
    found = list(frame_findings(speech(seconds, ["nine or ten", "nine or ten"]), load_settings(None, given)))
    assert statuses(found) == expected
    for each in found:
        assert "12.5 frames per second" in each.what
        assert each.advice.startswith("use longer tokens (tokenizer.kind=unigram), or use more frames")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["model.kind=attention"], ["warning"]),
        (["model.kind=hybrid"], ["warning"]),
        (["model.kind=hybrid", "model.ctc_weight=0.3"], []),
        (["model.kind=ctc"], []),
        (["model.kind=attention", "model.longest_output=200"], []),
        (["model.kind=attention", "tokenizer.kind=unigram"], []),
    ],
)
def test_attention_needs_room_for_the_longest_transcript(given: list[str], expected: list[str]) -> None:
    settings = load_settings(None, ["tokenizer.kind=characters", *given])
    found = list(output_findings(speech(20.0, ["ten", "nine or " * 20]), settings))
    assert statuses(found) == expected
    assert all("up to 161 characters" in each.what for each in found)
