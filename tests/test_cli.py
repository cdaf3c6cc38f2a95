import errno
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from signal import Signals
from typing import Any

import pytest
import torch
import typer
import yaml
from narrowing import of_type
from safetensors import SafetensorError
from tiny_run import command, files, verbs
from typer.core import TyperGroup

import priormatch
from priormatch import config, distributed
from priormatch.cli.app import RESUMES, app, stop
from priormatch.cli.help import plain, purpose
from priormatch.cli.options import matching_settings_of, settings_of
from priormatch.config import FusionSettings
from priormatch.decoding.tuning import write_tuned
from priormatch.recognizers.recognizer import SpeechRecognizer

VERBS = [
    "run",
    "demo",
    "new",
    "doctor",
    "settings",
    "pack",
    "tokenizer",
    "train-prior",
    "train",
    "match",
    "decode",
    "transcribe",
    "serve",
    "tune",
    "label",
    "score",
    "hypotheses",
    "push",
    "export",
]


def process(*words: str) -> subprocess.CompletedProcess:
    source = Path(__file__).parents[1] / "src"
    code = (
        "import sys; from priormatch.cli import main\n"
        "try: main()\n"
        "finally: print('heavy:', sorted({'torch', 'lhotse', 'omegaconf', 'numpy'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(source), "COLUMNS": "100"}
    return subprocess.run(
        [sys.executable, "-c", code, *words], env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Run a command that must be refused in one sentence, with code 2, and with nothing left behind."""
    monkeypatch.chdir(tmp_path)

    def refused(*words: Path | str) -> str:
        before = files(tmp_path)
        capsys.readouterr()
        assert command(*words) == 2
        assert files(tmp_path) == before
        said = capsys.readouterr()
        assert said.out == ""
        (line,) = [line for line in said.err.splitlines() if line.startswith("priormatch: ")]
        assert "Traceback" not in said.err
        return line

    return refused


@pytest.mark.parametrize("verb", verbs())
def test_every_verb_explains_itself_with_an_example_and_plain_names_of_values(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*verb.split(), "--help") == 0
    said = capsys.readouterr().out
    assert "Usage: " in said
    assert f"Example: priormatch {verb}" in " ".join(said.split())
    usage, _, meanings = said.partition("\n\n")
    assert not set("{}") & set(usage)
    assert not re.search(r"<(?!=)|RANGE|\blist\[", meanings)


@pytest.mark.parametrize(("given", "used"), [(None, "64"), ("7", "7")])
def test_onednn_keeps_few_kernels_unless_asked_to(
    given: str | None, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", given or "")
    if given is None:
        monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY")
    assert command("settings") == 0
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == used


def test_help_names_every_verb_and_loads_nothing_heavy() -> None:
    ended = process("--help")
    assert ended.returncode == 0
    assert all(f"\n  {verb} " in ended.stdout for verb in [*VERBS, "prepare"])
    assert "heavy: []" in ended.stdout


def test_help_groups_the_verbs_a_whole_line_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert command("--help") == 0
    said = capsys.readouterr().out
    titles = [line for line in said.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Options:", "Getting started:", "Using models:", "Results:", "Stage by stage:"]
    assert "..." not in said.partition("Options:")[2]
    lines = said.partition("Getting started:")[2].splitlines()
    assert sum(line.startswith("  ") for line in lines) == len(
        of_type(TyperGroup, typer.main.get_command(app)).commands
    )
    assert "  prepare      Convert corpora to manifests of cuts, and text to sentences\n" in said


def test_preparing_shows_an_example_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("prepare", "--help") == 0
    assert "Example: priormatch prepare audio " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "shown"),
    [
        ("--out <path>", "--out PATH"),
        ("--format <list[txt|srt]>", "--format txt|srt"),
        ("--longest <float range>", "--longest NUMBER"),
        ("--references <list[Path]>", "--references PATH"),
        ("--prior FOLDER|OWNER/NAME", "--prior FOLDER|OWNER/NAME"),
        ("--json", "--json"),
    ],
)
def test_types_become_words(option: str, shown: str) -> None:
    assert plain(option) == shown


@pytest.mark.parametrize(
    ("help", "clause"),
    [
        ("Run it; again.\n\nMore.", "Run it"),
        ("Find values: all\nof them.", "Find values"),
        ("Read a.jsonl 3:4 whole.", "Read a.jsonl 3:4 whole"),
    ],
)
def test_a_verbs_purpose_is_its_first_clause(help: str, clause: str) -> None:
    assert purpose(help) == clause


def test_version() -> None:
    ended = process("--version")
    assert ended.returncode == 0
    assert ended.stdout.splitlines()[0] == f"priormatch {priormatch.__version__}"
    assert "heavy: []" in ended.stdout


@pytest.mark.parametrize("words", [(), ("prepare",)], ids=["priormatch", "prepare"])
def test_no_verb_shows_the_help(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert command(*words) == 2
    assert capsys.readouterr().err.startswith("Usage: ")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("bogus",), "No such command 'bogus'"),
        (("train",), "Missing option '--labeled'"),
        (("decode", "--beam-size", "0"), "--beam-size"),
        (("decode", "--beam", "3"), "--beam"),
        (("prepare", "nothing"), "No such command 'nothing'"),
        (("run",), "Missing argument"),
    ],
)
def test_a_wrong_use_is_one_line(refused: Callable[..., str], words: tuple[str, ...], expected: str) -> None:
    said = refused(*words)
    assert expected in said
    assert said.endswith("(see --help)")


def test_settings_are_printed_as_yaml_that_can_be_read_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert command("settings", "--recipe", "demo", "training.seed=3") == 0
    printed = capsys.readouterr().out
    assert yaml.safe_load(printed)["training"]["seed"] == 3
    (tmp_path / "again.yaml").write_text(printed)
    assert config.load_settings(tmp_path / "again.yaml").training.seed == 3


def test_settings_are_explained(capsys: pytest.CaptureFixture[str], refused: Callable[..., str]) -> None:
    assert command("settings") == 0
    assert "\n  seed: 0  # random seed" in capsys.readouterr().out
    assert command("settings", "--reference") == 0
    assert "| `training.seed` |" in capsys.readouterr().out
    assert "omit" in refused("settings", "--reference", "training.seed=3")


def test_settings_of_a_group_are_printed_alone(
    capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    def printed(*words: str) -> Any:
        assert command("settings", *words) == 0
        return yaml.safe_load(capsys.readouterr().out)

    whole = printed()
    assert printed("matching") == {"matching": whole["matching"]}
    assert printed("matching.optimizer.clip", "fusion") == {
        "matching": {"optimizer": {"clip": whole["matching"]["optimizer"]["clip"]}},
        "fusion": whole["fusion"],
    }
    assert printed("matching.beam_size", "matching.beam_size=9") == {"matching": {"beam_size": 9}}
    assert printed("name", "--recipe", "demo", "--json") == {"name": "demo"}
    assert "there is no setting or group of settings matchin: did you mean matching?" in refused(
        "settings", "matchin"
    )


@pytest.mark.parametrize(
    "words",
    [
        ("run", "demo", "training.sede=3"),
        ("demo", "training.sede=3"),
        ("settings", "training.sede=3"),
        ("tokenizer", "--out", "x", "training.sede=3"),
    ],
    ids=lambda words: words[0],
)
def test_a_misspelled_setting_is_given_its_neighbor(
    refused: Callable[..., str], words: tuple[str, ...]
) -> None:
    assert "there is no setting training.sede: did you mean training.seed?" in refused(*words)


def test_every_verb_that_takes_settings_takes_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    assert settings_of(None, ["threads=3"]).threads == 3
    assert asked == [3]


def test_a_recipe_that_is_not_there(refused: Callable[..., str]) -> None:
    said = refused("run", "nowhere.yaml")
    assert "nowhere.yaml" in said
    assert "demo" in said


def test_a_folder_called_demo_does_not_hide_the_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()
    assert command("settings", "--recipe", "demo") == 0


@pytest.mark.parametrize(
    "words",
    [
        ("prepare", "audio", "nowhere", "--out", "x.jsonl.gz"),
        ("prepare", "librispeech", "nowhere", "--out", "x"),
        ("prepare", "librilight", "nowhere", "--out", "x"),
        ("prepare", "audio", "nowhere", "--out", "x.jsonl.gz"),
        ("prepare", "audio", "nowhere", "--out", "x.jsonl.gz"),
        ("prepare", "text", "nowhere", "--out", "x.txt"),
        ("tokenizer", "--text", "nowhere", "--out", "x"),
        ("train-prior", "--text", "a", "--validation-text", "b", "--tokenizer", "nowhere", "--out", "x"),
        ("train", "--labeled", "a", "--validation", "b", "--tokenizer", "nowhere", "--out", "x"),
        ("decode", "--model", "nowhere", "--cuts", "b", "--out", "x"),
        ("label", "--model", "nowhere", "--cuts", "b", "--out", "x.jsonl.gz"),
        ("label", "--transcripts", "nowhere", "--cuts", "nowhere", "--out", "x.jsonl.gz"),
        ("hypotheses", "--model", "nowhere", "--prior", "p", "--cuts", "b"),
        ("score", "nowhere"),
        ("run", "demo", "corpus=own", "labeled=nowhere", "unlabeled=nowhere", "text=nowhere", "runs=x"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_what_is_missing_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(*words) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith("priormatch: ")
    assert "nowhere" in said[-1]


def test_a_folder_without_audio_is_named(refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "empty contains no audio" in refused("prepare", "audio", "empty", "--out", "x.jsonl.gz")
    assert "empty contains no audio" in refused("prepare", "librispeech", "empty", "--out", "x")


def test_a_tokenizer_of_nothing(refused: Callable[..., str]) -> None:
    assert "pass --cuts or --text" in refused("tokenizer", "--out", "x")


def test_own_data_must_be_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command("run", "demo", "corpus=own") == 2
    assert "labeled is not set: set labeled=PATH" in capsys.readouterr().err


def test_a_device_that_is_not_there(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tiny_recognizer: SpeechRecognizer,
    tiny_corpus: Callable[..., Path],
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny_recognizer.save("model")
    words = ("decode", "--model", "model", "--cuts", tiny_corpus(1), "--out", "x.jsonl", "device=gpu")
    assert command(*words) == 2
    assert "device=gpu: not a device" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "goes_on"),
    [
        (("settings",), False),
        (("tokenizer", "--out", "x"), False),
        (("demo",), True),
        (("run", "demo"), True),
    ],
    ids=lambda value: value if isinstance(value, bool) else value[0],
)
def test_ctrl_c_says_how_to_go_on_where_one_can(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], goes_on: bool
) -> None:
    def stopped(*_: list[Any] | Path | None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(config, "load_settings", stopped)
    assert command(*words) == 130
    said = capsys.readouterr().err
    assert "priormatch: stopped" in said
    assert ("run the same command again to resume" in said) == goes_on


def test_messages_name_only_verbs_that_there_are() -> None:
    sources = sorted(Path(priormatch.__file__).parent.rglob("*.py"))
    named = {
        verb for each in sources for verb in re.findall(r"`priormatch ([a-z-]+)", each.read_text("utf-8"))
    }
    assert len(named) > 10
    assert named <= {verb.split()[0] for verb in verbs()}


def test_only_verbs_that_there_are_go_on() -> None:
    assert set(verbs()) > RESUMES


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C works, also where a shell has started the tests in the background and it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_that_a_library_turns_into_an_error_of_its_own_is_told_as_such(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def careless(*_: list[Any] | None) -> None:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise RecursionError

    monkeypatch.setattr(config, "load_settings", careless)
    assert command("settings") == 130
    assert capsys.readouterr().err.strip() == "priormatch: stopped"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("interruptible")
def test_a_signal_that_stops_is_told_by_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: Signals
) -> None:
    monkeypatch.setattr(config, "load_settings", lambda *_: signal.raise_signal(number))
    assert command("run", "demo") == 128 + number
    assert capsys.readouterr().err.startswith("\npriormatch: stopped; run the same command again")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_reader_killed_in_the_middle_of_other_work_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    def interrupted(*_: list[Any] | None) -> None:
        raise RuntimeError(
            "DataLoader worker (pid 77) is killed by signal: Killed. "
        )  # from torch's SIGCHLD handler

    monkeypatch.setattr(config, "load_settings", interrupted)
    assert "reads audio was killed" in refused("settings")


def test_a_place_that_cannot_be_is_one_sentence(tmp_path: Path, refused: Callable[..., str]) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/metrics.jsonl").touch()
    out = tmp_path / "file/report.html"
    assert f"{tmp_path / 'file'}: File exists" in refused("report", tmp_path / "run", "--out", out)


@pytest.mark.parametrize(
    "words",
    [
        ("report", "run", "--out", "/proc/x.html"),
        ("tokenizer", "--text", "text.txt", "--out", "/proc/x"),
        ("tokenizer", "--text", "text.txt", "--out", "/proc/x/y"),
    ],
    ids=" ".join,
)
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="there is no /proc here")
def test_a_place_that_denies_to_exist_is_one_sentence(
    tmp_path: Path, refused: Callable[..., str], words: tuple[str, ...]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/metrics.jsonl").touch()
    (tmp_path / "text.txt").write_text("monday at nine\n")
    assert "No such file or directory; fix this or choose another path" in refused(*words)


def test_a_full_disk_is_one_sentence(monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]) -> None:
    def full(*_: list[Any] | None) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "runs/x")

    monkeypatch.setattr(config, "load_settings", full)
    assert "runs/x cannot be written: No space left on device" in refused("settings")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        RuntimeError("unable to write to file </torch_1>: No space left on device (28)"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_full_disk_is_one_sentence_whoever_reports_it(
    monkeypatch: pytest.MonkeyPatch,
    refused: Callable[..., str],
    error: OSError | RuntimeError | SafetensorError,
) -> None:
    def full(*_: list[Any] | None) -> None:
        raise KeyError from error

    monkeypatch.setattr(config, "load_settings", full)
    assert "free some space and run the same command again" in refused("settings")


def test_a_thread_on_a_full_disk_leaves_the_explanation_to_the_main_thread(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    command("--version")

    def failed_with(error: OSError | ZeroDivisionError) -> str:
        threading.excepthook(threading.ExceptHookArgs((type(error), error, None, threading.current_thread())))
        return capsys.readouterr().err

    assert failed_with(OSError(errno.ENOSPC, "No space left on device")) == ""
    assert "ZeroDivisionError" in failed_with(ZeroDivisionError())


@pytest.mark.parametrize(
    "error", [ZeroDivisionError(), FileNotFoundError(errno.ENOENT, "gone", "x")], ids=repr
)
def test_an_error_of_ours_is_not_dressed_up_as_the_users(
    monkeypatch: pytest.MonkeyPatch, error: FileNotFoundError | ZeroDivisionError
) -> None:
    def wrong(*_: list[Any] | None) -> None:
        raise error

    monkeypatch.setattr(config, "load_settings", wrong)
    with pytest.raises(type(error)):
        command("settings")


@pytest.mark.parametrize(
    ("words", "prior", "told"),
    [
        (["matching.hypotheses=asr_lm"], Path("prior"), True),
        (["matching.hypotheses=asr_lm", "fusion.lm_weight=0.5"], Path("prior"), False),
        (["matching.hypotheses=asr_lm"], None, False),
        ([], Path("prior"), False),
    ],
)
def test_matching_tells_of_a_search_with_the_prior_that_nobody_has_tuned(
    words: list[str], prior: Path | None, told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    matching_settings_of(None, words, None, prior)
    said = capsys.readouterr().err
    assert ("run `priormatch tune --for-matching` to find better values for --fusion" in said) == told


@pytest.mark.parametrize("meant", ["decoding", "matching"])
def test_matching_tells_of_a_search_that_was_tuned_for_decoding(
    tmp_path: Path, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tuned(tmp_path / "fusion.yaml", FusionSettings(), {"for": meant})
    matching_settings_of(None, ["matching.hypotheses=asr_lm"], tmp_path / "fusion.yaml", Path("prior"))
    assert ("was tuned for decoding" in capsys.readouterr().err) == (meant == "decoding")


@pytest.mark.parametrize("about", ["", "tuned:", "tuned: by hand"])
def test_values_of_a_search_may_be_written_by_hand(
    tmp_path: Path, about: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text(f"fusion: {{lm_weight: 0.2}}\n{about}\n")
    words = ["matching.hypotheses=asr_lm"]
    found = matching_settings_of(None, words, tmp_path / "mine.yaml", Path("prior"))
    assert found.fusion.lm_weight == 0.2
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("rank", [0, 1])
def test_of_several_processes_the_main_one_says_how_to_resume(
    rank: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(distributed, "_job", distributed.Job(rank, 2))
    monkeypatch.setattr(sys, "argv", ["priormatch", "run", "own.yaml"])
    with pytest.raises(SystemExit):
        stop([signal.SIGTERM])
    said = "\npriormatch: stopped; run the same command again to resume: torchrun with the same arguments\n"
    assert capsys.readouterr().err == ("" if rank else said)
