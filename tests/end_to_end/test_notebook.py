"""The notebook: its code cells run from top to bottom in one namespace, without Jupyter."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mypy import api

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "notebooks/demo.ipynb"


def cells(kind: str) -> list[dict[str, Any]]:
    found = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return [each for each in found if each["cell_type"] == kind]


def test_the_notebook_is_stored_without_outputs() -> None:
    assert [each["outputs"] for each in cells("code")] == [[]] * len(cells("code"))
    assert {each["execution_count"] for each in cells("code")} == {None}


def test_files_that_the_notebook_links_to_exist() -> None:
    text = "".join("".join(each["source"]) for each in cells("markdown"))
    links = [part.partition(")")[0] for part in text.split("](")[1:]]
    assert links
    assert [link for link in links if not (NOTEBOOK.parent / link).is_file()] == []


def test_the_notebook_calls_what_there_is(tmp_path: Path) -> None:
    code = tmp_path / "notebook.py"
    code.write_text("\n".join("".join(each["source"]) for each in cells("code")), encoding="utf-8")
    lenient = ["--allow-untyped-defs", "--allow-untyped-calls", "--ignore-missing-imports"]
    told, errors, status = api.run([*lenient, f"--config-file={ROOT / 'pyproject.toml'}", str(code)])
    assert status == 0, told + errors


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_notebook_runs_and_shows_beams_weights_and_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("espeakng_loader")
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    played: list[Any] = []
    shown = SimpleNamespace(Audio=lambda samples, rate: (len(samples), rate), display=played.append)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    names: dict[str, Any] = {"__name__": "notebook"}
    for cell in cells("code"):
        exec(compile("".join(cell["source"]), f"{NOTEBOOK.name}:{cell['id']}", "exec"), names)
    printed = capsys.readouterr().out
    assert printed.count("reference, log p_y") == 2 * names["SHOWN"]
    assert "local prior matching" in printed
    assert played[0][1] == 16_000
    for beams in (names["before"], names["after"]):
        assert all(sum(each.weight for each in beam.hypotheses) == pytest.approx(1) for beam in beams)
    curves = [line.get_xydata() for axis in names["axes"] for line in axis.lines]
    assert len(curves) == 4 and all(len(curve) > 1 for curve in curves)
    assert names["results"]["systems"].keys() == {"supervised", "lpm"}
    matplotlib.pyplot.close("all")
