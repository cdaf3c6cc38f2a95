"""The paper's figures, and the systems behind the rows."""

from dataclasses import replace

import pytest

from priormatch.config import Settings, changed, load_settings, parse_override, recipe_path
from priormatch.errors import UserError
from priormatch.evaluation.error_rates import word_error_rate_recovered
from priormatch.tables.paper import MISSING, TITLES, read_table, table_name
from priormatch.tables.systems import System, matched, rows_of

ROWS = {name: rows_of(name) for name in TITLES}
RUN = [(name, system) for name, rows in ROWS.items() for _, system in rows if system is not None]


@pytest.mark.parametrize("given", ["A1", "a1", "tabA1", "tabA1_alpha"])
def test_a_table_is_called_by_its_number_or_its_name(given):
    assert table_name(given) == "tabA1_alpha"


def test_an_unknown_table_is_told_the_known_ones():
    with pytest.raises(UserError, match="no table 10: choose one of tab1_hypotheses"):
        table_name("10")


def test_all_fourteen_tables_are_there_with_their_rows():
    assert [len(read_table(name)) for name in TITLES] == [18, 25, 36, 8, 5, 10, 21, 3, 7, 5, 3, 30, 10, 44]


def test_recovered_rates_follow_from_the_word_error_rates():
    """All but two, which the paper misprints."""
    wrong = []
    for row in (each for each in read_table("tab7_main") if each["source"] == "this"):
        ends = {
            each["labeled_hours"]: each
            for each in read_table("tab7_main")
            if each["method"] == "Supervised" and each["decode_lm"] == row["decode_lm"]
        }
        for kind in ("clean", "other"):
            base, mine, top = (float(each[f"test_{kind}_wer"]) for each in (ends["100"], row, ends["460"]))
            found = word_error_rate_recovered(base, mine, top)
            if found != pytest.approx(float(row[f"test_{kind}_werr_pct"]), abs=0.03):
                wrong.append((row["method"], row["unlabeled"], row["decode_lm"], kind, round(found, 2)))
    assert wrong == [("LPM", "860h(S)+All(T)", "None", "other", 127.69)]


def test_every_system_is_a_set_of_settings_that_exist():
    recipe = load_settings(recipe_path("table-demo"))
    for system in {system for _, system in RUN}:
        changed(recipe, system.settings)
        assert set(system.name).isdisjoint("/\\ :[]"), "it names a folder"


def test_different_systems_have_different_folders():
    systems = {replace(system, main=False) for _, system in RUN}
    assert len({system.name for system in systems}) == len(systems)


def test_rows_that_are_the_same_experiment_share_a_system():
    default = matched()
    (best,) = [
        system
        for row, system in ROWS["tab3_init_update"]
        if (row["init_proposal"], row["proposal_update"], row["init_online"]) == ("A", "Off_better", "C")
    ]
    assert changed(Settings(), best.settings) == changed(Settings(), default.settings)
    assert ROWS["tab6_kd"][-1][1] == default


def test_rows_of_other_papers_and_empty_ones_are_not_run():
    assert [system for row, system in ROWS["tab7_main"] if row["source"] == "hayashi2018"] == [None]
    empty = [system for row, system in ROWS["tab3_init_update"] if row["dev_clean_wer"] == MISSING]
    assert empty == [None] * 6


def test_distillation_leaves_the_prior_and_the_filter_out():
    fixed = next(
        system
        for row, system in ROWS["tab6_kd"]
        if (row["hyp_source"], row["k"], row["teacher"]) == ("ASR", "4", "Fix")
    )
    found = changed(Settings(), fixed.settings).matching
    assert (found.prior_exponent, found.proposal_exponent, found.length_filter) == (0, 0, [])
    assert (found.refresh, found.beam_size) == ("never", 4)


def test_the_overrides_of_a_system_are_read_like_those_of_the_command_line():
    assert parse_override("matching.mixing=[4,1]").matching.mixing == [4, 1]
    assert System("matched", "all", ("matching.mixing=[4,1]",)).name == "matched-all-mixing=_4,1_"
