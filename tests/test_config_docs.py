import dataclasses
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from priormatch.config import KeepSettings, Settings, all_keys, load_settings, recipe_names, recipe_path
from priormatch.config.reference import (
    choices,
    commented_part,
    commented_yaml,
    comments,
    groups,
    meanings,
    reference,
    type_text,
    yaml_text,
)

DOCS = Path(__file__).parents[1] / "docs"
REFERENCE = DOCS / "settings.md"


@dataclass
class Sample:
    """A class to read comments from."""

    beside: int = 1  # stands beside
    # stands above,
    # on two lines
    above: int = 2

    # apart: a comment with a line between belongs to nothing

    over_lines: list[int] = field(
        default_factory=lambda: [1]  # stands within
    )  # and behind
    text: str = "# no comment"
    # above
    both: int = 3  # and beside


def test_comments_beside_above_and_within_are_found() -> None:
    assert comments(Sample) == {
        "beside": "stands beside",
        "above": "stands above, on two lines",
        "over_lines": "stands within and behind",
        "text": "",
        "both": "above and beside",
    }


def test_every_setting_has_a_meaning() -> None:
    known = meanings()
    parts = {group.key for group in groups()}
    assert set(known) == set(all_keys()) - parts
    assert [key for key, meaning in known.items() if not meaning] == []
    assert [group.key for group in groups() if not group.meaning] == []


def test_the_reference_in_the_docs_is_that_of_the_code() -> None:
    told = "write it anew: priormatch settings --reference > docs/settings.md"
    assert REFERENCE.read_text(encoding="utf-8") == reference(), told


@pytest.mark.parametrize("page", ["troubleshooting.md", "variants.md"])
def test_settings_that_the_docs_name_are_there(page: str) -> None:
    parts = {key.split(".")[0] for key in all_keys() if "." in key}
    named = re.findall(r"`([a-z_]+)((?:\.[a-z_]+)+)(?=[=`])", (DOCS / page).read_text(encoding="utf-8"))
    keys = {first + rest for first, rest in named if first in parts}
    assert len(keys) > 5
    assert keys - set(all_keys()) == set()


def test_the_reference_names_every_setting_once_with_its_default() -> None:
    lines = reference().splitlines()
    for key in meanings():
        (line,) = [line for line in lines if line.startswith(f"| `{key}` |")]
        assert len(line.replace("\\|", "").split("|")) == 6
    assert "| `matching.optimizer.decay_every` | whole number | `640000` |" in reference()
    assert "| `training.keep.NAME.update` | whole number | `0` |" in reference()


@pytest.mark.parametrize("name", recipe_names())
def test_commented_settings_can_be_read_again(name: str, tmp_path: Path) -> None:
    settings = load_settings(recipe_path(name))
    settings.test = {"a: b": "007", "yes": "ümläut #1"}
    settings.training.keep = {"B": KeepSettings(update=5)}
    (tmp_path / "again.yaml").write_text(commented_yaml(settings), encoding="utf-8")
    again = yaml.safe_load((tmp_path / "again.yaml").read_text(encoding="utf-8"))
    assert again == dataclasses.asdict(settings)


def test_a_part_holds_what_was_asked_for_and_nothing_else() -> None:
    keys = ["name", "training.optimizer.learning_rate", "matching.length_filter"]
    part = commented_part(Settings(), keys)
    assert yaml.safe_load(part) == {
        "name": "run",
        "training": {"optimizer": {"learning_rate": 0.05}},
        "matching": {"length_filter": [0.95, 1.05]},
    }
    lines = part.splitlines()
    assert lines[lines.index("name: run") - 1] == f"# {meanings()['name']}"
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(
    ("value", "written"),
    [("", "''"), ("007", "'007'"), ("a, b", "'a, b'"), (float("inf"), ".inf"), ({}, "{}"), (True, "true")],
)
def test_values_on_one_line(value: Any, written: str) -> None:
    assert yaml_text(value) == written


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Literal["a", "b"], "one of a, b"),
        (list[list[int]], "list of list of whole number"),
        (dict[str, str], "text by name"),
        (dict[str, KeepSettings], "settings by name"),
    ],
)
def test_types_in_words(kind: Any, text: str) -> None:
    assert type_text(kind) == text


def test_choices_where_there_are_any() -> None:
    assert choices("matching.combine") == ["alternate", "sum"]
    assert choices("matching.context") == ["true", "false"]
    assert choices("training.seed") == choices("no.such.key") == []
