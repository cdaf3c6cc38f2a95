"""Beams kept while matching: what is in the file, and what becomes of a damaged one."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from priormatch.config import AudioSettings
from priormatch.data.corpus import Corpus
from priormatch.errors import UserError
from priormatch.matching.hypotheses import inspect
from priormatch.matching.lpm import LengthFilter, Weighing
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.training.inspected import FIRST, Inspector, from_line, read_inspected, to_line


@pytest.fixture
def weighing() -> Weighing:
    return Weighing(LengthFilter(0.5, 1.5), {"tiny-0": 3, "tiny-2": 5})


@pytest.fixture
def inspector(
    tiny_corpus: Callable[..., Path], tiny_prior: ConvPrior, weighing: Weighing, tmp_path: Path
) -> Inspector:
    corpus = Corpus.load(tiny_corpus(3), AudioSettings(workers=0))
    return Inspector(corpus, tiny_prior, 3, weighing, tmp_path / "out" / "inspected.jsonl")


def test_the_file_gives_back_what_was_seen(
    inspector: Inspector, weighing: Weighing, tiny_recognizer: SpeechRecognizer, tiny_prior: ConvPrior
) -> None:
    inspector(tiny_recognizer, 0)
    found = read_inspected(inspector.file)
    seen = inspect(tiny_recognizer, tiny_prior, inspector.corpus, 3, weighing)
    assert [each.inspection for each in found] == seen
    assert [each.cut["id"] for each in found] == ["tiny-0", "tiny-1", "tiny-2"]
    assert all(from_line(to_line(each)) == each for each in found)


def test_the_first_and_the_latest_are_kept_each_once(
    inspector: Inspector, tiny_recognizer: SpeechRecognizer
) -> None:
    for update in (0, 10, 20, 20):
        inspector(tiny_recognizer, update)
        assert {each.update for each in read_inspected(inspector.file)} == {0, update}
    assert len(read_inspected(inspector.file)) == 6
    assert [line.startswith(FIRST) for line in inspector.file.read_text().splitlines()] == [True] * 3 + [
        False
    ] * 3
    inspector(tiny_recognizer, 0)
    assert [each.update for each in read_inspected(inspector.file)] == [0, 0, 0]


def test_a_file_that_is_lost_or_damaged_does_not_stop_a_training(
    inspector: Inspector, tiny_recognizer: SpeechRecognizer
) -> None:
    inspector(tiny_recognizer, 10)
    assert [each.update for each in read_inspected(inspector.file)] == [10, 10, 10]
    inspector.file.write_text("nonsense\n")
    inspector(tiny_recognizer, 20)
    assert [each.update for each in read_inspected(inspector.file)] == [20, 20, 20]


def test_a_cut_with_what_json_has_no_word_for_does_not_stop_a_training(
    inspector: Inspector, tiny_recognizer: SpeechRecognizer
) -> None:
    inspector.corpus.cuts[0].custom = {"bytes": b"audio"}
    inspector(tiny_recognizer, 0)
    assert read_inspected(inspector.file)[0].cut["custom"] == {"bytes": None}


def test_scores_that_are_no_numbers_survive(inspector: Inspector, tiny_recognizer: SpeechRecognizer) -> None:
    inspector(tiny_recognizer, 0)
    entry = json.loads(inspector.file.read_text().splitlines()[0])
    entry["inspection"]["hypotheses"][0]["log_prior"] = -math.inf
    assert from_line(json.dumps(entry)).inspection.hypotheses[0].log_prior == -math.inf


@pytest.mark.parametrize(
    "line",
    [
        *("{", "[]", "{}", "[" * 100_000, "\xff"),
        '{"update": 0, "cut": {}, "inspection": {"id": "a", "reference": null, "hypotheses": [{}]}}',
        '{"update": 0, "cut": {}, "inspection": {"id": {}, "reference": null, "hypotheses": []}}',
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "inspected.jsonl"
    file.write_text(f"{line}\n", encoding="latin-1")
    with pytest.raises(UserError, match=r"inspected\.jsonl is damaged"):
        read_inspected(file)
