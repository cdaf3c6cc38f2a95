"""Columns are known by their usual names, and text in others is not passed over without a word."""

import pytest

from priormatch.data.columns import AUDIO, TEXT, looks_like_text, required, usual, warn_of_text
from priormatch.errors import UserError


def test_the_first_of_the_known_names_counts_in_any_case() -> None:
    assert usual(["n", "Sentence", "TEXT"], TEXT) == "TEXT"
    assert usual(["n", "Sentence"], TEXT) == "Sentence"
    assert usual(["file", "path", "audio"], AUDIO) == "path"
    assert usual(["sentence_id"], TEXT) is None


def test_a_wanted_column_must_be_there() -> None:
    assert required("t.csv", "b", ["a", "b"]) == "b"
    with pytest.raises(UserError, match=r"t\.csv: B is not a column that fits; name one of a, b\."):
        required("t.csv", "B", ["a", "b"])


def test_only_columns_that_look_like_text_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    warn_of_text(
        "t.csv",
        {
            "said": ["hello you", "", "well no", "yes"],
            "zh": ["你好"],
            "mood": ["calm", "very calm", "calm"],
            "empty": ["", ""],
        },
    )
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("--text-column ")[1] for line in lines] == ["said`", "zh`"]
    assert lines[0].startswith("warning: t.csv: nothing is transcribed, but the column said looks like text")


@pytest.mark.parametrize(
    ("cell", "text"), [("a b", True), ("привет", True), ("clips/a_b.mp3", False), ("12", False), ("", False)]
)
def test_text(cell: str, text: bool) -> None:
    assert looks_like_text(cell) == text
