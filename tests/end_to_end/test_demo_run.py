"""`priormatch demo`: the embedded recipe on the embedded corpus, with few updates, and once more."""

import json
from pathlib import Path

import pytest
from tiny_run import command, files

pytest.importorskip("espeakng_loader")

SYSTEMS = {"supervised_start", "supervised", "pseudo_label", "lpm", "topline"}
TESTS = {"test-seen", "test-unseen"}
FEW = ("training.updates=30", "matching.updates=20", "prior.updates=20", "training.seed=3")
LENIENT = ("matching.max_proposal_cer=1000", "model.longest_output=20")  # so few updates teach nothing


def check_results(found: dict) -> None:
    """The results hold what they promise to those who read them."""
    assert found["systems"].keys() == SYSTEMS
    for tests in found["systems"].values():
        assert tests.keys() == TESTS
        for scores in tests.values():
            assert scores.keys() == {"wer", "wer_interval", "cer"}
            low, high = scores["wer_interval"]
            assert 0 <= low <= scores["wer"] <= high
            assert scores["cer"] > 0
    assert found["werr"].keys() == {"pseudo_label", "lpm"}
    for recovered in found["werr"].values():
        assert recovered.keys() == TESTS
        assert all(each is None or isinstance(each, float) for each in recovered.values())
    assert found["seconds"]["total"] > 0
    assert found["peak_memory_mb"] > 0
    assert found["seed"] == 3


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_demo_ends_with_results_and_a_second_call_reuses_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    assert command("demo", *FEW, *LENIENT) == 0
    said = capsys.readouterr()
    assert "WERR" in said.out
    folder = tmp_path / "runs/demo"
    assert "runs/demo/results.json" in said.err
    assert "runs/demo/report.html" in said.err
    assert "Hypothesis inspector" in (folder / "report.html").read_text()
    check_results(json.loads((folder / "results.json").read_text()))
    assert not list(folder.rglob("*.tmp*"))

    before = {
        name: content for name, content in files(folder).items() if not name.startswith(("results", "report"))
    }
    assert command("demo", *FEW, *LENIENT) == 0
    begun = [line for line in capsys.readouterr().err.splitlines() if line.endswith(" ...")]
    assert begun == []
    after = {
        name: content for name, content in files(folder).items() if not name.startswith(("results", "report"))
    }
    assert after == before
    check_results(json.loads((folder / "results.json").read_text()))
