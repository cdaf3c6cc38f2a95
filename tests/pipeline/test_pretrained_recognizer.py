"""The verbs that start from a Hugging Face recognizer: run, match, train, new, doctor."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hf_models import tiny_gpt2
from narrowing import present
from tiny_hf import LANGUAGE
from tiny_run import command, files, make_folders

from priormatch.config import load_settings, recipe_path
from priormatch.doctor.recipe import data_findings, recognizer_findings
from priormatch.pipeline.recipe import recipe_of_writing
from priormatch.recognizers.card import read_card
from priormatch.recognizers.hf_recognizer import HuggingFaceRecognizer
from priormatch.recognizers.load import load_recognizer
from priormatch.runs.stage import read_record

SPEECH = ("labeled=labeled", "unlabeled=unlabeled", "test.clean=test")
SHORT = (
    "threads=1",
    "audio.workers=0",
    "training.updates=4",
    "training.batch.seconds=8",
    "training.validate_every=2",
    "training.report_every=1",
    "matching.updates=4",
    "matching.batch.seconds=8",
    "matching.refresh_every=2",
    "matching.length_filter=[]",
    "matching.max_proposal_cer=1000",
)


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_folders(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", ["wav2vec2", "whisper"])
def test_a_run_fine_tunes_and_matches_it_with_a_prior_of_words(
    at_home: Path, hf_folder: Callable[[str], Path], kind: str
) -> None:
    given = hf_folder(kind)
    before = files(given)
    words = [
        "run",
        "pretrained",
        *SPEECH,
        "text=text.txt",
        f"pretrained.recognizer={given}",
        *SHORT,
        "--force",
    ]
    words += [f"pretrained.language={LANGUAGE[kind]}"] if kind in LANGUAGE else []
    assert command(*words, "longer_supervised=false") == 0
    folder = at_home / "runs/pretrained"
    assert not (folder / "tokenizer").exists()
    record = read_record(folder / "supervised")
    assert record is not None
    assert "model" not in record["recipe"]["settings"]
    assert str(given) in record["recipe"]["inputs"]["tokenizer"]
    for stage in ("supervised", "lpm"):
        model = load_recognizer(folder / stage / "model")
        assert isinstance(model, HuggingFaceRecognizer)
        card = present(read_card(folder / stage / "model"))
        assert card.facts["library_name"] == "transformers"
        assert f"from `{given}`" in card.summary
    assert (folder / "report.html").is_file()
    assert files(given) == before

    made = files(folder / "supervised")
    assert command(*words, "longer_supervised=false", "matching.loss_weight=0.5") == 0
    assert files(folder / "supervised") == made
    assert (folder / "lpm.1").is_dir()


def test_one_command_matches_folders_of_models_and_speech(
    at_home: Path, hf_folder: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    prior = tiny_gpt2(at_home / "lm")
    models = ("--model", hf_folder("wav2vec2"), "--prior", prior)
    speech = ("--labeled", "labeled", "--unlabeled", "unlabeled", "--out", "out")
    words = ("match", *models, *speech, "validation_share=0.25", "pretrained.train=lora", *SHORT)
    assert command(*words) == 0
    assert "using --recipe pretrained" in capsys.readouterr().err
    start, matched = load_recognizer(hf_folder("wav2vec2")), load_recognizer("out/model")
    assert matched.state_dict().keys() == start.state_dict().keys()
    card = (at_home / "out/model/README.md").read_text()
    assert "a pretrained language model" in card
    assert "channels" not in card  # the settings of our own networks
    made = files(at_home / "out")
    assert command(*words) == 0
    assert files(at_home / "out") == made


def test_models_are_read_before_speech_is_converted_and_a_corrected_command_works(
    at_home: Path, hf_folder: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    prior, other = tiny_gpt2(at_home / "lm"), hf_folder("moonshine")
    speech = ("--labeled", "labeled", "--unlabeled", "unlabeled", "--out", "out", "validation_share=0.25")
    words = ("match", "--model", hf_folder("whisper"), *speech, *SHORT)
    for wrong, said in (
        (("--prior", prior), "set pretrained.language, for example to en"),
        (("--prior", hf_folder("wav2vec2"), "pretrained.language=en"), "not a causal language model"),
        (("--prior", prior, "--proposal", prior, "pretrained.language=en"), "not a speech recognizer"),
        (("--prior", prior, "--model", hf_folder("hubert"), "--proposal", other), "tokenizer differs"),
    ):
        assert command(*words, *wrong) == 2
        assert said in capsys.readouterr().err
        assert not (at_home / "out/data").exists()
    assert command(*words, "--prior", prior, "pretrained.language=en") == 0
    assert command("match", "--model", "nowhere", "--prior", prior, *speech) == 2
    assert "--model nowhere does not exist" in capsys.readouterr().err


def test_labels_in_another_script_are_refused_and_single_letters_named(
    at_home: Path, hf_folder: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    def write(text: str) -> None:
        for number, file in enumerate(at_home.rglob("labeled/*/*.txt")):
            file.write_text(text if number % 2 else "nine")

    models = ("--model", hf_folder("wav2vec2"), "--prior", tiny_gpt2(at_home / "lm"))
    words = ("match", *models, "--labeled", "labeled", "--unlabeled", "unlabeled", *SHORT)
    write("καλημέρα")
    assert command(*words, "--out", "greek") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "of the letters in the transcripts of greek/data/" in said
    assert "provide a recognizer of their language" in said
    write("monday at the café")
    assert command(*words, "--out", "accent") == 0
    assert "are left out of the labels: é" in capsys.readouterr().err


def test_validation_speech_without_transcripts_is_named(
    at_home: Path, hf_folder: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    models = ("--model", hf_folder("wav2vec2"), "--prior", tiny_gpt2(at_home / "lm"))
    speech = ("--unlabeled", "unlabeled", "--validation", "unlabeled", "--out", "out")
    assert command("match", *models, *speech, *SHORT) == 2
    assert "validation/unlabeled=unlabeled contains no transcribed utterance" in capsys.readouterr().err


def test_training_takes_it_in_place_of_a_tokenizer(
    at_home: Path, hf_folder: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("labeled", "test"):
        assert command("prepare", "audio", name, "--out", f"{name}.jsonl.gz") == 0
    words = (
        "train",
        "--labeled",
        "labeled.jsonl.gz",
        "--validation",
        "test.jsonl.gz",
        "--recipe",
        "pretrained",
    )
    assert command(*words, "--out", "sup", *SHORT) == 2
    assert "there is no tokenizer: pass --tokenizer, or set pretrained.recognizer" in capsys.readouterr().err
    given = f"pretrained.recognizer={hf_folder('hubert')}"
    assert command(*words, "--out", "sup", given, "training.optimizer.learning_rate=0.001", *SHORT) == 0
    lines = [json.loads(line) for line in (at_home / "sup/metrics.jsonl").read_text().splitlines()]
    assert [line["update"] for line in lines if "validation_score" in line] == [0, 2, 4]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[-1] < losses[0]
    decoded = ("decode", "--model", "sup/model", "--cuts", "test.jsonl.gz", "--out", "test.jsonl")
    assert command(*decoded) == 0
    assert len((at_home / "test.jsonl").read_text().splitlines()) == 8


def test_a_prior_beside_it_needs_tokens_of_its_own(hf_folder: Callable[[str], Path], at_home: Path) -> None:
    asked = ("run", "tiny.yaml", *SPEECH, "text=text.txt", f"pretrained.recognizer={hf_folder('wav2vec2')}")
    assert command(*asked) == 2
    assert not (at_home / "runs").exists()


def test_verbs_tell_whisper_its_language(
    at_home: Path, hf_folder: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("prepare", "audio", "test", "--out", "test.jsonl.gz") == 0
    whisper, prior = hf_folder("whisper"), tiny_gpt2(at_home / "lm")
    recording = next((at_home / "test").rglob("*.wav"))
    transcribe = ("transcribe", whisper, recording, "--out", "written", "--language")
    assert command(*transcribe[:-1]) == 2
    assert "--language en" in capsys.readouterr().err
    assert command(*transcribe, "en") == 0
    assert command(*transcribe, "de") == 2
    assert "was made with another language" in capsys.readouterr().err
    models = ("--model", whisper, "--prior", prior)
    english = ("pretrained.language=en", "threads=1", "audio.workers=0")
    assert command("hypotheses", *models, "--cuts", "test.jsonl.gz", "--count", 2, *english) == 0
    sets = ("--validation", "test.jsonl.gz", "--out", "tuned.yaml", "training.validate_on=2")
    assert command("tune", *models, *sets, *english) == 0
    settings = [load_settings(None, [f"pretrained.language={each}"]) for each in ("en", "de")]
    assert recipe_of_writing(settings[0].pretrained) != recipe_of_writing(settings[1].pretrained)


def test_new_writes_a_recipe_for_pretrained_models(
    at_home: Path, hf_folder: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    prior = tiny_gpt2(at_home / "lm")
    speech = ("--labeled", "labeled", "--unlabeled", "unlabeled")
    models = ("--model", hf_folder("whisper"), "--prior", prior, "--language", "en")
    assert command("new", "my.yaml", *speech, *models) == 0
    settings = load_settings(at_home / "my.yaml")
    assert settings.pretrained.recognizer == str(hf_folder("whisper"))
    assert settings.pretrained.language == "en"
    assert settings.prior.pretrained == str(prior)
    assert not settings.needs_text
    assert "base: pretrained" in (at_home / "my.yaml").read_text()
    assert command("new", "other.yaml", *speech, "--model", hf_folder("whisper")) == 2
    assert "there is no text" in capsys.readouterr().err
    assert command("new", "other.yaml", *speech, "--text", "text.txt", "--model", "labeled") == 2
    assert "config.json is missing" in capsys.readouterr().err
    for model, said in (
        (hf_folder("whisper"), "--language en, for commands"),
        (prior, "is not a speech recognizer"),
    ):
        assert command("new", "other.yaml", *speech, "--text", "text.txt", "--model", model) == 2
        assert said in capsys.readouterr().err
    assert not (at_home / "other.yaml").exists()


def test_doctor_reads_it_and_names_letters_that_it_cannot_write(
    at_home: Path, hf_folder: Callable[[str], Path]
) -> None:
    given = hf_folder("wav2vec2")
    settings = load_settings(None, [f"pretrained.recognizer={given}", "prior.kind=ngram"])
    found = {each.status: each.what for each in recognizer_findings(settings, ["at nine"])}
    assert "can be read" in found["ok"]
    assert "problem" not in found
    lost = [each for each in recognizer_findings(settings, ["schöne größe"]) if each.status == "problem"]
    assert len(lost) == 1
    assert "ß ö" in lost[0].what
    for file in at_home.rglob("labeled/*/*.txt"):
        file.write_text("καλημέρα")
    own = load_settings(
        recipe_path("pretrained"), [*SPEECH, "text=text.txt", f"pretrained.recognizer={given}"]
    )
    whats = [each.what for each in data_findings(own) if each.status == "problem"]
    assert any("never occur in the transcripts" in each for each in whats)
    assert not any("tokenizer.source" in each for each in whats)
    nowhere = load_settings(None, ["pretrained.recognizer=labeled", "prior.kind=ngram"])
    assert [each.status for each in recognizer_findings(nowhere, [])] == ["problem"]
