"""Studies on folders laid out like the real corpora."""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from narrowing import present
from tiny_language import sentences
from tiny_run import command

from priormatch.config import load_settings
from priormatch.data.corpus import read_cuts
from priormatch.decoding.tuning import read_tuned
from priormatch.errors import UserError
from priormatch.experiments.run_tables import Shared, Trained, effort_of, jobs_of, tasks_of
from priormatch.experiments.scales import Request, light_files, wanted_files
from priormatch.experiments.table import system_of, tables
from priormatch.experiments.trained import Models
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.runs.stage import plain, read_record
from priormatch.scoring.transcripts import Transcript, write_transcripts

TINY = (  # noqa: SIM905
    "audio.workers=0 tokenizer.pieces=31 tokenizer.source=text model.n_mels=20 model.channels=[4,6] model.blocks=[1,1]"
    " model.kernel=5 model.size=48 model.longest_output=24 training.updates=4 training.validate_every=2"
    " training.batch.seconds=8 training.batch.utterances=0 training.keep.B.update=4 training.keep.B.score=0"
    " training.keep.C.update=2 training.keep.C.score=0"
    " prior.model.embedding=12 prior.model.width=8 prior.model.bottlenecks=[[4,8,1]] prior.model.head=10"
    " prior.updates=4 prior.validate_every=1 prior.batch_tokens=200 matching.updates=2 matching.refresh_every=1"
    " matching.batch.seconds=8 matching.batch.utterances=0 matching.max_proposal_cer=1000000 matching.length_filter=[]"
).split()
PREPARED = ("small", "paper")
"""The scales with clean and other speech whose data are prepared."""
REAL = (  # noqa: SIM905
    "model.conformer.width=16 model.conformer.heads=2 model.conformer.layers=1 model.n_mels=20"
    " training.updates=4 training.validate_every=2 training.batch.seconds=8 training.batch.buckets=1 audio.workers=0"
    " prior.model.embedding=12 prior.model.width=8 prior.model.bottlenecks=[[4,8,1]] prior.model.head=10"
    " prior.updates=4 prior.validate_every=1 prior.batch_tokens=200 matching.updates=2 matching.refresh_every=1"
    " matching.batch.seconds=8 matching.batch.buckets=1 matching.max_proposal_cer=1000000 matching.length_filter=[]"
).split()
KEPT = [
    f"prior.keep.weaker{number}.{key}={value}"
    for number in range(1, 5)
    for key, value in (("update", number), ("score", 0))
]


@pytest.fixture
def folder(
    tiny_corpus: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Path]:
    """A folder with a manifest of tones for each name, and text."""
    monkeypatch.chdir(tmp_path)

    def make(scale: str) -> Path:
        out = tmp_path / scale
        out.mkdir()
        for number, name in enumerate(wanted_files(scale)):
            if name.endswith(".txt"):
                (out / name).write_text("".join(f"{text}\n" for text in sentences(40, seed=number)))
            else:
                made = tiny_corpus(sentences(6, seed=number, most_words=3), name.removesuffix(".jsonl.gz"))
                shutil.copy(made, out / name)
        return out

    return make


