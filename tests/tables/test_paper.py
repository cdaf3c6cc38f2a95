"""The paper's figures, and the systems behind the rows."""

import pytest

from priormatch.config import Settings, changed, load_settings, parse_override, recipe_path
from priormatch.errors import UserError
from priormatch.evaluation.error_rates import word_error_rate_recovered
from priormatch.tables.paper import MISSING, TITLES, read_table, table_name
from priormatch.tables.study import Study
from priormatch.tables.systems import matched, rows_of

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


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study at demo scale without any data: its settings and folders."""
    settings = load_settings(recipe_path("table-demo"))
    return Study(
        tmp_path_factory.mktemp("study"), settings, None, {}, dict.fromkeys(("clean", "all"), settings), {}
    )


def test_every_system_is_a_set_of_settings_that_exist(study):
    for system in {system for _, system in RUN}:
        assert study.settings_of(system)
        assert set(study.folder_of(system).name).isdisjoint("/\\ :[]"), "it names a folder"


def test_systems_share_a_folder_exactly_where_they_are_the_same_experiment(study):
    def experiment(system):
        unlabelled = "" if system.kind == "supervised" else system.unlabelled
        recipe = repr(study.settings_of(system))
        return system.kind, unlabelled, system.labels, system.labeller, system.filtered, recipe

    folders = {}
    for system in {system for _, system in RUN}:
        folders.setdefault(study.folder_of(system), set()).add(experiment(system))
    assert all(len(each) == 1 for each in folders.values()), "one folder, one experiment"
    experiments = [each for found in folders.values() for each in found]
    assert len(experiments) == len(set(experiments)), "one experiment, one folder"


def test_the_default_is_trained_once_for_all_tables(study):
    default = study.folder_of(matched())
    rows = {
        "tab2_beam_mix": ("beam_k", "4", "mix_paired_to_unpaired", "1:4", "unlabeled_hours", "360"),
        "tab3_init_update": ("init_proposal", "A", "proposal_update", "Off_better", "init_online", "C"),
        "tabA1_alpha": ("alpha", "0.2"),
        "tabA2_reflen": ("reference_length", "ASR_only_decode"),
        "tab6_kd": ("method", "LPM"),
    }
    for table, cells in rows.items():
        wanted = dict(zip(cells[::2], cells[1::2], strict=True))
        found = [system for row, system in ROWS[table] if wanted.items() <= row.items()]
        if table == "tab2_beam_mix":  # the demo mixes 1:2
            assert [study.folder_of(each).name for each in found] == [f"{default.name}-mixing=_1,4_"]
        else:
            assert [study.folder_of(each) for each in found] == [default]


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


def test_labels_of_distillation_are_made_by_the_models_the_rows_name(study):
    rows = [each for each in ROWS["tabA3_kd_ext"] if each[0]["hyp_source"] == "ASR+LM"]
    assert [(system.labeller, system.filtered) for _, system in rows] == [
        ("", False),
        ("B", False),
        ("C", False),
    ]
    assert {study.settings_of(system).matching.start for _, system in rows} == {"C"}, "as matching starts"


def test_the_loss_weight_of_a_scale_stands_for_the_papers(study):
    found = {
        row["alpha"]: study.settings_of(system).matching.loss_weight for row, system in ROWS["tabA1_alpha"]
    }
    assert found == pytest.approx({"0.02": 0.1, "0.05": 0.25, "0.1": 0.5, "0.2": 1.0, "0.5": 2.5})


def test_overrides_are_read_like_those_of_the_command_line():
    assert parse_override("matching.mixing=[4,1]").matching.mixing == [4, 1]
