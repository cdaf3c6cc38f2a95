"""All tables at demo scale, with trainings of a few updates and few rows of every kind."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_run import command

from priormatch.experiments.scales import as_ranges, numbers
from priormatch.experiments.table import tables

QUICK = (  # noqa: SIM905
    "training.updates=240 training.validate_every=60 training.keep.B.update=120 training.keep.C.update=60"
    " training.validate_on=12 prior.updates=60 prior.validate_every=10 prior.keep.weaker1.update=40"
    " prior.keep.weaker2.update=30 prior.keep.weaker3.update=20 prior.keep.weaker4.update=10"
    " matching.updates=4 matching.refresh_every=2 fusion.beam_size=2"
).split()
ROWS = {
    "tab2_beam_mix": "3,13,25",
    "tab3_init_update": "1,2,6,12,36",
    "tab5_lm_ppl": "1,5",
    "tab6_kd": "1,4,8,10,11",
    "tab7_main": "1,6,7,9,10,11,12,13,19,22,24,25,26,32,33",
    "tabA1_alpha": "1,4",
    "tabA3_kd_ext": "1,3,6,18,30",
    "tabA4_cer": "1,3,8",
    "tabA5_main_ext": "1,28,35,36,37",
    "x1_open_questions": "1,4,8,12,14-18",
    "x2_main_settings": "1,3,7,8,13,14,18,22",
    "x3_prior_in_search": "1,4,5,7,9,10",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tmp_path_factory.mktemp("tables")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("table", [name for name in tables() if name != "x4_real_speech"])
def test_a_table_runs_at_demo_scale(
    folder: Any, table: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    asked = f"{table}:{ROWS[table]}" if table in ROWS else table
    assert command("table", asked, "--scale", "demo", *QUICK) == 0
    said = capsys.readouterr()
    assert tables()[table].title in said.out
    name = f"{table}-rows-{ROWS[table]}" if table in ROWS else table
    page = (folder / "runs/table-demo" / f"{name}.md").read_text()
    assert f"priormatch table {asked} --scale demo --seeds 0" in page
    assert "## How it was made" in page
    compared = any(row.minus for row in tables()[table].rows)
    assert ("## Differences from plain matching" in page) == compared
    assert ("## Recovered word error rates" in page) == (table in ("tab7_main", "tabA5_main_ext"))
    assert (folder / "runs/table-demo" / f"{name}.tsv").is_file()
    assert (folder / "runs/table-demo" / f"{name}.intervals.tsv").is_file() == compared
    again = command("table", asked, "--scale", "demo", *QUICK)
    assert again == 0
    assert " ..." not in capsys.readouterr().err, "everything is reused"


@given(st.sets(st.integers(0, 30), min_size=1).map(sorted))
def test_ranges_of_rows_are_as_the_command_takes_them(rows: list[int]) -> None:
    assert numbers("", as_ranges(rows)) == tuple(rows)
    assert as_ranges([1, 2, 3, 7]) == "1-3,7"


def test_what_cannot_be_asked_for_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words, sentence in (
        (("10",), "there is no table 10"),
        (("4", "--scale", "huge"), "there is no scale huge: choose from demo, small, paper"),
        (("4", "--seeds", "one"), "--seeds one: use numbers separated by commas"),
        (("4", "--seeds", ","), "--seeds ,: use numbers separated by commas"),
        (("4", "--seeds", ""), "--seeds : use numbers separated by commas"),
        (("4", "--seeds", "0,0"), "--seeds 0,0: give each number once"),
        (("1:3",), "tab1_hypotheses shows beams and has no rows to select: name it without rows"),
        (("4:99",), "tab4_length_filter has no row 99: choose from 1 to 8"),
        (
            ("4", "matching.start=C"),
            "matching.start=C cannot be set for tables, because their rows define it: remove it",
        ),
        (("2:5-3",), "tab2_beam_mix:5-3: give each number once, and the lower end of a range first"),
        (("2:1-", "4"), "tab2_beam_mix:1-: use numbers separated by commas, such as 0,2 or 1-3,7"),
        (("2:1", "tab2_beam_mix:3"), "a table is given twice: give each once, with all its rows"),
        (("matching.updates=3",), "no table given: pass its number or name"),
        (("7:23",), "none of these rows can run at demo scale: choose others"),
        (("4", "training.seed=3"), "training.seed cannot be set for tables: pass --seeds"),
        (("4", "--scale", "small"), "the small scale needs data: pass --data FOLDER, with labeled.jsonl.gz"),
    ):
        assert command("table", *words) == 2
        assert sentence in capsys.readouterr().err
