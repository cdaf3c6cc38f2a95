"""All tables of the paper at demo scale, with trainings of a few updates and few rows of every kind."""

import pytest
from tiny_run import command

from priormatch.tables.paper import TITLES

QUICK = (  # noqa: SIM905
    "training.updates=240 training.validate_every=60 training.keep.B.update=120 training.keep.C.update=60"
    " training.validate_on=12 prior.updates=60 prior.validate_every=10 prior.keep.weaker1.update=40"
    " prior.keep.weaker2.update=30 prior.keep.weaker3.update=20 prior.keep.weaker4.update=10"
    " matching.updates=4 matching.refresh_every=2 fusion.beam_size=2"
).split()
ROWS = {
    "tab2_beam_mix": "3,12,25",
    "tab3_init_update": "1,2,6,12,36",
    "tab5_lm_ppl": "1,5",
    "tab6_kd": "1,4,8,10,12",
    "tab7_main": "1,6,7,9,10,11,12,13,19",
    "tabA1_alpha": "1",
    "tabA3_kd_ext": "1,3,6,18,30",
    "tabA4_cer": "1,3,8",
    "tabA5_main_ext": "1,28,35",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("table", TITLES)
def test_a_table_runs_at_demo_scale(folder, table, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    rows = ("--rows", ROWS[table]) if table in ROWS else ()
    assert command("table", table, "--scale", "demo", *rows, *QUICK) == 0
    said = capsys.readouterr()
    assert TITLES[table] in said.out
    name = f"{table}-rows-{ROWS[table]}" if table in ROWS else table
    page = (folder / "runs/table-demo" / f"{name}.md").read_text()
    assert f"priormatch table {table} --scale demo --seeds 0" in page
    assert (folder / "runs/table-demo" / f"{name}.tsv").is_file()
    again = command("table", table, "--scale", "demo", *rows, *QUICK)
    assert again == 0
    assert " ..." not in capsys.readouterr().err, "everything is reused"


def test_what_cannot_be_asked_for_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for words, sentence in (
        (("10",), "there is no table 10"),
        (("4", "--scale", "huge"), "there is no scale huge: choose one of demo, small, paper"),
        (("4", "--seeds", "one"), "--seeds one: give numbers separated by commas"),
        (("4", "--seeds", ","), "--seeds ,: give numbers separated by commas"),
        (("4", "--seeds", "0,0"), "--seeds 0,0: give each number once"),
        (("1", "--rows", "99"), "tab1_hypotheses has 18 rows, and no row 99"),
        (("4", "training.seed=3"), "training.seed is not for tables: give --seeds"),
        (("4", "--scale", "small"), "the small scale needs data: give --data FOLDER, with labelled.jsonl.gz"),
    ):
        assert command("table", *words) == 2
        assert sentence in capsys.readouterr().err
