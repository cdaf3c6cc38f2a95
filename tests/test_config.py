import functools
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from priormatch.config import (
    Settings,
    all_keys,
    load_settings,
    recipe_folder,
    recipe_names,
    recipe_path,
    to_yaml,
)
from priormatch.config.checks import BOUNDS, keys_of
from priormatch.errors import UserError


def numbers(kind: Any = Settings, before: str = "") -> Iterator[str]:
    """Every dotted key of a number or of a list of them."""
    for each in fields(kind):
        if is_dataclass(each.type):
            yield from numbers(each.type, f"{before}{each.name}.")
        elif each.type in (int, float, list[int], list[float], list[list[int]]):
            yield before + each.name


NUMBERS = list(numbers())
OVERRIDES = {
    "model.channels": "[-1,1,1]",
    "model.blocks": "[-1,1,1]",
    "prior.model.bottlenecks": "[[-1,1,1]]",
    "training.augment.speeds": "[-1]",
    "matching.mixing": "[-1,1]",
    "matching.length_filter": "[-1,1]",
}


def refusal(recipe: Path | None, *overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        load_settings(recipe, overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str) -> Path:
        path = tmp_path / "mine.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_that_comes_along_is_valid_and_goes_by_its_name(name: str) -> None:
    assert load_settings(recipe_folder() / f"{name}.yaml").name == name


def test_the_recipes_of_the_help_and_the_errors_come_along() -> None:
    assert {"demo", "own"} <= set(recipe_names())


def test_defaults_are_valid_and_survive_being_written_and_read(recipe: Callable[..., Path]) -> None:
    settings = load_settings(None)
    assert settings == Settings()
    assert load_settings(recipe(to_yaml(settings))) == settings


def test_every_field_has_a_key() -> None:
    def count(kind: Any) -> int:
        return sum(1 + (count(each.type) if is_dataclass(each.type) else 0) for each in fields(kind))

    keys = all_keys()
    assert len(keys) == len(set(keys)) == count(Settings)
    assert {"name", "matching", "matching.beam_size", "prior.model.bottlenecks"} <= set(keys)


def test_overrides_beat_the_recipe_and_the_last_one_wins(recipe: Callable[..., Path]) -> None:
    path = recipe("training: {seed: 5, updates: 7}\nname: mine\n")
    settings = load_settings(path, ["training.seed=6", "training.seed=8", "matching.beam_size=2"])
    assert (settings.training.seed, settings.training.updates) == (8, 7)
    assert (settings.name, settings.matching.beam_size, settings.matching.updates) == ("mine", 2, 1_600_000)


def test_lists_and_mappings_can_be_overridden() -> None:
    settings = load_settings(
        None,
        [
            "matching.mixing=[2,3]",
            "matching.length_filter=[]",
            "validation=[a.jsonl.gz, b c.jsonl.gz]",
            "test={clean: x.jsonl.gz}",
            "test.test-other=y z.jsonl.gz",
            "training.batch={seconds: 30, utterances: 0}",
        ],
    )
    assert settings.matching.mixing == [2, 3]
    assert settings.matching.length_filter == []
    assert settings.validation == ["a.jsonl.gz", "b c.jsonl.gz"]
    assert settings.test == {"clean": "x.jsonl.gz", "test-other": "y z.jsonl.gz"}
    assert (settings.training.batch.seconds, settings.training.batch.utterances) == (30.0, 0)


@pytest.mark.parametrize(
    "value",
    [
        "a folder/b",
        "k=v",
        "007",
        "1e3",
        "true",
        "no",
        "null",
        "a: b",
        "a #b",
        "[x]",
        "{x}",
        "'quoted'",
        "~",
        "*",
        "- x",
    ],
)
@pytest.mark.parametrize("key", ["text", "runs", "test.clean"])
def test_text_is_taken_as_it_stands(key: str, value: str) -> None:
    settings = load_settings(None, [f"{key}={value}"])
    assert (settings.test["clean"] if key == "test.clean" else getattr(settings, key)) == value


@given(st.text(st.characters(codec="utf-8", exclude_characters="$\x00"), min_size=1))
def test_any_path_can_be_given(value: str) -> None:
    assert load_settings(None, [f"labeled={value}"]).labeled == value


def test_a_text_setting_can_be_emptied(recipe: Callable[..., Path]) -> None:
    assert load_settings(recipe("topline: cuts.jsonl.gz\n"), ["topline="]).topline == ""


@pytest.mark.parametrize("name", ["average", "renewed", "second_round", "selected", "selected_at_random"])
def test_a_removed_setting_is_called_removed(recipe: Callable[..., Path], name: str) -> None:
    sentence = f"the setting matching.{name} no longer exists: remove it"
    with pytest.raises(UserError, match=sentence):
        load_settings(recipe(f"matching: {{{name}: 0.5}}\n"))
    with pytest.raises(UserError, match=sentence):
        load_settings(None, [f"matching.{name}=0.5"])


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("traning", "training"),
        ("training.sed", "training.seed"),
        ("matching.beamsize", "matching.beam_size"),
        ("training.optimizer.lerning_rate", "training.optimizer.learning_rate"),
        ("prior.model.embeding", "prior.model.embedding"),
        ("beam_size", "fusion.beam_size"),
        ("unlabelled", "unlabeled"),
    ],
)
def test_a_misspelled_key_is_given_its_neighbor(recipe: Callable[..., Path], wrong: str, right: str) -> None:
    assert refusal(None, f"{wrong}=1").endswith(f"there is no setting {wrong}: did you mean {right}?")
    nested = "".join(f"{'  ' * depth}{name}:\n" for depth, name in enumerate(wrong.split(".")))
    path = recipe(nested.rstrip() + " 1\n")
    message = refusal(path)
    assert message.startswith(str(path))
    assert f"there is no setting {wrong}: did you mean {right}?" in message


