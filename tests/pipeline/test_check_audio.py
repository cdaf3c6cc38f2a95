"""`priormatch check`: two lists, an exit code, and the same result however often it is interrupted."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from lhotse import MonoCut
from rank_jobs import ends, start
from tiny_run import command, files

from priormatch.data.corpus import read_cuts
from priormatch.data.faults import Fault, fault_of
from priormatch.pipeline import check_audio


@pytest.fixture
def cuts(tiny_corpus: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight utterances, of which numbers 1, 4 and 6 are bad, in a manifest in the folder where the process is."""
    found = tiny_corpus(["monday at ten"] * 8)
    monkeypatch.chdir(found.parent)
    Path("tiny/tiny-1.wav").unlink()
    soundfile.write("tiny/tiny-4.wav", np.zeros(9600), 16_000)
    Path("tiny/tiny-6.wav").write_bytes(Path("tiny/tiny-6.wav").read_bytes()[:-100])
    monkeypatch.setattr(check_audio, "CHUNK", 2)
    return Path(found.name)


def lists(name: str | Path = "tiny-good") -> tuple[list[str], list[list[str]]]:
    """The ids of the good utterances, and the ids and faults of the bad ones."""
    with Path(f"{name}.bad.tsv").open() as file:
        bad = [row[:2] for row in csv.reader(file, delimiter="\t")]
    return [cut.id for cut in read_cuts(Path(f"{name}.jsonl.gz"))], bad


GOOD = [f"tiny-{number}" for number in (0, 2, 3, 5, 7)]
BAD = [["id", "fault"], ["tiny-1", "undecodable"], ["tiny-4", "silent"], ["tiny-6", "truncated"]]


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_good_and_the_bad_are_listed(cuts: Path, capsys: pytest.CaptureFixture[str], jobs: int) -> None:
    assert command("check", cuts, "--jobs", jobs) == 1
    assert lists() == (GOOD, BAD)
    said = capsys.readouterr().out
    assert "tiny.jsonl.gz: 8 utterances, 5s of audio, checked in" in said
    assert "bad: 3 (38 %): 1 undecodable, 1 silent, 1 truncated; listed in tiny-good.bad.tsv" in said
    assert "the first is tiny-1 (" in said
    assert "good: 5; listed in tiny-good.jsonl.gz" in said
    assert not Path("tiny-good.jsonl.gz.partial").exists()
    whole = {cut.id: cut for cut in read_cuts(cuts)}
    assert all(cut == whole[cut.id] for cut in read_cuts(Path("tiny-good.jsonl.gz")))


def test_the_exit_code_is_0_if_nothing_is_bad(cuts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command("check", cuts)
    good = Path("tiny-good.jsonl.gz").rename("all.jsonl.gz")
    capsys.readouterr()
    assert command("check", good, "--out", "again/good.jsonl.gz", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["utterances"], found["good"], found["bad"], found["bad_list"]) == (5, 5, {}, None)
    assert files(Path("again")).keys() == {"good.jsonl.gz"}


def test_nothing_is_replaced_unasked(cuts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("tiny-good.bad.tsv").write_text("mine")
    assert command("check", cuts) == 2
    assert "tiny-good.bad.tsv exists already" in capsys.readouterr().err
    assert command("check", cuts, "--out", cuts, "--overwrite") == 2
    assert "is the manifest itself" in capsys.readouterr().err
    assert command("check", cuts, "--overwrite") == 1
    assert lists() == (GOOD, BAD)


def test_if_all_are_bad_there_is_no_manifest_of_good_ones(
    cuts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("tiny-good.jsonl.gz").write_text("of an earlier call")
    for file in Path("tiny").iterdir():
        file.unlink()
    assert command("check", cuts, "--overwrite") == 1
    assert "good: 0; listed in no manifest" in capsys.readouterr().out
    assert not Path("tiny-good.jsonl.gz").exists()


def test_a_manifest_that_training_would_refuse_is_refused(
    cuts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (first, *others) = (json.dumps(cut.to_dict()) for cut in read_cuts(cuts))
    Path("spoilt.jsonl").write_text("\n".join([first, *others[:4], '{"id": 3}']))
    for jobs in (1, 2):
        assert command("check", "spoilt.jsonl", "--jobs", jobs) == 2
        said = capsys.readouterr().err
        assert "spoilt.jsonl is not a usable manifest of cuts: line 6: not a Lhotse cut" in said
        assert "Traceback" not in said
    assert not list(Path().glob("spoilt-good*"))
    assert command("check", "nowhere") == 2


def test_an_interrupted_check_resumes(cuts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def until(most: int) -> Callable[[MonoCut], Fault | None]:
        def checked(cut: MonoCut) -> Fault | None:
            if len(seen) == most:
                raise KeyboardInterrupt
            seen.append(cut.id)
            return fault_of(cut)

        return checked

    monkeypatch.setattr(check_audio, "fault_of", until(5))
    assert command("check", cuts, "--jobs", 1) == 130
    with Path("tiny-good.jsonl.gz.partial/0.jsonl").open("a") as file:
        file.write('{"chunk": 2, "utt')  # as a kill may leave it
    monkeypatch.setattr(check_audio, "fault_of", until(9))
    assert command("check", cuts, "--jobs", 1) == 1
    assert seen == [f"tiny-{number}" for number in (0, 1, 2, 3, 4, 4, 5, 6, 7)]
    assert lists() == (GOOD, BAD)


def test_a_call_that_ended_between_the_two_lists_resumes(cuts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("priormatch.pipeline.check_audio.replacing", killed)
        assert command("check", cuts) == 130
    assert Path("tiny-good.bad.tsv").exists()
    monkeypatch.setattr(check_audio, "fault_of", killed)  # nothing is decoded again
    assert command("check", cuts, "--jobs", 1) == 1
    assert lists() == (GOOD, BAD)


def test_what_was_checked_of_another_manifest_does_not_count(cuts: Path) -> None:
    journal = check_audio.Journal(Path("tiny-good.jsonl.gz"), "another")
    with journal.open() as note:
        note(check_audio.Part(0, 2, 1.0, 1.0))
    assert command("check", cuts) == 1
    assert lists() == (GOOD, BAD)


def test_several_processes_share_the_work(tiny_corpus: Callable[..., Path], tmp_path: Path) -> None:
    cuts = tiny_corpus(["at"] * 150)  # in three chunks
    for bad in (3, 99, 149):
        (tmp_path / f"tiny/tiny-{bad}.wav").unlink()
    assert command("check", cuts, "--out", tmp_path / "one.jsonl.gz", "--jobs", 1) == 1
    words = ["-m", "priormatch", "check", str(cuts), "--out", "two.jsonl.gz", "--jobs", "1"]
    found = ends(start(2, words, tmp_path))
    assert [code for code, _ in found] == [1, 1], found
    assert sum("bad: 3 (2 %): 3 undecodable" in output for _, output in found) == 1
    assert "checking tiny.jsonl.gz: 86/86" in found[0][1]
    assert lists(tmp_path / "one") == lists(tmp_path / "two")
    assert not list(tmp_path.glob("*.partial"))
