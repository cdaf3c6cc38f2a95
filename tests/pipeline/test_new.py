import random
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_run import command, files, make_folders

from priormatch.config import load_settings, recipe_path
from priormatch.config.reference import meanings
from priormatch.data.tokenizer import CONTROL_PIECES, Tokenizer, train_tokenizer
from priormatch.pipeline.new import pieces_for, sizes_for
from priormatch.pipeline.run_data import make_data
from priormatch.pipeline.stages import Run

WORDS = ("new", "my.yaml", "--labeled", "labeled", "--unlabeled", "unlabeled", "--text", "text.txt")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_folders(tmp_path)
    return tmp_path


def chosen(hours: float, gpu: bool, cores: int = 8) -> dict[str, Any]:
    rules = sizes_for(hours, 1000, gpu, cores)
    return {key: value for rule in rules for key, value in rule.chosen.items()}


def test_the_recipe_loads_and_says_what_each_setting_means(folder: Path) -> None:
    assert command(*WORDS, "--test", "calls=test", "--test", "more=test") == 0
    settings = load_settings(folder / "my.yaml")
    assert (settings.name, settings.labeled, settings.text) == ("my", "labeled", "text.txt")
    assert settings.test == {"calls": "test", "more": "test"}
    own = load_settings(recipe_path("own"))
    assert settings.matching.loss_weight == own.matching.loss_weight
    written = (folder / "my.yaml").read_text()
    wrapped = " ".join(written.replace("#", " ").split())
    for key in ("training.updates", "matching.length_filter", "model.kind"):
        assert meanings()[key] in wrapped


@pytest.mark.parametrize("gpu", [False, True])
def test_how_often_the_proposal_may_be_replaced_is_left_to_the_recipe_it_builds_on(gpu: bool) -> None:
    assert "matching.refresh_every" not in chosen(100, gpu)


def test_small_models_hear_most_of_what_is_said() -> None:
    small = chosen(1, gpu=False)
    assert 2 * small["training.augment.frequency_width"] <= small["model.n_mels"]
    assert (small["model.dropout"], small["training.augment.time_masks"]) == (0.0, 0)
    assert "training.augment.frequency_width" not in chosen(1, gpu=True)


def test_too_little_speech_is_said_on_the_screen_and_in_the_recipe(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*WORDS) == 0
    told = "12s of transcribed speech is too little to train a recognizer"
    assert told in capsys.readouterr().err
    assert told in " ".join((folder / "my.yaml").read_text().replace("#", " ").split())


def test_its_data_and_pieces_are_accepted_by_a_run(folder: Path) -> None:
    assert command(*WORDS) == 0
    settings = load_settings(folder / "my.yaml")
    run = Run(folder / "run", settings, make_data(settings, folder / "run"))
    tokenizer = Tokenizer.load(run.make(run.tokenizer()))
    assert tokenizer.classes == settings.tokenizer.pieces - 2


def test_the_commands_it_names_can_be_typed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("new", "my own.yaml", *WORDS[2:]) == 0
    assert "run it with `priormatch run 'my own.yaml'`" in capsys.readouterr().err
    assert "`priormatch run 'my own.yaml'`" in (folder / "my own.yaml").read_text()


