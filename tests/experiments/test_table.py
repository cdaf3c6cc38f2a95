"""The tables as data: the paper's figures, the systems behind the rows, and the claims."""

from pathlib import Path
from typing import Any, cast, get_args

import pytest
from narrowing import present

from priormatch.config import Settings, changed, parse_override
from priormatch.errors import UserError
from priormatch.experiments.results_page import footnotes
from priormatch.experiments.scales import Request, places_of, wanted_files
from priormatch.experiments.study import Study
from priormatch.experiments.table import (
    MISSING,
    Cells,
    Kind,
    System,
    is_better_lower,
    system_of,
    table_named,
    tables,
)
from priormatch.pipeline.run_data import RunData
from priormatch.scoring.error_rates import word_error_rate_recovered

OPEN = "x1_open_questions"
PLAIN = system_of("matched clean")
ROWS = {name: [(row.cells, row.system) for row in table.rows] for name, table in tables().items()}
RUN = [(name, system) for name, rows in ROWS.items() for _, system in rows if system is not None]


def systems_in(table: str) -> list[tuple[Cells, System]]:
    """The rows of a table all of which have a system."""
    return [(cells, present(system)) for cells, system in ROWS[table]]


def places(scale: Any) -> Any:
    return Request((), scale).places(0)


@pytest.mark.parametrize("given", ["A1", "a1", "tabA1", "tabA1_alpha"])
def test_a_table_is_called_by_its_number_or_its_name(given: Any) -> None:
    assert table_named(given).name == "tabA1_alpha"


def test_an_unknown_table_is_told_the_known_ones() -> None:
    with pytest.raises(UserError, match="no table 10: choose from tab1_hypotheses"):
        table_named("10")


def test_all_fourteen_tables_are_there_with_their_rows() -> None:
    papers = [
        sum(row.is_papers or row.system is None for row in table.rows)
        for table in tables().values()
        if table.name.startswith("tab")
    ]
    assert papers == [18, 25, 36, 8, 5, 10, 21, 3, 7, 5, 3, 30, 10, 44]


@pytest.mark.parametrize("table", tables().values(), ids=tables())
def test_rows_are_named_by_claims_comparisons_and_misprints(table: Any) -> None:
    names = [row.name for row in table.rows]
    assert len(set(names)) == len(names), "a name for each"
    named = [row.minus.format(start=start) for row in table.rows if row.minus for start in "ABC"]
    named += [name for claim in table.claims for name in (claim.better, claim.than)]
    assert set(named) | {each.row for each in table.misprints} <= set(names)
    for row in table.rows:
        if row.system is not None:
            assert row.system.kind in get_args(Kind)
            assert row.system.unlabeled in ("clean", "all", "light")
            assert (row.system.kind == "pseudo_labels") == (row.system.labels is not None)


@pytest.mark.parametrize("table", tables().values(), ids=tables())
def test_the_papers_own_figures_bear_its_claims(table: Any) -> None:
    assert bool(table.claims) == (table.name != "tab1_hypotheses"), "every table of figures is judged"
    rows = {row.name: row.cells for row in table.rows}
    for claim in table.claims:
        better, than = rows[claim.better], rows[claim.than]
        columns = [
            each for each in better if is_better_lower(each) and MISSING not in (better[each], than[each])
        ]
        lower = [float(better[each]) < float(than[each]) for each in columns]
        assert any(lower) or not columns, claim


def test_a_system_is_written_in_one_line() -> None:
    system = system_of(
        "pseudo_labels all labels=asr_lm labeler=B unfiltered beam_size=8 model.kernel=5", main=True
    )
    assert (system.kind, system.unlabeled, system.labels, system.labeler) == (
        "pseudo_labels",
        "all",
        "asr_lm",
        "B",
    )
    assert (system.filtered, system.ensemble, system.main, system.loss_scale) == (False, False, True, 1.0)
    assert system.settings == ("matching.beam_size=8", "model.kernel=5")


