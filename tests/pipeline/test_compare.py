"""Several runs seen together: two hand-made ones, with word errors that can be counted."""

import json
from pathlib import Path

import pytest
from tiny_run import command

from priormatch.errors import UserError
from priormatch.pipeline.compare import compare_runs, markdown, read_counts
from priormatch.scoring.transcripts import Transcript, write_transcripts

REFERENCES = ["meeting at nine", "doctor at ten", "monday morning", "tuesday evening"]  # ten words


def hypotheses(wrong: int) -> list[str]:
    """The references with their last words wrong in the first `wrong` utterances."""
    return [
        text.rsplit(" ", 1)[0] + " with" if number < wrong else text for number, text in enumerate(REFERENCES)
    ]


def make_run(
    folder: Path, errors: dict[str, int], references: list[str] = REFERENCES, test: str = "clean"
) -> Path:
    for system, wrong in errors.items():
        texts = hypotheses(wrong)[: len(references)]
        transcripts = [
            Transcript(f"u{number}", text, 3, reference, [])
            for number, (text, reference) in enumerate(zip(texts, references, strict=True))
        ]
        write_transcripts(folder / "decoded" / system / f"{test}.jsonl", transcripts)
    return folder


def rows(text: str) -> dict[str, list[str]]:
    """The table's cells by the name of the system."""
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in lines}


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    one = {"supervised": 4, "pseudo_label": 3, "lpm": 2, "topline": 0}
    two = {"supervised": 4, "pseudo_label": 4, "lpm": 1, "topline": 1}
    return [make_run(tmp_path / "seed-0", one), make_run(tmp_path / "seed-1", two)]


def test_rates_means_and_recovery_by_hand(runs: list[Path]) -> None:
    found = rows(markdown(compare_runs(runs)))
    assert found["system"] == ["seed-0", "seed-1", "mean", "WERR % of the mean"]
    assert found["supervised"] == ["40.00", "40.00", "40.00", ""]
    assert found["fixed pseudo-labels"] == ["30.00", "40.00", "35.00", "14.3"]  # 5 of 35
    assert found["local prior matching"] == ["20.00", "10.00", "15.00", "71.4"]  # 25 of 35
    assert found["topline (all labels)"] == ["0.00", "10.00", "5.00", ""]


def test_matching_is_tested_against_the_others_over_all_runs(runs: list[Path]) -> None:
    lines = [line for line in markdown(compare_runs(runs)).splitlines() if line.startswith("- ")]
    assert len(lines) == 2
    assert lines[0].startswith("- local prior matching is 25.00 points of WER below supervised (95 % ")
    assert lines[1].startswith(
        "- local prior matching is 20.00 points of WER below fixed pseudo-labels (95 % "
    )
    assert "p = 0." in lines[0]


def test_a_loss_is_called_one(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"supervised": 1, "lpm": 3})
    text = markdown(compare_runs([run]))
    assert "local prior matching is 20.00 points of WER above supervised" in text
    assert rows(text)["local prior matching"] == ["30.00", "30.00", ""]  # no topline, no recovery


def test_every_test_set_has_its_section(runs: list[Path]) -> None:
    for run in runs:
        make_run(run, {"supervised": 2, "pseudo_label": 2, "lpm": 2, "topline": 2}, test="noisy")
    text = markdown(compare_runs(runs))
    assert [line for line in text.splitlines() if line.startswith("###")] == [
        "### clean: WER %",
        "### noisy: WER %",
    ]
    noisy = rows(text.partition("### noisy")[2])
    assert noisy["local prior matching"] == ["20.00", "20.00", "20.00", "nan"]


def test_only_what_all_runs_have_is_shown(runs: list[Path], tmp_path: Path) -> None:
    third = make_run(tmp_path / "seed-2", {"supervised": 4, "lpm": 0})
    assert rows(markdown(compare_runs([*runs, third]))).keys() == {
        "system",
        "supervised",
        "local prior matching",
    }


def test_counts_are_by_utterance(runs: list[Path]) -> None:
    counts = read_counts(runs[0])["lpm"]["clean"]
    assert counts.errors.tolist() == [1, 1, 0, 0]
    assert counts.lengths.tolist() == [3, 3, 2, 2]


def test_runs_that_cannot_be_compared_are_refused(runs: list[Path], tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", {"supervised": 2, "lpm": 1}, test="noisy")
    with pytest.raises(UserError, match="not scored on the same test sets"):
        compare_runs([*runs, other])
    fewer = make_run(tmp_path / "fewer", {"supervised": 2, "lpm": 1}, REFERENCES[:3])
    with pytest.raises(UserError, match="not scored on the same utterances of clean"):
        compare_runs([*runs, fewer])


def test_a_folder_that_is_no_finished_run_is_named(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "begun" / "decoded" / "supervised").mkdir(parents=True)
    for name in ("nowhere", "begun"):
        assert command("compare", runs[0], tmp_path / name) == 2
        assert (
            f"{name} contains no decoded test sets: provide folders of finished runs"
            in capsys.readouterr().err
        )


def test_the_verb_prints_the_same(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert command("compare", *runs) == 0
    assert capsys.readouterr().out == markdown(compare_runs(runs)) + "\n"


def test_scripts_get_the_same_as_json(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert command("compare", *runs, "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["test"], found["runs"]) == ("clean", ["seed-0", "seed-1"])
    assert found["rates"]["lpm"] == [20.0, 10.0] and found["means"]["lpm"] == 15.0
    assert found["recovered"]["pseudo_label"] == pytest.approx(100 / 7)
    assert found["against"]["supervised"]["difference"] == 25.0
