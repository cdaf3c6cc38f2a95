"""`priormatch run` on folders of audio: results, reuse, change, and going on after a stop."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from signal import Signals
from typing import Any

import pytest
import torch
import yaml
from markupsafe import escape
from narrowing import present
from tiny_run import command, files, make_folders

from priormatch.config import load_settings
from priormatch.data.tokenizer import Tokenizer
from priormatch.decoding.tuning import read_tuned
from priormatch.pipeline import run as pipeline
from priormatch.pipeline.run import planned
from priormatch.progress import Meter
from priormatch.recognizers import decode as decoding
from priormatch.recognizers.card import read_card
from priormatch.runs.results import score_systems
from priormatch.runs.stage import Decision, plain, read_record
from priormatch.training.inspected import read_inspected

OWN = ("run", "tiny.yaml", "labeled=labeled", "unlabeled=unlabeled", "text=text.txt")
TESTED = (*OWN, "test.clean=test")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run, of which tests take copies."""
    root = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        make_folders(root)
        assert command(*TESTED) == 0
    return root


@pytest.fixture
def home(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the finished run that can be gone on with, its data being where they were."""
    shutil.copytree(finished / "runs", tmp_path / "runs")
    monkeypatch.chdir(finished)
    return tmp_path


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with data and recipe, and no run yet."""
    root = tmp_path / "fresh"
    root.mkdir()
    make_folders(root)
    monkeypatch.chdir(root)
    return root


def results(root: Path) -> dict[str, Any]:
    return json.loads((root / "runs/tiny/results.json").read_text())


def redone(said: str) -> set[str]:
    """The stages that were not reused."""
    return {line.removesuffix(" ...") for line in said.splitlines() if line.endswith(" ...")}


def folders(root: Path) -> set[str]:
    return {each.name for each in (root / "runs/tiny").iterdir() if each.is_dir()}


def weights(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted((root / "runs/tiny").glob("*/model/model.safetensors"))
    }


def plan(*words: str) -> dict[str, Decision]:
    """What a run with these words would do about each stage."""
    found = planned(load_settings(Path(words[1]), words[2:]))
    return {str(each.folder.relative_to(present(found[0]).folder.parent)): each for each in found}


def used_as_they_are(words: Sequence[str]) -> bool:
    """Whether a run with these words would make nothing."""
    return all(each.finished and each.place == each.folder for each in plan(*words).values())


def work(root: Path) -> dict[str, bytes]:
    """All files but those that tell when they were written."""
    told = re.compile(r"/(results|report)\.\w+$")
    return {name: content for name, content in files(root).items() if not told.search(name)}


def test_recordings_of_one_utterance_each_give_the_prior_nothing_to_read(
    fresh: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*OWN, "matching.context=true", "prior.model.context=true") == 2
    assert "follows another in its recording" in capsys.readouterr().err
    assert folders(fresh) == {"data"}


def test_results_have_their_shape(finished: Path) -> None:
    found = results(finished)
    assert list(found["systems"]) == ["supervised_start", "supervised", "lpm"]
    assert found["gain"].keys() == {"lpm"}
    for tests in found["systems"].values():
        assert tests.keys() == {"clean"}
        assert tests["clean"].keys() == {"wer", "wer_interval", "cer"}
        low, high = tests["clean"]["wer_interval"]
        assert 0 <= low <= tests["clean"]["wer"] <= high
    assert found["werr"] == {}
    assert found["gain"]["lpm"]["clean"].keys() >= {"relative", "p_value", "interval"}
    assert found["seconds"]["total"] == pytest.approx(
        sum(value for name, value in found["seconds"].items() if name != "total"), abs=0.1
    )
    assert found["peak_memory_mb"] > 10
    assert found["seed"] == 0
    assert (finished / "runs/tiny/settings.yaml").is_file()
    assert (finished / "runs/tiny/metrics.jsonl").is_file()
    assert not [path for path in finished.rglob("*") if path.suffix in (".pt", ".pkl", ".pickle")]
    assert not list(finished.rglob("*.tmp*"))


def test_cards_tell_the_results_of_the_systems_that_were_scored(finished: Path) -> None:
    systems = results(finished)["systems"]
    of_systems = {"supervised": "supervised_start", "supervised-longer": "supervised", "lpm": "lpm"}
    for stage, system in of_systems.items():
        card = present(read_card(finished / "runs/tiny" / stage / "model"))
        (entry,) = card.facts["model-index"][0]["results"]
        assert entry["dataset"]["name"] == "clean"
        assert entry["metrics"][0]["value"] == round(systems[system]["clean"]["wer"], 2)
        assert f"| clean | {systems[system]['clean']['wer']:.2f} (" in card.sections["Results"]
    lines = present(read_card(finished / "runs/tiny/lpm/model")).sections["Data"].splitlines()
    assert lines[2].startswith("- prior: tiny-prior, a language model of ")
    assert ", trained on text.txt (" in lines[2]
    assert "model-index" not in present(read_card(finished / "runs/tiny/prior/model")).facts


def test_a_run_ends_with_a_report_of_its_beams(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    beams = read_inspected(finished / "runs/tiny/lpm/inspected.jsonl")
    assert len({each.inspection.id for each in beams}) == 12
    monkeypatch.chdir(finished)
    assert command(*TESTED) == 0
    assert "report, to open in a browser: runs/tiny/report.html" in capsys.readouterr().err
    page = (finished / "runs/tiny/report.html").read_text()
    assert page.count("<audio ") >= 12, "the beams, and the worst errors"
    assert "not finished" not in page


def test_metrics_of_all_stages_are_in_one_file_without_a_double(finished: Path) -> None:
    lines = [json.loads(line) for line in (finished / "runs/tiny/metrics.jsonl").read_text().splitlines()]
    assert {each["stage"] for each in lines} == {"prior", "supervised", "supervised-longer", "lpm"}
    keys = [(each["stage"], each["update"], "loss" in each) for each in lines]
    assert len(keys) == len(set(keys))
    assert [update for stage, update, report in keys if stage == "supervised" and report] == list(
        range(4, 61, 4)
    )


def test_what_was_chosen_on_validation_depends_on_it(finished: Path) -> None:
    inputs = {
        stage: present(read_record(finished / "runs/tiny" / stage))["recipe"]["inputs"]
        for stage in ("supervised", "supervised-longer", "lpm")
    }
    assert all("validation" in each for each in inputs.values()), inputs


def test_the_table_shows_the_relative_gain_where_there_is_no_topline(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(finished)
    monkeypatch.setenv("COLUMNS", "200")
    assert command(*TESTED) == 0
    said = capsys.readouterr()
    assert "relative gain % (p)" in said.out
    assert "supervised, before longer training" in said.out
    assert "supervised is the model of supervised-longer" in " ".join(said.err.split())
    assert "WERR" not in said.out
    assert redone(said.err) == set()


def test_a_second_call_changes_no_model_and_no_stage(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(finished)
    before = work(finished)
    assert command(*TESTED) == 0
    assert work(finished) == before
    assert not list(finished.rglob("results.*.1"))


def test_a_setting_of_matching_redoes_matching_alone(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = weights(home)
    assert command(*TESTED, f"runs={home / 'runs'}", "matching.beam_size=2") == 0
    said = capsys.readouterr().err
    assert redone(said) == {"lpm", "decoded/lpm"}
    assert "matching.beam_size changed" in said
    assert folders(home) >= {"lpm", "lpm.1"}
    after = weights(home)
    assert after["runs/tiny/lpm.1/model/model.safetensors"] == before["runs/tiny/lpm/model/model.safetensors"]
    same = {name for name in before if after[name] == before[name]}
    assert "runs/tiny/supervised/model/model.safetensors" in same
    assert "lpm.1" not in results(home)["seconds"]


def test_going_back_to_old_settings_trains_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = (*TESTED, f"runs={home / 'runs'}")
    before, folder = weights(home), home / "runs/tiny"
    learned = sorted((folder / "metrics.jsonl").read_text().splitlines())
    new = (*old, "prior.updates=10")
    assert {name for name, each in plan(*new).items() if each.place is None} == {
        "prior",
        "lpm",
        "decoded/lpm",
    }
    assert plan(*new)["prior"].reason == "prior.updates changed"
    assert command(*new) == 0
    said = capsys.readouterr().err
    assert "to rerun: prior, because prior.updates changed; it took" in said
    back = plan(*old)
    assert {name: present(each.place).name for name, each in back.items() if each.place != each.folder} == {
        "prior": "prior.1",
        "lpm": "lpm.1",
        "decoded/lpm": "lpm.1",
    }
    assert command(*old) == 0
    said = capsys.readouterr().err
    assert "to reuse: prior, from prior.1, which has these settings" in said.splitlines()
    assert redone(said) == set()
    assert {name: content for name, content in weights(home).items() if name in before} == before
    assert sorted((folder / "metrics.jsonl").read_text().splitlines()) == learned
    other = [json.loads(line) for line in (folder / "prior.2/metrics.jsonl").read_text().splitlines()]
    assert max(each["update"] for each in other) == 10
    assert used_as_they_are(old)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("device=cuda", "prior.updates=10"), "device=cuda: PyTorch sees no GPU here"),
        (("text=nowhere.txt", "prior.updates=10"), "text=nowhere.txt: there is no such file or folder"),
        (("matching.reference_lengths=oracle", "prior.updates=10"), "oracle needs the transcripts"),
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_call_that_fails_touches_nothing(
    home: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str
) -> None:
    before = files(home)
    assert command(*TESTED, f"runs={home / 'runs'}", *words) == 2
    assert sentence in capsys.readouterr().err
    assert files(home) == before


def test_a_setting_of_the_prior_redoes_the_prior_and_matching(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*TESTED, f"runs={home / 'runs'}", "prior.updates=10") == 0
    assert redone(capsys.readouterr().err) == {"prior", "lpm", "decoded/lpm"}


def test_other_text_redoes_all_that_hangs_on_it(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "more.txt").write_text(Path("text.txt").read_text() + "meeting with doctor\n")
    assert command(*TESTED, f"runs={home / 'runs'}", f"text={home / 'more.txt'}") == 0
    assert {"data", "tokenizer", "prior", "supervised", "lpm"} <= redone(capsys.readouterr().err)
    assert (home / "runs/tiny/data.1/text.txt").is_file()


def test_workers_threads_and_place_redo_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(*TESTED, f"runs={home / 'runs'}", "audio.workers=1", "threads=0", "device=cpu") == 0
    assert redone(capsys.readouterr().err) == set()


def test_how_often_to_report_and_to_save_redoes_nothing(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    often = ("training.report_every=1", "training.checkpoint_seconds=0.5")
    assert command(*TESTED, f"runs={home / 'runs'}", *often) == 0
    assert redone(capsys.readouterr().err) == set()


def test_a_model_that_is_gone_is_made_again_and_nothing_else(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = weights(home)
    (home / "runs/tiny/supervised/model/model.yaml").unlink()
    (home / "runs/tiny/lpm/checkpoint.safetensors").unlink()  # no one needs it any more
    assert command(*TESTED, f"runs={home / 'runs'}") == 0
    said = capsys.readouterr().err
    assert "supervised: rerun because model/model.yaml is missing or changed" in said
    assert [line for line in said.splitlines() if line.endswith(" ...")] == ["supervised ..."]
    after = weights(home)
    assert {name: after[name] for name in before} == before
    assert (home / "runs/tiny/supervised.1/model/model.safetensors").is_file()


def test_a_run_at_work_is_left_alone_by_a_second_one(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Even one with other settings, which would move the models of the first aside."""
    before = files(home)
    held = "import sys; from pathlib import Path; from priormatch.runs.lock import RUN_LOCK, alone_in"
    held += "\nwith alone_in(Path(sys.argv[1]), RUN_LOCK): print('held', flush=True); sys.stdin.read()"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    words = [sys.executable, "-c", held, str(home / "runs/tiny")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as other:
        assert present(other.stdout).readline() == b"held\n"
        assert command(*TESTED, f"runs={home / 'runs'}", "training.seed=1") == 2
        assert f"(process {other.pid} on " in capsys.readouterr().err
    assert files(home) == before


@pytest.mark.parametrize("changed", ["prior", "data"])
def test_results_are_refused_when_a_stage_or_its_input_changed_meanwhile(
    home: Path, changed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = home / "text.txt"
    shutil.copy("text.txt", text)
    words = (*TESTED, f"runs={home / 'runs'}", f"text={text}", "longer_supervised=false")

    def change(transcripts: dict[str, dict[str, Path]]) -> dict[str, dict[str, Any]]:
        if changed == "data":
            text.write_text("another text\n")
        else:
            file = home / "runs/tiny/prior/stage.json"
            file.write_text(file.read_text().replace('"seed": 0', '"seed": 1'))
        return score_systems(transcripts)

    monkeypatch.setattr(pipeline, "score_systems", change)
    before = (home / "runs/tiny/results.json").read_bytes()
    assert command(*words) == 2
    said = " ".join(capsys.readouterr().err.split())
    expected = {
        "prior": "tiny/prior was changed by another process",
        "data": "text.txt changed during the run",
    }
    assert expected[changed] in said
    assert (home / "runs/tiny/results.json").read_bytes() == before


def test_a_run_ends_with_a_verdict_in_words(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its sets of a few utterances decide nothing, and that is said."""
    monkeypatch.chdir(finished)
    assert command(*TESTED) == 0
    captured, found = capsys.readouterr(), results(finished)["verdict"]
    assert "warning: the validation set (" in captured.err
    said = captured.out
    assert f"verdict: {found['text']}" in said.splitlines()
    assert any("clean (8 utterances, " in each for each in found["reasons"])
    assert any(each.startswith("The validation set (") for each in found["reasons"])
    assert found["next"]
    page = (finished / "runs/tiny/report.html").read_text()
    for each in found["reasons"]:
        assert f"  {each}" in said
        assert str(escape(each)) in page
    for each in found["next"]:
        assert f"  next: {each}" in said
        assert str(escape(each)) in page


def test_a_refused_matching_ends_with_the_other_scores_and_a_verdict(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = (*TESTED, f"runs={home / 'runs'}", "matching.max_proposal_cer=0.01")
    assert command(*asked) == 2
    said, found = capsys.readouterr(), results(home)
    assert "verdict: Local prior matching did not start." in said.out
    assert "above matching.max_proposal_cer=0.01" in said.err
    assert (found["verdict"]["outcome"], found["systems"].keys()) == (
        "refused",
        {"supervised_start", "supervised"},
    )
    assert "above matching.max_proposal_cer=0.01" in found["verdict"]["reasons"][0]
    assert not (home / "runs/tiny/decoded/lpm").exists(), "it is of another matching"
    assert command(*TESTED, f"runs={home / 'runs'}") == 0
    assert redone(capsys.readouterr().err) == set()
    assert results(home)["systems"].keys() == {"supervised_start", "supervised", "lpm"}


def test_other_systems_set_the_old_results_aside(home: Path) -> None:
    before = results(home)["systems"]
    assert command(*TESTED, f"runs={home / 'runs'}", "pseudo_labels=true") == 0
    found = results(home)
    assert found["systems"].keys() == {"supervised_start", "supervised", "pseudo_label", "lpm"}
    assert found["lpm_against_pseudo_label"]["clean"].keys() >= {"difference", "p_value"}
    assert json.loads((home / "runs/tiny/results.json.1").read_text())["systems"] == before
    assert (home / "runs/tiny/results.png").exists() == (home / "runs/tiny/results.png.1").exists()


def test_a_topline_gives_the_recovered_share(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert command(*TESTED, f"runs={home / 'runs'}", "topline=labeled") == 0
    found = results(home)
    assert found["systems"].keys() == {"supervised_start", "supervised", "lpm", "topline"}
    assert found["werr"].keys() == {"lpm"}
    assert "WERR %" in capsys.readouterr().out
    assert used_as_they_are((*TESTED, f"runs={home / 'runs'}", "topline=labeled"))
    updates = json.loads((home / "runs/tiny/topline/stage.json").read_text())["recipe"]["settings"]["updates"]
    assert updates == 60 + 8  # no fewer than matching had, its initialization included


def test_without_a_test_set_the_validation_set_is_scored_and_that_is_said(
    fresh: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*OWN, "training.updates=20", "longer_supervised=false") == 0
    found = results(fresh)
    assert found["systems"]["lpm"].keys() == {"validation"}
    assert "no test set was given" in found["notes"][0]
    assert "no test set was given" in capsys.readouterr().err


def test_ctrl_c_in_every_stage_and_the_same_command_goes_on(
    finished: Path, fresh: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stopped once in each long stage, the run ends with the models and results of the one that was not."""
    advance = Meter.advance
    for name in ("BATCH_SECONDS", "PART_SECONDS"):
        monkeypatch.setattr(decoding, name, 2.0)  # so that there are several
    unlabeled, test = (f"decoding runs/tiny/data/{name}.jsonl.gz" for name in ("unlabeled", "test-clean"))
    stops = [("reading labeled", 5), ("supervised", 33), ("prior", 13), (unlabeled, 7)]
    stops += [("lpm", 6), ("supervised-longer", 3), (test, 2)]
    for where, after in stops:

        def stop(
            self: Meter, amount: int = 1, note: str | None = None, where: str = where, after: int = after
        ) -> None:
            advance(self, amount, note)
            if self.description == where and after <= self.done < present(self.total):
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Meter, "advance", stop)
            assert command(*TESTED) == 130, where
        said = capsys.readouterr().err
        assert f"stopped; run the same command again to resume: priormatch {' '.join(TESTED)}" in said
        expected = {
            "supervised": "saved: data, tokenizer; supervised resumes after update 20",
            "prior": "supervised; prior resumes after update 10",
            unlabeled: "supervised, prior; lengths resumes",
            "lpm": "lengths; lpm resumes after update 4",
            "supervised-longer": "lpm; supervised-longer starts again",
            test: "supervised-longer; decoded/supervised_start resumes",
        }
        assert expected.get(where, "") in said
    assert command(*TESTED) == 0
    said = capsys.readouterr().err
    assert redone(said) == {f"decoded/{each}" for each in ("supervised_start", "supervised", "lpm")}
    assert weights(fresh) == weights(finished)
    assert results(fresh)["systems"] == results(finished)["systems"]
    assert not [name for name in folders(fresh) if name.endswith(".1")]
    assert not list(fresh.rglob("*.partial"))


def test_a_second_process_makes_the_same_models(
    finished: Path, fresh: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*TESTED, "parallel=true", "threads=1") == 0
    said = capsys.readouterr().err
    assert "prior: in a second process, log: runs/tiny/beside.log" in said
    assert redone(said).isdisjoint({"prior", "supervised-longer"})
    decoded = {"decoded/supervised", "decoded/supervised_start", "decoded/lpm"}
    assert redone((fresh / "runs/tiny/beside.log").read_text()) == {"prior", "supervised-longer", *decoded}
    assert weights(fresh) == weights(finished)
    assert results(fresh)["systems"] == results(finished)["systems"]
    assert command(*TESTED, "parallel=true") == 0
    assert "second process" not in capsys.readouterr().err, "all is made"


def test_a_failure_in_the_second_process_ends_the_run(
    fresh: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*TESTED, "parallel=true", "prior.pieces=9999") == 2
    assert "prior: no tokenizer of 9999 pieces can be trained" in capsys.readouterr().err


KILL = """
import os, signal, sys
from priormatch.cli import main
from priormatch.progress import Meter

advance, where = Meter.advance, (sys.argv[1], int(sys.argv[2]))

def die(self, amount=1, note=None):
    advance(self, amount, note)
    if (self.description, self.done) == where:
        os.kill(os.getpid(), signal.SIGKILL)

Meter.advance = die
sys.argv = ["priormatch", *sys.argv[3:]]
main()
"""


@pytest.mark.parametrize("where", [("supervised", 33), ("lpm", 6)], ids=["supervised", "lpm"])
def test_a_killed_process_and_the_same_command_goes_on(
    finished: Path, fresh: Path, where: tuple[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    source = str(Path(__file__).parents[2] / "src")
    ended = subprocess.run(
        [sys.executable, "-c", KILL, *map(str, where), *TESTED],
        env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert command(*TESTED) == 0
    assert "resuming from update" in capsys.readouterr().err
    assert weights(fresh) == weights(finished)
    assert results(fresh)["systems"] == results(finished)["systems"]


@pytest.mark.slow
def test_a_run_without_asserts_is_the_same(finished: Path, fresh: Path) -> None:
    """`python -O` leaves out what is done inside of an assert."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src"), "OMP_NUM_THREADS": "1"}
    main = "from priormatch.cli import main; main()"
    subprocess.run([sys.executable, "-O", "-c", main, *TESTED], env=environment, check=True)
    assert weights(fresh) == weights(finished)
    assert results(fresh)["systems"] == results(finished)["systems"]


STOP = """
import os, subprocess, sys
from priormatch.cli import main
from priormatch.progress import Meter

advance, where, number = Meter.advance, (sys.argv[1], int(sys.argv[2])), int(sys.argv[3])

def stop(self, amount=1, note=None):
    advance(self, amount, note)
    if (self.description, self.done) == where:
        subprocess.run(["kill", f"-{number}", "--", f"-{os.getpgid(0)}"], start_new_session=True)

Meter.advance = stop
sys.argv = ["priormatch", *sys.argv[4:]]
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_stop_of_all_processes_saves_and_the_same_command_resumes(
    finished: Path, fresh: Path, number: Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    """Terminals and clusters send their signals to the readers too."""
    source = str(Path(__file__).parents[2] / "src")
    words = (*TESTED, "audio.workers=2")
    ended = subprocess.run(
        [sys.executable, "-c", STOP, "supervised", "33", str(int(number)), *words],
        env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert ended.returncode == 128 + number, ended.stderr
    assert "supervised: saved at update 34 of 60" in ended.stderr
    assert "priormatch: stopped; run the same command again" in ended.stderr
    assert "saved: data, tokenizer; supervised resumes after update 34" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert command(*words) == 0
    assert "resuming from update 34" in capsys.readouterr().err
    assert weights(fresh) == weights(finished)
    assert results(fresh)["systems"] == results(finished)["systems"]


def test_matching_starts_from_copies_that_were_kept(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished, tmp_path / "copies")
    monkeypatch.chdir(tmp_path / "copies")
    keep = ("training.keep.early.update=20", "training.keep.late.update=40", "prior.keep.weak.update=10")
    chosen = ("matching.start=early", "matching.proposal=late", "matching.prior=weak")
    how = ("matching.refresh=never", "matching.reference_lengths=speaking_rate")
    searched = ("matching.hypotheses=asr_lm", "fusion.beam_size=2")
    assert command(*TESTED, *keep, *chosen, *how, *searched) == 0
    assert used_as_they_are((*TESTED, *keep, *chosen, *how, *searched))
    assert not Path("runs/tiny/fusion-matching").exists(), "what stays is tuned for decoding"
    tuned_for = present(read_record(Path("runs/tiny/fusion")))["recipe"]["inputs"]
    assert [tuned_for[name].split()[0] for name in ("model", "prior")] == ["kept/late", "kept/weak"]
    inputs = present(read_record(Path("runs/tiny/lpm")))["recipe"]["inputs"]
    assert [inputs[name].split()[0] for name in ("model", "proposal", "prior", "lengths")] == [
        "kept/early",
        "kept/late",
        "kept/weak",
        "lengths.jsonl",
    ]
    assert "word pieces per second" in capsys.readouterr().err
    history = [json.loads(line) for line in Path("runs/tiny/metrics.jsonl").read_text().splitlines()]
    assert {each["refreshes"] for each in history if "refreshes" in each} == {0}


def test_hypotheses_are_found_with_the_prior_by_tuned_values(
    finished: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = (*TESTED, f"runs={home / 'runs'}", "matching.hypotheses=asr_lm", "fusion.beam_size=2")
    assert command(*asked) == 0
    assert redone(capsys.readouterr().err) >= {"fusion-matching", "lpm"}
    tuned = load_settings(None, read_tuned(home / "runs/tiny/fusion-matching/fusion.yaml")).fusion
    recipe = present(read_record(home / "runs/tiny/lpm"))["recipe"]
    assert (tuned.beam_size, recipe["settings"]["fusion"]) == (2, plain(tuned))
    here, before = weights(home), weights(finished)
    assert {name for name in before if here[name] != before[name]} == {
        "runs/tiny/lpm/model/model.safetensors"
    }
    assert used_as_they_are(asked)
    fusion = home / "runs/tiny/fusion-matching"
    record, values = (
        json.loads((fusion / "stage.json").read_text()),
        yaml.safe_load((fusion / "fusion.yaml").read_text()),
    )
    del (
        record["recipe"]["settings"]["none"],
        values["tuned"]["without_prior"],
    )  # as an older version wrote them
    for wer, again in ((values["tuned"]["greedy"]["wer"] - 1, set()), (1000.0, {"fusion-matching"})):
        values["tuned"]["with_prior"]["wer"] = wer
        content = yaml.safe_dump(values)
        record["files"]["fusion.yaml"] = len(content)
        (fusion / "fusion.yaml").write_text(content)
        (fusion / "stage.json").write_text(json.dumps(record))
        assert {name for name, each in plan(*asked).items() if each.place is None} >= again
        assert used_as_they_are(asked) is not bool(again)
        assert command(*asked) == 0
        assert redone(capsys.readouterr().err) >= again
    assert used_as_they_are(asked)
    assert command(*asked) == 0
    assert redone(capsys.readouterr().err) == set()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("matching.start=early",), "matching.start=early: no such copy: training.keep names []"),
        (("training.keep.a.score=1", "training.keep.a.update=2"), "set either update or score"),
        (("matching.reference_lengths=oracle",), "oracle needs the transcripts of the unlabeled speech"),
    ],
)
def test_what_matching_cannot_start_from_is_said(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    sentence: str,
) -> None:
    assert command(*TESTED, f"runs={home / 'runs'}", *words) == 2
    assert sentence in capsys.readouterr().err


def test_a_run_of_a_conformer_with_ctc_over_characters_and_a_prior_of_pieces(
    fresh: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = (
        "model.kind=ctc",
        "model.encoder=conformer",
        "model.conformer={width: 16, layers: 2, heads: 2, kernel: 5}",
        "training.ctc_weight=0",
        "tokenizer.kind=characters",
        "prior.pieces=31",
        "pseudo_labels=true",
    )
    assert command(*TESTED, *chosen) == 2
    said = capsys.readouterr().err
    assert "problem  labeled: 30.5 characters per second on average" in said
    assert "1 problem found before the run, see above; nothing was changed" in said
    assert not folders(fresh)
    assert command(*TESTED, *chosen, "--force") == 0
    run = fresh / "runs/tiny"
    assert {"tokenizer", "tokenizer-prior", "lpm", "pseudo_label"} <= folders(fresh)
    letters, pieces = Tokenizer.load(run / "lpm/model"), Tokenizer.load(run / "prior/model")
    assert max(map(len, letters.pieces)) == 1
    assert max(map(len, pieces.pieces)) > 1
    assert set(results(fresh)["systems"]) == {"supervised_start", "supervised", "pseudo_label", "lpm"}
    assert read_inspected(run / "lpm/inspected.jsonl")
    before = weights(fresh)
    capsys.readouterr()
    assert used_as_they_are((*TESTED, *chosen))
    assert command(*TESTED, *chosen) == 0
    assert redone(capsys.readouterr().err) == set()
    assert weights(fresh) == before