@pytest.mark.parametrize(("table", "misprints"), [("tab7_main", [12]), ("tabA5_main_ext", [34, 38])])
def test_recovered_rates_follow_from_the_word_error_rates(table: Any, misprints: Any) -> None:
    """All but one of the main results and one that is quoted beside them, which the pages with them name."""
    wrong, given = {}, tables()[table]
    rows = {row.number: row.cells for row in given.rows if row.cells["source"] in ("this", "kahn2019")}
    for number, row in rows.items():
        ends = {
            each["labeled_hours"]: each
            for each in rows.values()
            if (each["source"], each["method"], each["decode_lm"]) == ("this", "Supervised", row["decode_lm"])
        }
        for column in ("test_clean_werr_pct", "test_other_werr_pct"):
            wer = column.replace("werr_pct", "wer")
            found = word_error_rate_recovered(*(float(each[wer]) for each in (ends["100"], row, ends["460"])))
            if found != pytest.approx(float(row[column]), abs=0.03):
                wrong[number] = (
                    f"Row {number}: {row[column]} is a misprint",
                    f"error rates give {found:.2f}.\n",
                )
    assert list(wrong) == misprints
    for told, (start, end) in zip(footnotes(given, given.rows), wrong.values(), strict=True):
        assert told.startswith(start)
        assert told.endswith(end)
    assert footnotes(given, [row for row in given.rows if row.number not in misprints]) == []


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A study at demo scale without any data: its settings and folders."""
    given = vars(places("demo")) | {"folder": tmp_path_factory.mktemp("study"), "ensemble": 3}
    return Study(**given, data=cast(RunData, None), speech={}, parts={})


def test_every_system_is_a_set_of_settings_that_exist(study: Any) -> None:
    for system in {system for _, system in RUN}:
        assert study.settings_of(system)
        assert set(study.folder_of(system).name).isdisjoint("/\\ :[]"), "it names a folder"


def test_systems_share_a_folder_exactly_where_they_are_the_same_experiment(study: Any) -> None:
    def experiment(system: Any) -> Any:
        unlabeled = "" if system.kind == "supervised" else system.unlabeled
        recipe = repr(study.settings_of(system))
        labels = system.labels, system.labeler, system.ensemble, system.filtered
        return system.kind, unlabeled, labels, recipe

    folders: dict[Path, set[Any]] = {}
    for system in {system for _, system in RUN if not system.recorded}:
        folders.setdefault(study.folder_of(system), set()).add(experiment(system))
    assert all(len(each) == 1 for each in folders.values()), "one folder, one experiment"
    experiments = [each for found in folders.values() for each in found]
    assert len(experiments) == len(set(experiments)), "one experiment, one folder"


def test_the_default_is_trained_once_for_all_tables(study: Any) -> None:
    default = study.folder_of(PLAIN)
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


def test_rows_of_other_papers_and_empty_ones_are_not_run() -> None:
    quoted = {"hayashi2018", "liu2019", "hori2019", "baskar2019"}
    for table in ("tab7_main", "tabA5_main_ext"):
        assert {system for row, system in ROWS[table] if row["source"] in quoted} == {None}
    empty = [system for row, system in ROWS["tab3_init_update"] if row["dev_clean_wer"] == MISSING]
    assert empty == [None] * 6


def test_distillation_leaves_the_prior_and_the_filter_out() -> None:
    fixed = present(
        next(
            system
            for row, system in ROWS["tab6_kd"]
            if (row["hyp_source"], row["k"], row["teacher"]) == ("ASR", "4", "Fix")
        )
    )
    found = changed(Settings(), fixed.settings).matching
    assert (found.prior_exponent, found.proposal_exponent, found.length_filter) == (0, 0, [])
    assert (found.refresh, found.beam_size) == ("never", 4)


def test_labels_of_distillation_are_made_by_the_models_the_rows_name(study: Any) -> None:
    rows = [each for each in systems_in("tabA3_kd_ext") if each[0]["hyp_source"] == "ASR+LM"]
    assert [(system.labeler, system.filtered) for _, system in rows] == [
        ("", False),
        ("B", False),
        ("C", False),
    ]
    assert {study.settings_of(system).matching.start for _, system in rows} == {"C"}, "as matching starts"


def test_the_loss_weight_of_a_scale_stands_for_the_papers(study: Any) -> None:
    found = {
        row["alpha"]: study.settings_of(system).matching.loss_weight for row, system in ROWS["tabA1_alpha"]
    }
    assert found == pytest.approx({"0.02": 0.1, "0.05": 0.25, "0.1": 0.5, "0.2": 1.0, "0.5": 2.5})


def test_overrides_are_read_like_those_of_the_command_line() -> None:
    assert parse_override("matching.mixing=[4,1]").matching.mixing == [4, 1]


def system_named(table: Any, **wanted: Any) -> Any:
    (found,) = (system for row, system in ROWS[table] if wanted.items() <= row.items())
    return found


def test_systems_that_need_other_models_have_them_beside_the_shared_ones(study: Any) -> None:
    context = system_named(OPEN, method="LPM, context")
    large = system_named("tab7_main", source="ours", method="LPM_large", decode_lm="None")
    ensemble = system_named("tabA5_main_ext", method="PL(Ensemble)", decode_lm="None")
    assert study.models_of(PLAIN) == [study.models]
    found = {name: study.models_of(each) for name, each in (("context", context), ("large", large))}
    (prior,), (recognizer,) = found.values()
    assert (prior.own, recognizer.own) == (["prior"], ["supervised"])
    assert prior.folder == study.folder / "others" / "model.context=True"
    assert (recognizer.settings.model.blocks, sum(recognizer.settings.model.blocks)) == ([2, 3, 6], 11)
    first, *others = study.models_of(ensemble)
    assert first is study.models
    assert [each.settings.training.seed for each in others] == [1000, 2000], "models of other seeds"
    assert [each.own for each in others] == [["supervised"]] * 2
    assert study.models_of(ensemble)[1] is others[0], "made once"


def test_our_table_asks_weights_by_filters_and_what_the_paper_only_names() -> None:
    rows = [row for row, _ in ROWS[OPEN]]
    assert len({(row["weights"], row["length_filter"], row["k"]) for row in rows}) == 13
    assert {system.unlabeled for _, system in systems_in(OPEN)} == {"all"}
    settings = {row["method"]: changed(Settings(), system.settings) for row, system in systems_in(OPEN)}
    assert settings["LPM, context"].prior.model.context
    assert settings["LPM, context"].matching.context
    assert {row["method"] for row, system in systems_in(OPEN) if system.recorded} == {
        "LPM, selection",
        "LPM, moving average",
    }
    weights = {
        row["weights"]: changed(Settings(), system.settings).matching
        for row, system in systems_in(OPEN)
        if row["method"] == "LPM"
    }
    assert {name: (each.prior_exponent, each.proposal_exponent) for name, each in weights.items()} == {
        "prior": (1, 0),
        "uniform": (0, 0),
        "posterior": (0, 1),
    }


def test_rows_of_settings_differ_in_them_and_each_has_a_folder_of_its_own() -> None:
    plan = places("small")
    rows = ROWS["x2_main_settings"]
    names = [plan.name_of(system) for _, system in rows]
    assert len(set(names)) == len(rows)
    assert all(name.endswith("-longer") for name in names)
    for row, system in rows:
        settings = plan.settings_of(system).matching
        assert row["settings"].endswith(f"rate {settings.optimizer.learning_rate:g}")
        if row["method"] == "LPM":
            assert row["settings"].startswith(f"T = {settings.refresh_every}")


@pytest.mark.parametrize(("scale", "end"), [("demo", ""), ("small", "-longer"), ("paper", "-longer")])
def test_removed_variants_have_their_folder_at_every_scale(scale: Any, end: Any) -> None:
    names = {places(scale).name_of(row.system) for row in tables()["tab7_main"].rows if row.recorded}
    labels = "matched-all-hypotheses=asr_lm-prior_exponent=0-beam_size=1-refresh=never"
    assert names == {f"matched-all-second_round=0.4{end}", f"{labels}-second_round=0.4{end}"}


def test_searches_with_the_prior_share_systems_with_the_main_results() -> None:
    plan = places("small")
    searches = [system for _, system in systems_in("x3_prior_in_search")]
    names = [plan.name_of(system) for system in searches]
    main = {row.number: plan.name_of(row.system) for row in tables()["tab7_main"].rows if row.system}
    assert [names[row] for row in (0, 2, 4, 10, 11)] == [main[row] for row in (12, 26, 25, 33, 32)]
    assert [bool(system.recorded) for system in searches] == [False] * 10 + [True] * 2
    settings = [plan.settings_of(system).matching for system in searches[:10]]
    assert [(each.prior_exponent, each.proposal_exponent) for each in settings] == [
        *((1, 0), (1, 0), (0, 1), (0, 3), (0, 0), (0, 1), (0, 0), (0, 1), (0, 1), (1, 0))
    ]
    assert [each.beam_size for each in settings] == [4, 4, 4, 4, 1, 4, 1, 4, 4, 4]
    fusions = [plan.settings_of(system).fusion for system in searches[5:10]]
    assert [each.lm_weight for each in fusions] == [0.4, 0.4, 0.15, 0.4, 0]
    assert [each.centered for each in fusions] == [True, True, False, False, True]
    assert len(set(names)) == 12


def test_the_main_results_of_the_paper_have_settings_of_their_own_whatever_the_recipe_says(
    tmp_path: Path,
) -> None:
    recipe = tmp_path / "other.yaml"
    recipe.write_text(
        "matching: {updates: 7, beam_size: 3, batch: {utterances: 5}, optimizer: {decay_every: 2}}\n"
    )
    plan = places_of("paper", recipe, 0, ())
    speech = {"360h(S)+All(T)": "clean", "860h(S)+All(T)": "all", "60000h(S)+All(T)": "light"}
    main = {
        speech[row["unlabeled"]]: plan.settings_of(present(system)).matching
        for row, system in ROWS["tab7_main"]
        if row["source"] == "this" and row["method"].startswith("LPM") and row["decode_lm"] == "None"
    }
    lengths = {name: (each.updates, each.optimizer.decay_every) for name, each in main.items()}
    assert lengths == {"clean": (3_200_000, 1_280_000), "all": (3_200_000, 640_000), "light": (3_200_000, 0)}
    assert {main[name].reference_lengths for name in ("clean", "all")} == {"asr_lm"}
    assert (main["light"].batch.utterances, main["light"].beam_size) == (128, 8)


def test_other_tables_of_the_paper_are_trained_for_half_as_long() -> None:
    usual = places("paper").settings_of(PLAIN).matching
    assert (usual.updates, usual.optimizer.decay_every, usual.beam_size) == (1_600_000, 640_000, 4)
    assert usual.reference_lengths == "greedy"


def test_the_docs_tell_how_another_corpus_is_laid_out_and_how_long_main_results_are_trained() -> None:
    told = " ".join((Path(__file__).parents[2] / "docs/tables.md").read_text(encoding="utf-8").split())
    for name in wanted_files("small"):
        assert f"`{name.removesuffix('.jsonl.gz')}`" in told
    plan = places("small")
    longer, usual = plan.main["all"].matching.updates, plan.settings.matching.updates
    assert f"At small scale, they have {longer:,} updates and the others {usual:,}." in told
