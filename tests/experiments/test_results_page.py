"""What a page tells of how it was made."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from narrowing import present

from priormatch.experiments.comparisons import Measured
from priormatch.experiments.measure import Found
from priormatch.experiments.results_page import ending, not_measured, printed, system_record, trainings
from priormatch.experiments.scales import Request
from priormatch.experiments.table import system_of, tables
from priormatch.pipeline.recipe import recipe_of_matching, recipe_of_schedule
from priormatch.runs.stage import plain

DONE = Found({"dev_clean_wer": 9.0})
PLAIN = system_of("matched clean")


def test_rows_without_figures_are_named_seed_by_seed() -> None:
    rows = tables()["tab6_kd"].rows[:6]
    both, nothing = [DONE, Found()], [Found(), Found()]
    found = list(map(Measured, rows, [nothing, both, both, both, both, nothing]))
    assert not_measured((0, 3), found) == "rows 1,6 with seed 0; rows 1-6 with seed 3"
    assert not_measured((0,), list(map(Measured, rows, [[DONE]] * 5 + [[Found()]]))) == "row 6 with seed 0"
    assert not_measured((0,), list(map(Measured, rows, [[DONE]] * 6))) == ""
    quoted = [Measured(replace(row, system=None), nothing) for row in rows]
    assert not_measured((0, 3), quoted) == "", "rows that are not run"


@pytest.fixture
def places(tmp_path: Path) -> Any:
    def make(*settings: Any) -> Any:
        return Request((), "small", overrides=(f"runs={tmp_path}", *settings)).places(0)

    return make


@pytest.mark.parametrize("updates", [5000, 7])
def test_table_8_tells_our_updates_beside_the_papers(places: Any, updates: Any) -> None:
    study = places(*([] if updates == 5000 else [f"matching.updates={updates}"]))
    rows = [printed("tab8_label_quality", row, study) for row in tables()["tab8_label_quality"].rows]
    assert [list(row)[:5] for row in rows] == [["row", "method", "labeling", "step", "our_step"]] * 3
    assert [(row["step"], row["our_step"]) for row in rows] == [
        ("All", "All"),
        ("0", "0"),
        ("3.2M", str(updates)),
    ]


def put_record(folder: Any, recipe: Any, seconds: Any, finished: bool = True) -> None:
    folder.mkdir(parents=True)
    settings = {name: plain(value) for name, value in recipe.items()}
    record = {"recipe": {"settings": settings, "inputs": {}}, "finished": finished, "seconds": seconds}
    (folder / "stage.json").write_text(json.dumps(record))


def test_the_seconds_of_a_training_are_those_of_its_settings(places: Any) -> None:
    system, now, before = PLAIN, places("matching.updates=7"), places("matching.inspect_on=3")
    folder = now.folder_of(system)
    assert folder == before.folder_of(system)
    put_record(folder / "lpm", recipe_of_matching(now.settings_of(system)), 7.0)
    put_record(folder / "lpm.1", recipe_of_matching(before.settings_of(system)), 1.0)
    assert present(system_record(now, system))["seconds"] == 7.0
    assert present(system_record(before, system))["seconds"] == 1.0, "kept aside"
    assert system_record(places("matching.beam_size=3"), system) is None, "of other settings"


@pytest.mark.parametrize(("finished", "told"), [(True, "20.5, 97.2"), (False, "")])
def test_a_training_that_fell_apart_is_seen_and_one_that_was_cut_off_is_not_counted(
    places: Any, finished: Any, told: Any
) -> None:
    system, study = PLAIN, places()
    folder = study.folder_of(system)
    put_record(folder / "lpm", recipe_of_matching(study.settings_of(system)), 7.0, finished)
    scores = enumerate([31.0, 20.46, 60.0, 97.2])
    lines = [{"stage": "lpm", "update": at, "validation_score": each} for at, each in scores]
    lines += [
        {"stage": "lpm", "update": 4, "loss": 7.0},
        {"stage": "prior", "update": 9, "validation_score": 1.0},
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert ending(study, system) == told
    assert (system_record(study, system) is not None) == finished
    assert ending(places("matching.updates=7"), system) == "", "of other settings"


@pytest.mark.parametrize(("counts", "told"), [("false", "31.0, 60.0"), ("true", "12.0, 60.0")])
def test_the_best_validation_is_of_a_model_that_may_be_kept_and_a_number(
    places: Any, counts: Any, told: Any
) -> None:
    system, study = PLAIN, places(f"matching.start_counts={counts}")
    folder = study.folder_of(system)
    put_record(folder / "lpm", recipe_of_matching(study.settings_of(system)), 7.0)
    scores = enumerate([12.0, math.nan, 31.0, None, 60.0])
    lines = [{"stage": "lpm", "update": at, "validation_score": each} for at, each in scores]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert ending(study, system) == told


def test_a_record_is_recognized_by_the_settings_that_it_tells(places: Any) -> None:
    system, study = system_of("supervised clean"), places()
    put_record(study.folder_of(system) / "supervised-longer", recipe_of_schedule(study.settings), 5.0)
    searched = places("matching.beam_size=3")
    assert study.folder_of(system) == searched.folder_of(system)
    assert present(system_record(searched, system))["seconds"] == 5.0, (
        "beams are no matter of supervised training"
    )
    assert system_record(places("model.dropout=0.3"), system) is None


def test_models_that_systems_share_are_told_before_them(places: Any) -> None:
    rows = [tables()["x1_open_questions"].rows[13], tables()["tabA5_main_ext"].rows[27]]
    study = places()
    put_record(study.folder / "prior", {"prior": study.settings.prior, "seed": 0}, 3.0)
    names = [f"training.seed={number}000/supervised" for number in (1, 2, 3)]
    assert [
        (each.name, each.records[0] and each.records[0]["seconds"]) for each in trainings([study], rows)[:-2]
    ] == [
        ("others/model.context=True/prior", None),
        ("prior", 3.0),
        ("supervised", None),
        *((f"others/{name}", None) for name in names),
    ]