@pytest.mark.parametrize("scale", PREPARED)
def test_a_table_runs_on_a_folder_laid_out_like_the_real_one(
    folder: Callable[..., Path], scale: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = folder(scale)
    words = ("table", "2:13,23", "--scale", scale, "--data", data, *TINY, *KEPT)
    assert command(*words) == 0
    said = capsys.readouterr()
    systems = {each.name for each in (data.parent / f"runs/table-{scale}/seed-0/systems").iterdir()}
    assert systems == {"matched-clean", "matched-all"}
    assert "9.00" in said.out, "the paper's"
    jobs = "2" if scale == "small" else "1"
    assert command(*words, "--seeds", "0,1", "--jobs", jobs) == 0
    file = data.parent / f"runs/table-{scale}/tab2_beam_mix-rows-13,23.tsv"
    page = file.read_text().splitlines()
    assert page[0].endswith("ours_dev_other_wer_seed0\tours_dev_other_wer_seed1")
    assert all("NA" not in line for line in page[1:])

    assert "Not measured" not in file.with_suffix(".md").read_text()

    file.unlink()
    shutil.rmtree(data)
    for each in [*data.parent.rglob("lpm"), *data.parent.rglob("both")]:
        shutil.rmtree(each)
    words = ("table", "2:13,23", "--scale", scale, "--so-far", *TINY, *KEPT)
    assert command(*words, "--seeds", "0,1") == 0
    assert file.read_text().splitlines() == page, "figures are shown without their models and data"
    assert "--seeds 0,1 --data FOLDER " in file.with_suffix(".md").read_text()
    assert not [*data.parent.rglob("lpm"), *data.parent.rglob("both")], "nothing is made"
    capsys.readouterr()
    assert command(*words, "matching.beam_size=3", "matching.loss_weight=0.3") == 0
    assert all(line.endswith("NA\tNA") for line in file.read_text().splitlines()[1:]), "of other settings"
    missing = "ot measured with these settings: rows 13,23 with seed 0"
    assert missing in file.with_suffix(".md").read_text()
    assert missing in capsys.readouterr().err


@pytest.mark.parametrize(
    ("scale", "rows"), [("librispeech", "1-3,5,6,9,12,14"), ("common-voice", "1,3,9,12,14")]
)
def test_a_table_of_real_speech_runs_on_its_split(
    folder: Callable[..., Path], scale: str, rows: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = folder(scale)
    assert command("table", f"X4:{rows}", "--scale", scale, "--data", data, *REAL) == 0
    out = data.parent / f"runs/table-{scale}"
    of_transcripts = {"matched-clean-prior=oracle", "topline-clean"}
    systems = {each.name for each in (out / "seed-0/systems").iterdir()}
    assert systems >= {"start", "matched-clean"}
    assert (systems >= of_transcripts) == (scale == "librispeech"), (
        "without transcripts there are none of these"
    )
    lines = [line.split("\t") for line in (out / f"x4_real_speech-rows-{rows}.tsv").read_text().splitlines()]
    measured = {name: number for number, name in enumerate(lines[0]) if name.startswith("ours_")}
    assert measured.keys() == {
        f"ours_{each}_seed0" for each in ("dev_wer", "test_wer", "test_cer", "test_werr_pct")
    }
    rated = [line[measured["ours_test_wer_seed0"]] for line in lines[1:]]
    assert "NA" not in rated
    assert len(rated) == (8 if scale == "librispeech" else 3)
    assert command("table", "X4", "--scale", "small", "--data", data) == 2
    assert (
        "x4_real_speech cannot be run at small scale: pass --scale librispeech or common-voice"
        in capsys.readouterr().err
    )
    assert command("table", "7", "--scale", scale, "--data", data) == 2
    assert "pass --scale demo or small or paper" in capsys.readouterr().err


def test_figures_outlive_a_run_with_other_settings(
    folder: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    data = folder("small")
    words = ("table", "2:13", "--scale", "small", "--data", data, *TINY, *KEPT)
    assert command(*words) == 0
    page = data.parent / "runs/table-small/tab2_beam_mix-rows-13.md"
    before = page.read_text().splitlines()
    assert command(*words, "matching.updates=3") == 0
    assert "13.json: measured again; the old figures are kept as " in capsys.readouterr().err
    assert page.read_text().splitlines() != before
    assert command(*words, "--so-far") == 0
    *changed, trained = [
        pair for pair in zip(before, page.read_text().splitlines(), strict=True) if len({*pair}) > 1
    ]
    assert all(line.startswith("- Written at") for pair in changed for line in pair)
    *told, ending = trained[0].split(" | ")
    assert trained[1].split(" | ") == [*told, " |"] != [*told, ending], "all but its log, which is gone"


def test_what_was_measured_of_60000_hours_is_shown_without_their_speech() -> None:
    request = Request(("tabA4_cer",), "paper", rows={"tabA4_cer": "4-5"}, so_far=True)
    assert [present(row.system).unlabeled for row in request.rows_of("tabA4_cer")] == ["all", "light"]
    small = replace(request, scale="small")
    assert [row.system is None for row in small.rows_of("tabA4_cer")] == [False, True], "never measured there"


@pytest.mark.parametrize("scale", ["demo", *PREPARED])
def test_without_a_runs_folder_there_is_nothing_to_show_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], scale: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command("table", "4", "--scale", scale, "--seeds", "0,1", "--so-far") == 2
    nowhere = f"there is no folder runs/table-{scale}/seed-0 nor runs/table-{scale}/seed-1"
    assert f"{nowhere}, so nothing has been measured: set runs=FOLDER" in capsys.readouterr().err
    (tmp_path / f"runs/table-{scale}/seed-1").mkdir(parents=True)
    assert command("table", "1", "4:1-3", "--scale", scale, "--seeds", "0,1", "--so-far") == 0
    said = capsys.readouterr().err
    assert "tab1_hypotheses: its beams are not kept and need the models: run it without --so-far" in said
    assert (
        "tab4_length_filter: not measured with these settings: rows 1-3 with seed 0; rows 1-3 with seed 1"
        in said
    )
    made = {each.suffix for each in (tmp_path / "runs").rglob("*") if each.is_file()}
    assert made == {".md", ".tsv"}, "a page, and no corpus"


def test_what_a_folder_lacks_is_named(
    folder: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    data = folder("paper")
    (data / "dev-other.jsonl.gz").unlink()
    assert command("table", "2", "--scale", "paper", "--data", data) == 2
    assert "lacks dev-other.jsonl.gz: prepare the paper scale's data there first" in capsys.readouterr().err
    assert command("table", "2", "--scale", "paper", "--data", data / "nowhere") == 2
    assert f"there is no folder {data / 'nowhere'}: prepare" in capsys.readouterr().err
    assert not (data.parent / "runs").exists(), "nothing is left behind"


def test_main_results_are_trained_for_longer_at_paper_scale_unless_told_otherwise(
    folder: Callable[..., Path],
) -> None:
    request = Request((), "paper", data=folder("paper"))
    study = request.study(0)
    systems = [row.system for row in tables()["tab7_main"].rows if row.system is not None]
    updates = {study.settings_of(system).matching.updates for system in systems}
    assert updates == {3_200_000}, "for all of them"
    default, best = system_of("matched clean"), system_of("matched clean", main=True)
    assert study.settings_of(default).matching.updates == 1_600_000
    assert study.settings_of(best).matching.reference_lengths == "asr_lm"
    assert study.folder_of(best).name == f"{study.folder_of(default).name}-longer"
    told = replace(request, overrides=("matching.updates=1000",)).study(0)
    assert told.settings_of(best).matching.updates == 1000


def test_rows_of_60000_hours_run_where_their_speech_is_with_the_larger_model(
    folder: Callable[..., Path], tiny_corpus: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    data = folder("paper")
    words = ("table", "A4:4-5", "--scale", "paper", "--data", data, *TINY, *KEPT)
    assert command(*words) == 0
    systems = data.parent / "runs/table-paper/seed-0/systems"
    assert [each.name for each in systems.iterdir()] == ["matched-all-longer"]
    lacking = "lacks small.jsonl.gz, medium.jsonl.gz, large.jsonl.gz"
    assert f"tabA4_cer: row 5 not run because {data} {lacking}" in capsys.readouterr().err
    for number, name in enumerate(light_files("paper")):
        made = tiny_corpus(sentences(2, seed=90 + number, most_words=3), name.removesuffix(".jsonl.gz"))
        shutil.copy(made, data / name)
    assert command(*words) == 0
    assert "not run" not in capsys.readouterr().err
    (large,) = (each for each in systems.iterdir() if "light" in each.name)
    assert SpeechRecognizer.load(large / "lpm/model").settings.blocks == [2, 3, 6]
    page = (data.parent / "runs/table-paper/tabA4_cer-rows-4-5.tsv").read_text().splitlines()
    assert all("\tNA" not in line for line in page[1:])


def test_shares_of_labels_are_kept_by_part(folder: Callable[..., Path]) -> None:
    data = folder("small")
    study = Request((), "small", data=data, overrides=(*TINY, *KEPT)).study(0)
    whole, clean = system_of("pseudo_labels all labels=asr"), system_of("pseudo_labels clean labels=asr")
    unfiltered = replace(whole, filtered=False)
    shares = {part: each[1].keep_best for part, each in study.filtered_parts(whole).items()}
    assert shares == {"clean": 0.9, "other": 0.4}
    assert list(study.filtered_parts(clean)) == ["clean"]
    heard = [
        Transcript(cut.id, "some words", 2, None, [("some words", -float(number))])
        for number, cut in enumerate(read_cuts(study.speech["all"][0]))
    ]
    transcripts = data / "transcripts.jsonl"
    write_transcripts(transcripts, heard)
    kept = {cut.id for cut in read_cuts(study.labels(whole, [transcripts]))}
    assert len(read_cuts(study.labels(unfiltered, [transcripts]))) == len(heard)
    parts = {part: {cut.id for cut in read_cuts(paths[0])} for part, paths in study.parts.items()}
    assert {part: len(ids & kept) for part, ids in parts.items()} == {"clean": 6, "other": 3}


def test_a_study_of_an_older_version_is_continued(
    folder: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    data = folder("small")
    (data / "labeled.jsonl.gz").rename(data / "labelled.jsonl.gz")
    request = Request((), "small", data=data, overrides=(*TINY, *KEPT))
    study, system = request.study(0), system_of("pseudo_labels all labels=asr")
    assert study.data.labeled.name == "labelled.jsonl.gz"
    transcripts = data / "transcripts.jsonl"
    heard = [
        Transcript(cut.id, "words", 1, None, [("words", -1.0)]) for cut in read_cuts(study.speech["all"][0])
    ]
    write_transcripts(transcripts, heard)
    made = study.labels(system, [transcripts])
    for manifest in (study.speech["all"][0], made):
        manifest.rename(manifest.with_name(manifest.name.replace("labeled", "labelled")))
    for record in (study.folder / "both/stage.json", made.with_name("stage.json")):
        record.write_text(re.sub(r'"(un)?labeled(?=[\w.-]*":)', r'"\1labelled', record.read_text()))
    (study.folder / "unlabeled").rename(study.folder / "unlabelled")
    capsys.readouterr()
    again = request.study(0)
    assert again.speech["all"][0] == study.folder / "both/unlabelled.jsonl.gz"
    labels = again.labels(system, [transcripts])
    assert labels == study.folder / "unlabelled/all" / made.parent.name / "labelled.jsonl.gz"
    assert "rerun because" not in capsys.readouterr().err


def test_a_system_of_an_older_version_keeps_its_folder(tmp_path: Path) -> None:
    places = Request((), "small", overrides=(f"runs={tmp_path}",)).places(0)
    system = present(tables()["x3_prior_in_search"].rows[5].system)
    new = places.folder_of(system)
    assert "-fusion.centered=True-" in new.name
    old = new.with_name(new.name.replace("centered", "centred"))
    old.mkdir(parents=True)
    assert places.folder_of(system) == old


def test_several_tables_train_what_they_share_once(
    folder: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    data = folder("small")
    words = ("--scale", "small", "--data", data, *TINY, *KEPT)
    assert command("table", "1", "A1", "5", *words) == 0
    runs = data.parent / "runs/table-small"
    assert {each.stem for each in runs.glob("*.md")} == {"tab1_hypotheses", "tabA1_alpha", "tab5_lm_ppl"}
    assert len(list((runs / "seed-0/systems").iterdir())) == 5 + 4, "the plain one is in both"
    page = (runs / "tabA1_alpha.md").read_text()
    assert "priormatch table tabA1_alpha --scale small --seeds 0 --data" in page
    assert "## Differences from plain matching" in page
    assert "Trained at commit " in page
    assert "on CPU (" in page
    assert "| shared | prior |" in page
    assert "| 4 | matched-clean |" in page
    intervals = [
        line.split("\t")[:3] for line in (runs / "tabA1_alpha.intervals.tsv").read_text().splitlines()
    ]
    compared = [("1", "4"), ("2", "4"), ("3", "4"), ("5", "4")]
    assert intervals[1:] == [[*pair, f"dev_{part}_wer"] for pair in compared for part in ("clean", "other")]
    beams = (runs / "tab1_hypotheses.md").read_text().split("## ")
    shown = capsys.readouterr().out
    for part in ("| utterance | model | rank | log q(y) |", "| 1 | LPM | 1 |", "+word: an insertion"):
        assert part in beams[0]
    assert beams[1].startswith("The paper's beams")
    assert "| 1 | Sup100h | 1 | -47.58 | `_she _looked" in beams[1]
    assert "-47.58" in shown
    weights = [line.split("\t")[2] for line in (runs / "tabA1_alpha.tsv").read_text().splitlines()]
    assert weights == ["our_loss_weight", "0.1", "0.25", "0.5", "1", "2.5"]


def test_systems_that_search_with_the_prior_share_its_tuned_values(folder: Callable[..., Path]) -> None:
    data = folder("small")
    words = ("--scale", "small", "--data", data, "--jobs", "2", "fusion.beam_size=2", *TINY, *KEPT)
    assert command("table", "X2:7,13,14", *words) == 0
    runs = data.parent / "runs/table-small/seed-0"
    assert sorted(str(each.relative_to(runs)) for each in runs.rglob("fusion.yaml")) == [
        "fusion/best/fusion-matching/fusion.yaml",
        "fusion/best/fusion/fusion.yaml",
    ], "one for hypotheses, one for labels"
    systems = sorted((runs / "systems").iterdir())
    searched = [
        present(read_record(each / "lpm"))["recipe"]["settings"]
        for each in systems
        if "hypotheses" in each.name
    ]
    assert len(systems) == 3
    assert sorted(each["matching"]["beam_size"] for each in searched) == [1, 4]
    tuned = load_settings(None, read_tuned(runs / "fusion/best/fusion-matching/fusion.yaml")).fusion
    assert tuned.beam_size == 2
    assert [each["fusion"] for each in searched] == [plain(tuned)] * 2


def test_what_is_heard_with_the_prior_waits_for_all_that_is_tuned_for_it(folder: Callable[..., Path]) -> None:
    chosen = ("matching.reference_lengths=asr_lm", "matching.hypotheses=asr_lm")
    request = Request(
        ("x1_open_questions",), "small", data=folder("small"), overrides=(*TINY, *KEPT, *chosen)
    )
    study = request.study(0)
    rows = [
        row for row in request.rows_of("x1_open_questions") if row.cells["method"] in ("LPM", "LPM, context")
    ]
    found = tasks_of(request, jobs_of({"x1_open_questions": rows}, {0: study}), {0: study})
    tuned = {key for key in found if isinstance(key, Shared) and key.what == "fusion"}
    (heard,) = (found[key] for key in found if isinstance(key, Shared) and key.what == "asr_lm")
    assert len(tuned) == 2, "one recognizer, with either of two priors"
    assert heard.after >= tuned


def test_what_learns_fixed_labels_of_the_recognizer_alone_waits_for_no_tuning(
    folder: Callable[..., Path],
) -> None:
    request = Request(
        ("tab7_main",), "small", data=folder("small"), overrides=(*TINY, *KEPT, "matching.hypotheses=asr_lm")
    )
    study = request.study(0)
    rows = [row for row in request.rows_of("tab7_main") if row.system and row.system.labels == "asr"]
    found = tasks_of(request, jobs_of({"tab7_main": rows}, {0: study}), {0: study})
    heard = {key.what for key in found if isinstance(key, Shared)}
    assert {"asr", "labels"} <= heard
    assert not [what for what in heard if what.startswith("fusion")]


def test_what_searches_with_the_prior_waits_for_values_tuned_for_matching(
    folder: Callable[..., Path],
) -> None:
    request = Request(("x3_prior_in_search",), "small", data=folder("small"), overrides=(*TINY, *KEPT))
    study, rows = request.study(0), request.rows_of("x3_prior_in_search")
    wanted = jobs_of({"x3_prior_in_search": rows}, {0: study})
    found = tasks_of(request, wanted, {0: study})
    for job, its in wanted.items():
        waits = {key.what for key in found[Trained(job)].after if isinstance(key, Shared)}
        search = its[0].row.cells["search"]  # those not named here have values of their own
        assert ("fusion-matching" in waits) == (search == "ASR+LM")
        assert "fusion" not in waits


def test_the_longest_trainings_start_first(folder: Callable[..., Path]) -> None:
    request = Request(("tab2_beam_mix", "tab7_main"), "small", data=folder("small"), overrides=(*TINY, *KEPT))
    study = request.study(0)
    wanted = jobs_of({table: request.rows_of(table) for table in request.tables}, {0: study})
    systems = [its[0].system for its in wanted.values()]
    efforts = [effort_of(each, study.settings_of(each)) for each in systems]
    assert efforts == sorted(efforts, reverse=True)
    assert [each.kind for each in systems[-4:]].count("matched") == 0, "nothing is quicker than fixed labels"


def test_a_dry_run_tells_data_and_trainings_and_does_nothing(
    folder: Callable[..., Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = folder("paper")
    monkeypatch.setattr("priormatch.pipeline.probe.COUNTED", 1)
    monkeypatch.setattr("priormatch.pipeline.probe.WARM_UP", 1)
    words = ("--scale", "paper", "--data", data, "--dry-run", *TINY, *KEPT)
    assert command("table", "1", "A1", *words) == 0
    said = capsys.readouterr()
    assert "matched-clean " in said.out, "Table 1 has a system too"
    for name in ("shared: prior", "shared: supervised", "validations with 2 blocks"):
        assert name in said.out
    assert "required only for the rows of 60,000 hours: small.jsonl.gz, medium.jsonl.gz" in said.err
    assert "large.jsonl.gz; missing: small.jsonl.gz, medium.jsonl.gz, large.jsonl.gz" in said.err
    assert not (data.parent / "runs").exists()


def test_a_model_that_fails_takes_only_its_own_systems_with_it(
    folder: Callable[..., Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def supervised(models: Any) -> Any:
        if models.settings.model.blocks == broken:
            raise UserError("no room for it")
        return made(models)

    made, broken, data = Models.supervised, [2, 3, 6], folder("paper")
    monkeypatch.setattr(Models, "supervised", supervised)
    words = ("table", "7:12,23", "--scale", "paper", "--data", data, *TINY, *KEPT)
    assert command(*words) == 2
    assert "1 of 2 systems failed and are left out" in capsys.readouterr().err
    file = data.parent / "runs/table-paper/tab7_main-rows-12,23.tsv"
    page = file.read_text().splitlines()
    assert [line.endswith("\tNA\tNA\tNA\tNA") for line in page[1:]] == [True, True], "nothing is recovered"
    assert ["NA" in line.split("\t")[-8:-4] for line in page[1:]] == [False, True]
    assert "\nRow 12: 132.19 is a misprint in the paper" in file.with_suffix(".md").read_text()
    broken[:] = [1, 1]
    assert command(*words) == 2
    said = capsys.readouterr().err
    assert "1 of 2 systems failed" in said
    assert "matched-all-longer with seed 0 (UserError: no room for it)" in said
    page = file.read_text().splitlines()
    assert ["NA" in line.split("\t")[-8:-4] for line in page[1:]] == [True, False], (
        "nor are old figures shown"
    )