def test_a_key_like_no_other_is_told_where_to_look() -> None:
    assert refusal(None, "xyzzy=1") == "xyzzy=1: there is no setting xyzzy: `priormatch settings` lists them"


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("training.seed=x", ["training.seed", "'x'"]),
        ("training.seed=1.5", ["training.seed", "1.5"]),
        ("training.seed=", ["training.seed"]),
        ("training.optimizer.kind=adam", ["adam", "sgd", "adamw"]),
        ("matching.combine=both", ["both", "alternate", "sum"]),
        ("matching.mixing=1", ["matching.mixing", "list", "[1,4]"]),
        ("matching.mixing=[1,x]", ["matching.mixing", "'x'"]),
        ("validation=a.jsonl.gz", ["validation", "list"]),
        ("pseudo_labels=perhaps", ["pseudo_labels", "perhaps"]),
        ("training=3", ["training", "3"]),
        ("name.more=3", ["name"]),
        ("training.batch={seconds: 3", ["training.batch"]),
    ],
)
def test_a_value_of_the_wrong_type_is_named(override: str, words: list[str]) -> None:
    message = refusal(None, override)
    assert message.startswith(override)
    assert all(word in message for word in words), message


@pytest.mark.parametrize("override", ["seed", "=3", "--seed=3", "3=4", "a b=3", ""])
def test_what_is_no_override_is_told_how_to_be_one(override: str) -> None:
    assert "key=value" in refusal(None, override)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["model.blocks=[1,2]"], ["model.blocks", "3 entries"]),
        (["model.channels=[]", "model.blocks=[]"], ["model.blocks"]),
        (["model.kernel=4"], ["model.kernel=4", "odd"]),
        (["training.batch.seconds=30"], ["training.batch", "either"]),
        (["matching.batch.utterances=0"], ["matching.batch", "either"]),
        (["model.ctc=true"], ["model.ctc was replaced", "model.kind=hybrid"]),
        (["model.ctc_weight=0.5"], ["model.ctc_weight=0.5", "set model.kind=hybrid"]),
        (["model.conformer.width=18"], ["model.conformer.width=18", "divisible by 8"]),
        (["model.conformer.subsampling=6"], ["model.conformer.subsampling=6", "must be 4 or 8"]),
        (["training.ctc_weight=0.5"], ["training.ctc_weight=0.5", "model.kind=hybrid"]),
        (["training.consistency=0.2"], ["training.consistency=0.2", "model.kind=ctc"]),
        (["matching.context=true"], ["matching.context=True", "prior.model.context=true"]),
        (
            ["matching.context=true", "prior.model.context=true", "matching.reference_lengths=oracle"],
            ["matching.reference_lengths=oracle has no text", "greedy or asr_lm"],
        ),
        (
            ["matching.context=true", "prior.model.context=true", "matching.prior_exponent=0"],
            ["matching.context=True", "matching.prior_exponent=1"],
        ),
        (["matching.beam_size=0"], ["matching.beam_size=0", "at least 1"]),
        (["matching.mixing=[1]"], ["matching.mixing", "[1,4]"]),
        (["matching.mixing=[0,4]"], ["matching.mixing"]),
        (["matching.length_filter=[1.2,0.8]"], ["matching.length_filter"]),
        (["matching.length_filter=[1.0]"], ["matching.length_filter"]),
        (["matching.optimizer.kind=adamw"], ["matching.combine=sum"]),
        (["matching.baseline=topipl", "matching.refresh=never"], ["matching.refresh=never", "no effect"]),
        (["audio.longest=0.05"], ["audio.longest"]),
        (["audio.segment=0.5"], ["audio.segment"]),
        (["audio.segment=20", "audio.longest=15"], ["audio.segment"]),
        (["audio.max_bad_share=1.5"], ["audio.max_bad_share=1.5"]),
        (["matching.score_labels_on=-1"], ["matching.score_labels_on=-1"]),
        (["matching.inspect_on=-1"], ["matching.inspect_on=-1"]),
        (["audio.workers=-1"], ["audio.workers=-1"]),
        (["validation_share=0"], ["validation_share"]),
        (["prior.validation_share=1"], ["prior.validation_share"]),
        (["training.updates=0"], ["training.updates=0"]),
        (["matching.refresh_every=0"], ["matching.refresh_every=0"]),
        (["training.report_every=0"], ["training.report_every=0"]),
        (["training.seed=-1"], ["training.seed=-1"]),
        (["training.seed=4294967296"], ["training.seed=4294967296"]),
        (["training.optimizer.learning_rate=-0.1"], ["training.optimizer.learning_rate=-0.1"]),
        (["prior.optimizer.clip=0"], ["prior.optimizer.clip"]),
        (["model.dropout=1"], ["model.dropout"]),
        (["training.label_smoothing=-0.1"], ["training.label_smoothing=-0.1"]),
        (["threads=-2"], ["threads=-2"]),
        (["name="], ["name="]),
        (["name=.."], ["name=..", "plain name"]),
        (["name=a/b"], ["name=a/b", "plain name"]),
        (["name=a\\b"], ["plain name"]),
        (["test={a/b: x.jsonl.gz}"], ["test.a/b", "plain name"]),
        (["model.kernel=-3"], ["model.kernel=-3", "at least 1"]),
        (["model.channels=[10,0,16]"], ["model.channels=[10, 0, 16]"]),
        (["model.blocks=[3,-1,3]"], ["model.blocks=[3, -1, 3]"]),
        (["prior.model.bottlenecks=[[64,128]]"], ["prior.model.bottlenecks=[[64, 128]]", "[[64,128,2]]"]),
        (["prior.model.bottlenecks=[[64,0,2]]"], ["prior.model.bottlenecks"]),
        (["training.augment.speeds=[0.9,0]"], ["training.augment.speeds=[0.9, 0.0]", "positive"]),
        (["training.augment.time_width=-1"], ["training.augment.time_width=-1"]),
        (["training.batch.seconds=-5"], ["training.batch.seconds=-5.0"]),
        (["tokenizer.pieces=3"], ["tokenizer.pieces=3", "at least 4"]),
        (["prior.optimizer.momentum=1"], ["prior.optimizer.momentum=1.0"]),
        (["matching.optimizer.decay=0"], ["matching.optimizer.decay=0.0"]),
        (["training.optimizer.decay=1.5"], ["training.optimizer.decay=1.5"]),
        (["matching.max_proposal_cer=0"], ["matching.max_proposal_cer=0.0"]),
        (["training.window_deviation=.nan"], ["training.window_deviation=nan"]),
        (["demo.seed=-1"], ["demo.seed=-1"]),
        (["fusion.lm_weight=.inf"], ["fusion.lm_weight=inf", "finite"]),
        (["fusion.eos_threshold=0.9"], ["fusion.eos_threshold=0.9", "at least 1"]),
    ],
    ids=lambda each: " ".join(each),
)
def test_settings_that_cannot_be_are_refused(overrides: list[str], words: list[str]) -> None:
    message = refusal(None, *overrides)
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    "override",
    [
        "model.blocks=[0,1,0]",
        "prior.model.bottlenecks=[]",
        "training.augment.speeds=[]",
        "training.optimizer.decay=1",
        "audio.max_bad_share=1",
        "matching.loss_weight=0",
        "fusion.eos_threshold=.inf",
        "fusion.token_margin=0",
        "name=a..b",
    ],
)
def test_bounds_are_not_too_narrow(override: str) -> None:
    key, _, value = override.partition("=")
    found = functools.reduce(getattr, key.split("."), load_settings(None, [override]))
    assert found == yaml.safe_load(value)


