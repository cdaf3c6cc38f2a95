"""YAML that anybody may have written is read within limits, or refused in one sentence."""

import os
from pathlib import Path

import pytest

from priormatch.config import load_settings
from priormatch.data.normalizer import normalizer_in
from priormatch.decoding.tuning import read_tuned
from priormatch.errors import UserError
from priormatch.yaml_files import MOST_BYTES, MOST_DEPTH, MOST_NODES, checked, read_yaml

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "settings.yaml"


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_yaml(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    assert len(message) < 500 + len(str(path))
    return message


def test_plain_values_are_read(file: Path) -> None:
    file.write_text(
        "\ufeffname: näive\nnumbers: [1, 2.5, .inf]\nbase: &b {x: 1}\nsame: *b\n", encoding="utf-8"
    )
    same = {"x": 1}
    assert read_yaml(file) == {"name": "näive", "numbers": [1, 2.5, float("inf")], "base": same, "same": same}


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "[{a: "])
def test_deep_nesting_is_refused_before_any_parser_recurses(file: Path, opening: str) -> None:
    file.write_text(opening * (100_000 // len(opening)))
    assert f"line 1 is nested more than {MOST_DEPTH} levels deep" in refusal(file)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LAUGHS, f"more than {MOST_NODES:,} values"),
        ("x: 1\n" * (MOST_BYTES // 5 + 1), "larger than 256 KB"),
        ("a: &a [*a]", "is not defined before it"),
        ("a: *nowhere", "is not defined before it"),
        ('a: "\\0"', "line 1 has an invalid character"),
        ('a: "\\ud800"', "character"),
        ("x: 1\ny: [\n", "line 3 is not YAML"),
        ("a: !!python/object/apply:os.system [id]", "cannot be read"),
        (f"a: {'9' * 5000}", "cannot be read"),
        ("a: 2020-13-99", "cannot be read"),
        ("[a, b]: c", "cannot be read"),
        ("\x07", "not YAML"),
    ],
    ids=range(12),
)
def test_what_is_not_settings_is_refused(file: Path, text: str, reason: str) -> None:
    file.write_text(text)
    assert reason in refusal(file)


def test_text_in_another_encoding_is_refused(file: Path) -> None:
    file.write_bytes(b"name: \xff\xfe")
    assert "not UTF-8" in refusal(file)


def test_what_is_no_file_is_refused_at_once(tmp_path: Path, file: Path) -> None:
    os.mkfifo(file)  # to open it would be to wait for a writer
    assert "not a file" in refusal(file)
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    assert "not a file" in refusal(tmp_path / "zero.yaml")
    assert "not a file" in refusal(tmp_path)


def test_links_to_files_are_followed(tmp_path: Path, file: Path) -> None:
    file.write_text("a: 1")
    (tmp_path / "link.yaml").symlink_to(file)
    assert read_yaml(tmp_path / "link.yaml") == {"a": 1}


SECRET = "${oc.env:HOME}"


def test_nothing_is_interpolated_in_recipes_and_overrides(file: Path) -> None:
    file.write_text(f"threads: 1\nname: {SECRET}\n")
    with pytest.raises(UserError, match=r"line 2: \$\{\.\.\.\} is not supported") as caught:
        load_settings(file)
    assert os.environ["HOME"] not in str(caught.value).replace(str(file), "")
    for override in (f"name={SECRET}", "training.seed=${threads}"):
        with pytest.raises(UserError, match="is not supported"):
            load_settings(None, [override])


def test_nothing_is_interpolated_in_a_base(tmp_path: Path, file: Path) -> None:
    (tmp_path / "base.yaml").write_text(f"name: {SECRET}\n")
    file.write_text(f"base: {tmp_path / 'base.yaml'}\n")
    with pytest.raises(UserError, match=r"base\.yaml: line 1: .* is not supported"):
        load_settings(file)


@pytest.mark.parametrize("text", [f"a: '{SECRET}'", "[" * 100_000])
def test_other_files_are_read_the_same_way(tmp_path: Path, text: str) -> None:
    (tmp_path / "language.yaml").write_text(text)
    with pytest.raises(UserError, match="names no normalizer"):
        normalizer_in(tmp_path)
    with pytest.raises(UserError, match="does not hold fusion settings"):
        read_tuned(tmp_path / "language.yaml")


@pytest.mark.parametrize(
    "value", ["'" + "[" * 100_000 + "'", "9" * 400, "'a\\nb: c'", "[[1]]", "{a: b}", ".nan"]
)
def test_hostile_values_of_a_fused_search_are_refused(file: Path, value: str) -> None:
    file.write_text(f"fusion: {{lm_weight: {value}}}")
    with pytest.raises(UserError, match="does not hold fusion settings"):
        read_tuned(file)


@pytest.mark.parametrize("text", ["5", "1.5", "true", "- a", "hello"])
def test_a_recipe_that_names_no_settings_is_refused(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(UserError, match=str(file)):
        load_settings(file)


def test_overrides_are_checked_before_they_are_parsed() -> None:
    with pytest.raises(UserError, match="nested more than"):
        load_settings(None, ["training.seed=" + "[" * 100_000])


def test_the_text_itself_is_given_back() -> None:
    assert checked("a: 1\n", "here") == "a: 1\n"