def test_paths_are_written_as_they_stand(folder: Path) -> None:
    (folder / "labeled").rename(folder / "a: b, 'c' #1")
    assert command("new", "007.yaml", "--labeled", "a: b, 'c' #1", *WORDS[4:], "--test", "yes=test") == 0
    settings = load_settings(folder / "007.yaml")
    assert (settings.name, settings.labeled, settings.test) == ("007", "a: b, 'c' #1", {"yes": "test"})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({1: "tiny.yaml"}, "tiny.yaml already exists"),
        ({1: "no/such/my.yaml"}, "is not a folder"),
        ({3: "nowhere"}, "nowhere: there is no such"),
        ({3: "unlabeled"}, "contains no transcribed utterance"),
        ({5: "text.txt"}, "is not a list of audio"),
        ({7: "nowhere"}, "no text file nowhere"),
        ({8: "--test", 9: "test"}, "each test set needs a unique name"),
        ({8: "--test", 9: "a=unlabeled"}, "test a: unlabeled contains no transcribed"),
        ({8: "--test", 9: "a=test", 10: "--test", 11: "a=labeled"}, "a unique name"),
        ({8: "--test", 9: "a/b=test"}, "plain name"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str], change: dict[int, str], expected: str
) -> None:
    before = files(folder)
    words = {**dict(enumerate(WORDS)), **change}
    assert command(*words.values()) == 2
    assert expected in capsys.readouterr().err.splitlines()[-1]
    assert files(folder) == before


@pytest.mark.parametrize(
    ("line", "kind"),
    [("Grüße, schöne Straße!", "unicode"), ("Işık ılık", "turkic"), ("Monday at 10", "english")],
)
def test_another_language_is_seen_from_its_letters(folder: Path, line: str, kind: str) -> None:
    (folder / "text.txt").write_text(f"{line}\n" * 20)
    assert command(*WORDS) == 0
    assert load_settings(folder / "my.yaml").language.normalizer == kind
    assert ("# - The normalizer" in (folder / "my.yaml").read_text()) == (kind != "english")


def test_more_labeled_speech_is_trained_on_for_longer() -> None:
    assert chosen(0.5, gpu=True)["training.updates"] == 10_000
    assert chosen(40, gpu=True)["training.updates"] == 40_000
    assert chosen(40, gpu=True)["matching.updates"] == 40_000
    assert [chosen(1, True, cores)["audio.workers"] for cores in (1, 4, 64)] == [1, 2, 8]


def test_a_cpu_gets_the_demos_models() -> None:
    sizes, demo = chosen(40, gpu=False), load_settings(recipe_path("demo"))
    for key in ("model.size", "model.channels", "prior.model.bottlenecks", "training.batch.seconds"):
        assert sizes[key] == attrgetter(key)(demo)
    assert sizes["training.updates"] < chosen(0, gpu=True)["training.updates"]


def test_a_gpu_keeps_the_models_of_the_base(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert command(*WORDS) == 0
    assert load_settings(folder / "my.yaml").model == load_settings(recipe_path("own")).model


@pytest.mark.parametrize("seed", range(10))
def test_a_tokenizer_of_so_many_pieces_can_be_trained(seed: int) -> None:
    drawn = random.Random(seed)
    words = ["".join(drawn.choices("abcdefgh", k=drawn.randint(1, 8))) for _ in range(drawn.randint(1, 50))]
    text = [" ".join(drawn.choices(words, k=drawn.randint(1, 6))) for _ in range(drawn.randint(1, 80))]
    assert train_tokenizer(text, pieces_for(text)).classes == pieces_for(text) - CONTROL_PIECES + 1, (
        "with the end"
    )


def test_every_letter_gets_a_piece_however_many_there_are() -> None:
    text = [chr(0x4E00 + number) for number in range(2000)]
    assert pieces_for(text) == 2004
    assert pieces_for([f"word{number}" for number in range(3000) for _ in range(3)]) == 1000


def test_a_gpu_gets_ctc_over_characters_and_a_cpu_the_demos_models() -> None:
    own, demo = load_settings(recipe_path("own")), load_settings(recipe_path("demo"))
    assert (own.model.kind, own.model.encoder, own.tokenizer.kind) == ("ctc", "conformer", "characters")
    assert own.prior.pieces == 0  # one tokenizer, so that the prior can take part in searches
    assert not {key for key in chosen(10, gpu=True) if key.endswith("pieces")}
    small = chosen(10, gpu=False)
    for key in ("model.kind", "model.encoder", "tokenizer.kind", "prior.pieces"):
        assert small[key] == attrgetter(key)(demo)
    assert small["tokenizer.pieces"] == 1000
