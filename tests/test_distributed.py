"""Several processes make the same updates, decisions and transcripts as one."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rank_jobs import ROOT, corpus, ends, free_port, gradients, learn, learn_briefly, start
from safetensors.torch import load_file
from tiny_run import command, files, make_folders
from torch.distributed import HashStore  # type: ignore[attr-defined]

from priormatch.data.tokenizer import Tokenizer
from priormatch.distributed import part_of_store

JOBS = str(ROOT / "rank_jobs.py")
OWN = ("labeled=labeled", "unlabeled=unlabeled", "text=text.txt", "test.clean=test", "model.dropout=0")


@pytest.fixture
def folder(tmp_path: Path, tiny_corpus: Callable[..., Path], tiny_tokenizer: Tokenizer) -> Path:
    """Two corpora and a tokenizer for the jobs."""
    tiny_corpus(7, "labeled")
    tiny_corpus(9, "unlabeled", transcribed=False)
    tiny_tokenizer.save(tmp_path / "tokenizer")
    return tmp_path


def job(count: int, name: str, folder: Path) -> str:
    """Run a job to its end; what its processes printed."""
    found = ends(start(count, [JOBS, name, str(folder)], folder))
    assert all(code == 0 for code, _ in found), found
    return "".join(output for _, output in found)


def check_close(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, each in expected.items():
        assert torch.allclose(found[name], each, atol=1e-6, rtol=1e-4), name  # features are of float32


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_several_processes_have_the_gradients_of_one(folder: Path, count: int) -> None:
    """With three processes, one of them has a single utterance of each batch of five."""
    job(count, "gradients", folder)
    check_close(load_file(folder / "gradients.safetensors"), gradients(folder))


@pytest.mark.parametrize("parts", [2, 7])
def test_gradients_in_parts_are_those_of_the_whole(folder: Path, parts: int) -> None:
    """Seven parts of five utterances: two of them are empty."""
    check_close(gradients(folder, accumulate=parts), gradients(folder))


def decisions(folder: Path) -> list[dict[str, Any]]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    names = ("update", "validation_score", "proposal_cer", "refreshes", "validation")
    return [{name: line[name] for name in names} for line in lines if "validation_score" in line]


def test_two_processes_validate_and_refresh_as_one(folder: Path) -> None:
    job(2, "learn", folder)
    (folder / "learned").rename(folder / "of-two")
    learn(folder)
    assert decisions(folder / "of-two") == decisions(folder / "learned")
    assert decisions(folder / "learned")[-1]["refreshes"] >= 1


def killed(count: int, rank: int, update: int, folder: Path) -> list[tuple[int, str]]:
    """Learn until one process is killed."""
    return ends(start(count, [JOBS, "learn-briefly", str(folder)], folder, KILL=f"{rank} {update}"))


def model_in(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model/model.safetensors")


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_killed_process_is_named_and_the_job_resumes_to_the_bit(folder: Path, rank: int) -> None:
    found = killed(2, rank, 8, folder)
    assert found[rank][0] == -signal.SIGKILL
    code, output = found[1 - rank]
    assert code != 0
    assert f"process {rank} of 2 stopped answering at update 8 of learned" in output
    assert "resuming from update 5" in job(2, "learn-briefly", folder)
    (folder / "learned").rename(folder / "resumed")
    job(2, "learn-briefly", folder)
    assert same(model_in(folder / "resumed"), model_in(folder / "learned"))
    assert decisions(folder / "resumed") == decisions(folder / "learned")


@pytest.mark.slow
def test_a_job_resumes_with_fewer_processes_and_then_more(folder: Path) -> None:
    killed(2, 1, 13, folder)
    assert "resuming from update 10" in killed(1, 0, 18, folder)[0][1]
    assert "resuming from update 15" in job(2, "learn-briefly", folder)
    (folder / "learned").rename(folder / "resumed")
    job(2, "learn-briefly", folder)
    assert decisions(folder / "resumed") == decisions(folder / "learned")


def test_unreadable_utterances_of_one_process_are_named_and_hang_nothing(folder: Path) -> None:
    for cut in corpus(folder, "labeled").cuts[:3]:
        Path(cut.recording.sources[0].source).write_bytes(b"RIFF")
    output = job(2, "learn-briefly", folder)
    assert all(f"labeled-{number} cannot be read and is skipped" in output for number in range(3))
    (folder / "learned").rename(folder / "of-two")
    learn_briefly(folder)
    assert decisions(folder / "of-two") == decisions(folder / "learned")


def test_too_many_unreadable_utterances_of_one_process_end_the_job(folder: Path) -> None:
    for cut in corpus(folder, "unlabeled").cuts[:8]:
        Path(cut.recording.sources[0].source).unlink()
    found = ends(start(2, [JOBS, "learn-briefly", str(folder)], folder))
    assert all(code == 1 for code, _ in found)
    assert any("utterances cannot be read, the last because" in output for _, output in found)
    assert any("raise audio.max_bad_share (now 0.5)" in output for _, output in found)


def test_all_processes_skip_an_update_without_a_finite_gradient_and_give_up_together(folder: Path) -> None:
    found = ends(start(2, [JOBS, "unlearnable", str(folder)], folder))
    assert all("20 updates in a row had a gradient that is not finite" in output for _, output in found)
    main = found[0][1]
    skipped = [line for line in main.splitlines() if "update 0 skipped" in line]
    assert len(skipped) == 1
    assert sum(f"labeled-{number}" in skipped[0] for number in range(7)) == 5  # of both processes


def test_a_run_of_two_processes_ends_as_that_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_folders(tmp_path)
    monkeypatch.chdir(tmp_path)
    words = ["-m", "priormatch", "run", "tiny.yaml", *OWN, "matching.hypotheses=asr_lm"]
    found = ends(start(2, words, tmp_path))
    assert [code for code, _ in found] == [0, 0], found
    assert found[1][1] == ""  # the main process speaks for all
    run = tmp_path / "runs/tiny"
    assert {"supervised", "lpm"} <= json.loads((run / "results.json").read_text())["systems"].keys()
    decode = ("--model", "runs/tiny/lpm/model", "--cuts", "runs/tiny/data/test-clean.jsonl.gz")
    assert command("decode", *decode, "--out", "alone.jsonl") == 0
    assert (run / "decoded/lpm/clean.jsonl").read_bytes() == (tmp_path / "alone.jsonl").read_bytes()
    models = {name: each for name, each in files(run).items() if name.endswith(".safetensors")}
    assert command("run", "tiny.yaml", *OWN, "matching.hypotheses=asr_lm") == 0  # everything is reused
    assert models == {name: each for name, each in files(run).items() if name.endswith(".safetensors")}


def test_verbs_of_one_process_refuse_several(tmp_path: Path) -> None:
    for code, output in ends(start(2, ["-m", "priormatch", "settings"], tmp_path)):
        assert code == 2
        assert "2 processes were started" in output
        assert "run this one without torchrun" in output


def kill_at_random(folder: Path, kills: int, counts: Sequence[int]) -> Iterator[None]:
    """Learn with any of these numbers of processes, and kill -9 any of them at any moment; yield at each end."""
    job(2, "learn-briefly", folder)
    seconds = float((folder / "seconds").read_text())
    (folder / "learned").rename(folder / "undisturbed")
    random = np.random.default_rng(0)
    while kills or (folder / "learned").exists():
        count = int(random.choice(counts))
        after = f"{random.integers(count)} {random.uniform(0, seconds)}" if kills else "-1 0"
        found = ends(start(count, [JOBS, "learn-briefly", str(folder)], folder, KILL_AFTER=after))
        if all(code == 0 for code, _ in found):
            yield
            shutil.rmtree(folder / "learned")
        else:
            assert -signal.SIGKILL in [code for code, _ in found], found
            kills -= 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_jobs_killed_at_random_end_with_the_weights_of_an_undisturbed_one(folder: Path) -> None:
    for _ in kill_at_random(folder, 20, [2]):
        assert same(model_in(folder / "undisturbed"), model_in(folder / "learned"))
        assert decisions(folder / "undisturbed") == decisions(folder / "learned")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_jobs_killed_and_gone_on_with_other_numbers_of_processes_end_nearly_as_good(folder: Path) -> None:
    for _ in kill_at_random(folder, 10, [1, 2, 3]):
        undisturbed, killed = (decisions(folder / name)[-1] for name in ("undisturbed", "learned"))
        assert killed["update"] == undisturbed["update"] == 20
        assert abs(killed["validation_score"] - undisturbed["validation_score"]) <= 0.5


@pytest.mark.slow
def test_torchrun_goes_on_with_one_of_two_machines_and_with_both_again(folder: Path) -> None:
    """Each torchrun stands for a machine with one process; the second one is killed in update 8, and returns."""
    job(2, "learn-briefly", folder)
    (folder / "learned").rename(folder / "undisturbed")
    os.mkfifo(folder / "alone")
    at, conf = (
        f"127.0.0.1:{free_port()}",
        "last_call_timeout=15,keep_alive_interval=1,keep_alive_max_attempt=6",
    )

    def machine(first: int, **faults: str) -> subprocess.Popen[str]:
        words = [
            "-m",
            "torch.distributed.run",
            "--nnodes",
            "1:2",
            "--nproc-per-node",
            "1",
            "--rdzv-backend",
            "c10d",
        ]
        words += ["--rdzv-endpoint", at, "--rdzv-id", "job", "--rdzv-conf", f"is_host={first},{conf}"]
        words += ["--local-addr", "127.0.0.1", "--max-restarts", "3", JOBS, "learn-briefly", str(folder)]
        return start(1, words, folder, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1", **faults)[0]

    one = machine(1, PAUSE="12")
    lost = machine(0, KILL_AGENT="8")
    assert (folder / "alone").read_text() == "alone"
    (_, before), (code, output), (second, _) = ends([lost, one, machine(0)])
    assert (code, second) == (0, 0), output
    assert lost.returncode == -signal.SIGKILL, before
    assert "resuming from update 5" in output
    assert "resuming from update 12" in output
    assert decisions(folder / "undisturbed") == decisions(folder / "learned")


def test_processes_that_start_again_do_not_meet_the_earlier_ones() -> None:
    store = HashStore()
    for count in (
        3,
        2,
        3,
    ):  # with earlier names of processes that are gone, and of some that are still to come
        with ThreadPoolExecutor(count) as pool:
            parts = list(pool.map(part_of_store, [store] * count, range(count), [count] * count))
        assert not any(each.check(["address"]) for each in parts)
        parts[0].set("address", "here")
        assert all(each.check(["address"]) for each in parts)


@pytest.mark.slow
def test_torchrun_starts_a_killed_job_again(folder: Path) -> None:
    job(2, "learn-briefly", folder)
    (folder / "learned").rename(folder / "undisturbed")
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
    ((code, output),) = ends(start(1, [*torchrun, JOBS, "learn-briefly", str(folder)], folder, KILL="1 8"))
    assert code == 0, output
    assert "resuming from update 5" in output
    assert same(model_in(folder / "undisturbed"), model_in(folder / "learned"))
