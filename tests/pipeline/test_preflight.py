"""What a run checks before it trains."""

from pathlib import Path

import pytest

from priormatch.config import load_settings
from priormatch.doctor.findings import Finding
from priormatch.doctor.machine import GB
from priormatch.errors import UserError
from priormatch.pipeline import preflight
from priormatch.pipeline.preflight import findings, least_memory, memory_finding, require_sound
from priormatch.runs.stage import Decision

DATA, PRIOR = Path("runs/x/data"), Path("runs/x/prior")
ALL_NEW = [Decision(DATA, None), Decision(PRIOR, None)]
SETTINGS = load_settings(None)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Checks with a warning and a problem; whether each call asked for those of the data."""
    calls: list[bool] = []

    def found(settings: object, with_data: bool) -> list[Finding]:
        calls.append(with_data)
        return [
            Finding("ok", "fine"),
            Finding("warning", "odd", "look"),
            Finding("problem", "bad letters", "mend"),
        ]

    monkeypatch.setattr(preflight, "findings", found)
    return calls


def test_problems_stop_a_run_and_force_goes_on(asked: list[bool], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match=r"1 problem found before the run.*nothing was changed.*--force"):
        require_sound(SETTINGS, ALL_NEW, force=False)
    assert capsys.readouterr().err.splitlines() == ["warning  odd; look", "problem  bad letters; mend"]
    require_sound(SETTINGS, ALL_NEW, force=True)
    assert "continuing despite 1 problem" in capsys.readouterr().err
    assert asked == [True, True]


def test_what_is_made_already_is_not_checked_again(asked: list[bool]) -> None:
    require_sound(SETTINGS, [Decision(DATA, DATA, True), Decision(PRIOR, PRIOR, False)], force=False)
    assert asked == []
    require_sound(SETTINGS, [Decision(DATA, DATA, True), Decision(PRIOR, None)], force=True)
    assert asked == [False]


def test_text_in_other_letters_than_the_transcripts_is_a_problem(tmp_path: Path) -> None:
    """As in a report: 20 minutes of training, of which every letter was unknown to the text."""
    from tiny_run import make_folders

    make_folders(tmp_path)
    (tmp_path / "text.txt").write_text("привет мир\n" * 800)
    named = [f"{name}={tmp_path / name}" for name in ("labeled", "unlabeled")]
    given = [
        *named,
        f"text={tmp_path / 'text.txt'}",
        f"runs={tmp_path}",
        "device=cpu",
        "language.normalizer=unicode",
    ]
    settings = load_settings(None, given)
    problems = [each.what for each in findings(settings, with_data=True) if each.status == "problem"]
    assert any(
        "100.0 % of the letters in the transcripts never occur in the text" in each for each in problems
    )
    assert not [each for each in findings(settings, with_data=False) if each.status == "problem"]


def test_models_that_do_not_fit_into_memory_are_a_problem() -> None:
    small = load_settings(
        None, ["model.channels=[2]", "model.blocks=[1]", "model.size=8", "tokenizer.pieces=10"]
    )
    assert least_memory(small) < least_memory(SETTINGS)
    needed = least_memory(SETTINGS)
    assert memory_finding(SETTINGS, needed + 1).status == "ok"
    found = memory_finding(SETTINGS, needed)
    assert (found.status, f"take {needed / GB:.1f} GB" in found.what) == ("problem", True)
