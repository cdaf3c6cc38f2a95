import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from priormatch.runs.results import (
    difference_in_words,
    draw,
    same_systems,
    score_systems,
    table,
    write_results,
)
from priormatch.scoring.transcripts import Transcript, write_transcripts

REFERENCES = ["meeting at nine", "doctor at ten", "monday morning", "tuesday"]
WORSE = ["meeting at ten", "doctor with ten", "monday morning", "monday"]
BETTER = ["meeting at nine", "doctor with ten", "monday morning", "monday"]
BEST = ["meeting at nine", "doctor at ten", "monday morning", "monday"]


def write(path: Path, hypotheses: Sequence[str], references: Sequence[str | None] = REFERENCES) -> Path:
    rows = zip(hypotheses, references, strict=True)
    transcripts = [
        Transcript(f"u{i}", hypothesis, 3, reference, []) for i, (hypothesis, reference) in enumerate(rows)
    ]
    write_transcripts(path, transcripts)
    return path


def shown(results: dict[str, dict[str, Any]]) -> str:
    screen = io.StringIO()
    Console(width=200, file=screen).print(table(results, "title"))
    return screen.getvalue()


@pytest.fixture
def decoded(tmp_path: Path) -> dict[str, dict[str, Path]]:
    systems = {"supervised_start": WORSE, "supervised": WORSE, "pseudo_label": BETTER, "lpm": BEST}
    systems["topline"] = REFERENCES
    return {name: {"test": write(tmp_path / f"{name}.jsonl", texts)} for name, texts in systems.items()}


def test_rates_gains_and_recovery_by_hand(decoded: dict[str, dict[str, Path]]) -> None:
    results = score_systems(decoded)
    systems = {name: tests["test"] for name, tests in results["systems"].items()}
    assert [systems[name]["wer"] for name in decoded] == pytest.approx([100 * n / 9 for n in (3, 3, 2, 1, 0)])
    for each in systems.values():
        low, high = each["wer_interval"]
        assert low <= each["wer"] <= high
    assert results["werr"]["pseudo_label"]["test"] == pytest.approx(100 / 3)
    assert results["werr"]["lpm"]["test"] == pytest.approx(200 / 3)
    assert results["gain"]["lpm"]["test"]["difference"] == pytest.approx(200 / 9)
    assert results["gain"]["lpm"]["test"]["relative"] == pytest.approx(200 / 3)
    assert results["lpm_against_pseudo_label"]["test"]["difference"] == pytest.approx(100 / 9)
    assert set(results["werr"]) == {"pseudo_label", "lpm"}


def test_the_table_shows_recovery_where_there_is_a_topline(decoded: dict[str, dict[str, Path]]) -> None:
    text = shown(score_systems(decoded))
    assert "WERR %" in text
    assert "66.7" in text
    assert "local prior matching" in text


def test_without_a_topline_the_relative_gain_and_its_p_value_are_shown(
    decoded: dict[str, dict[str, Path]],
) -> None:
    del decoded["topline"], decoded["pseudo_label"]
    results = score_systems(decoded)
    assert results["werr"] == {}
    assert results["lpm_against_pseudo_label"] == {}
    text = shown(results)
    assert "relative gain % (p)" in text
    assert f"66.7 (p = {results['gain']['lpm']['test']['p_value']:.4f})" in text


def test_utterances_without_a_reference_do_not_count(tmp_path: Path) -> None:
    references = [*REFERENCES[:2], None, None]
    decoded = {
        name: {"test": write(tmp_path / f"{name}.jsonl", texts, references)}
        for name, texts in (("supervised", WORSE), ("lpm", BETTER))
    }
    systems = score_systems(decoded)["systems"]
    assert systems["supervised"]["test"]["wer"] == pytest.approx(100 * 2 / 6)
    assert systems["lpm"]["test"]["wer"] == pytest.approx(100 * 1 / 6)


def test_no_gap_is_null_in_the_file_and_no_crash_on_the_screen(
    tmp_path: Path, decoded: dict[str, dict[str, Path]]
) -> None:
    decoded["topline"] = decoded["supervised"]
    results = score_systems(decoded)
    assert math.isnan(results["werr"]["lpm"]["test"])
    assert "nan" in shown(results)
    path = tmp_path / "results.json"
    write_results(path, results)

    def forbidden(constant: Any) -> None:
        raise ValueError(constant)

    read = json.loads(path.read_text(), parse_constant=forbidden)
    assert read["werr"]["lpm"]["test"] is None
    assert read["systems"] == results["systems"]


def test_results_are_compared_by_their_systems(tmp_path: Path, decoded: dict[str, dict[str, Path]]) -> None:
    results, path = score_systems(decoded), tmp_path / "results.json"
    write_results(path, {**results, "seed": 1})
    assert same_systems(path, {**results, "seed": 2})
    del decoded["lpm"]
    assert not same_systems(path, score_systems(decoded))
    path.write_text("{half")
    assert not same_systems(path, results)


def test_a_picture_is_drawn(tmp_path: Path, decoded: dict[str, dict[str, Path]]) -> None:
    pytest.importorskip("matplotlib")
    assert draw(score_systems(decoded), tmp_path / "results.png")
    assert (tmp_path / "results.png").read_bytes().startswith(b"\x89PNG")


def test_a_difference_and_its_interval_point_the_same_way() -> None:
    assert (
        difference_in_words(2.0, (1.0, 3.5), 0.01, "x")
        == "2.00 points of WER below x (95 % 1.00 to 3.50, p = 0.0100)"
    )
    assert (
        difference_in_words(-2.0, (-3.5, 0.5), 0.2, "x")
        == "2.00 points of WER above x (95 % -0.50 to 3.50, p = 0.2000)"
    )
    assert (
        difference_in_words(0.0, (-0.5, 0.5), 1.0, "x")
        == "equal to x in WER (95 % -0.50 to 0.50, p = 1.0000)"
    )
