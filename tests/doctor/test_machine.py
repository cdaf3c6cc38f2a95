from pathlib import Path

import pytest
import torch
from narrowing import present

from priormatch.doctor import machine
from priormatch.doctor.machine import GB, computing_findings, cpu_findings, disk_finding, findings, free_space
from priormatch.errors import UserError

CPU = torch.device("cpu")


def test_this_machine_computes(tmp_path: Path) -> None:
    found = list(findings("cpu", tmp_path / "runs"))
    assert {each.status for each in found} <= {"ok", "warning"}
    assert any("update of a tiny recognizer" in each.what for each in found)
    assert not (tmp_path / "runs").exists()


def test_wrong_results_and_failures_are_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: torch.device) -> None:
        raise RuntimeError("CUDA error: no kernel image\nand more")

    monkeypatch.setattr(machine, "product_is_right", lambda _: False)
    monkeypatch.setattr(machine, "update_is_right", broken)
    wrong, failed = computing_findings(CPU)
    assert (wrong.status, failed.status) == ("problem", "problem")
    assert "wrong" in wrong.what
    assert "(CUDA error: no kernel image)" in failed.what


def test_a_product_that_is_wrong_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.product_is_right(CPU)
    right = torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "to", lambda self, device: right(self, device) + 0.1)
    assert not machine.product_is_right(CPU)


@pytest.mark.parametrize(("free", "kernels"), [(100 * GB, True), (2 * GB, False)])
def test_a_gpu(monkeypatch: pytest.MonkeyPatch, free: int, kernels: bool) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 140 * GB))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "A GPU")
    monkeypatch.setattr(machine, "has_kernels", lambda _: kernels)
    expected = ["ok", "ok"] if kernels else ["warning", "warning"]
    found = list(machine.gpu_findings(torch.device("cuda")))
    assert [each.status for each in found] == expected
    assert found[0].what == f"A GPU, {free / GB:.1f} of 140.0 GB free"


def test_a_driver_without_a_matching_pytorch_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "without CUDA" in next(cpu_findings(driver=True)).what
    assert len(list(cpu_findings(driver=False))) == 1


def test_a_device_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="device=gpu"):
        list(findings("gpu", tmp_path))


@pytest.mark.parametrize(
    ("free", "status"), [(100 * GB, "ok"), (2 * GB, "warning"), (GB // 10, "problem"), (None, "problem")]
)
def test_room_on_the_disk(tmp_path: Path, free: int | None, status: str) -> None:
    assert disk_finding(tmp_path, free).status == status


def test_free_space_is_that_of_the_nearest_existing_folder(tmp_path: Path) -> None:
    assert present(free_space(tmp_path / "not" / "yet" / "there")) > 0
    (tmp_path / "file").touch()
    assert free_space(tmp_path / "file" / "runs") is None