@pytest.mark.parametrize("key", NUMBERS)
def test_every_number_has_a_bound(key: str) -> None:
    """So that a new setting is not forgotten: there is no number of which -1 would make sense."""
    assert refusal(None, f"{key}={OVERRIDES.get(key, '-1')}").startswith(f"{key}=")


def test_every_bound_is_for_a_setting_that_there_is() -> None:
    for _, _, patterns in BOUNDS:
        assert all(keys_of(pattern) for pattern in patterns.split())


@pytest.mark.parametrize(
    "text", ["- a\n- b\n", "training: {seed: 1\n", "\tname: x\n", "hello\n", "name: ${nowhere}\n"]
)
def test_a_broken_recipe_names_itself(recipe: Callable[..., Path], text: str) -> None:
    path = recipe(text)
    assert refusal(path).startswith(str(path))


def test_a_recipe_that_is_not_yaml_names_the_line(recipe: Callable[..., Path]) -> None:
    assert "line 2 is not YAML" in refusal(recipe("name: x\ntraining: seed: 3\n"))


def test_a_recipe_in_another_encoding_names_itself(tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes("name: früh\n".encode("latin1"))
    assert refusal(path).startswith(str(path))


def test_an_empty_recipe_is_the_defaults(recipe: Callable[..., Path]) -> None:
    assert load_settings(recipe("# nothing yet\n")) == Settings()


def test_a_missing_recipe_names_those_there_are(tmp_path: Path) -> None:
    message = refusal(tmp_path / "nowhere.yaml")
    assert "nowhere.yaml" in message
    assert "demo" in message


def test_recipes_are_found_by_path_or_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert recipe_path("demo") == recipe_folder() / "demo.yaml"
    assert recipe_path("recipes/demo.yaml") == recipe_folder() / "demo.yaml"
    assert recipe_path("elsewhere/demo.yaml").parts == ("elsewhere", "demo.yaml")
    assert str(recipe_path("mine.yaml")) == "mine.yaml", "what is nowhere keeps the name it was given"
    (tmp_path / "demo").mkdir()  # such as the folder of a corpus
    assert recipe_path("demo") == recipe_folder() / "demo.yaml"
    (tmp_path / "demo.yaml").write_text("name: mine\n")
    assert recipe_path("demo.yaml").resolve() == tmp_path / "demo.yaml"


def test_copies_that_would_be_the_same_model_are_refused() -> None:
    every, updates = "training.validate_every=100", "training.updates=250"
    fine = ("training.keep.a.update=100", "training.keep.b.update=101", "training.keep.c.update=201")
    load_settings(None, [every, updates, *fine, "training.keep.d.score=3", "training.keep.e.score=4"])
    for name, update, moment in (("d", 150, 200), ("d", 250, 250)):
        with pytest.raises(UserError, match=f"d.*would be the same model as [bc].* at update {moment}"):
            load_settings(None, [every, updates, *fine, f"training.keep.{name}.update={update}"])
    with pytest.raises(UserError, match=r"prior\.keep\.b"):
        load_settings(None, ["prior.keep.a.update=1", "prior.keep.b.update=2"])


@pytest.mark.parametrize("name", ["x" * 5000, "-1" + "0" * 400, "a\\0b"])
def test_a_base_that_no_file_can_be_called_is_one_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine.yaml").write_text(f'base: "{name}"\n')
    with pytest.raises(UserError, match=r"mine\.yaml: .*(is not another recipe|invalid character)"):
        load_settings(tmp_path / "mine.yaml")


@pytest.mark.parametrize(
    "setting",
    ["model: {channels: [[]]}", "model: {blocks: [[1]]}", "prior: {model: {bottlenecks: [[[1], 2, 3]]}}"],
)
def test_lists_in_the_place_of_numbers_are_one_sentence(tmp_path: Path, setting: str) -> None:
    (tmp_path / "mine.yaml").write_text(setting)
    with pytest.raises(UserError, match=r"model\.\w+(=|:)"):
        load_settings(tmp_path / "mine.yaml")
