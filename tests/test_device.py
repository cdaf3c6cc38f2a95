import os
import platform
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from priormatch import distributed
from priormatch.device import find_device, mixed_precision, return_freed_memory
from priormatch.errors import UserError


def test_auto_takes_a_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert find_device("auto").type == "cuda"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert find_device("auto").type == "cpu"


@pytest.mark.parametrize("name", ["auto", "cuda"])
@pytest.mark.parametrize(("local", "expected"), [("0", 0), ("1", 1), ("2", 0)])
def test_processes_of_a_job_share_the_gpus(
    monkeypatch: pytest.MonkeyPatch, name: str, local: str, expected: int
) -> None:
    used: list[int] = []
    for variable in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(variable, "3")
    monkeypatch.setenv("LOCAL_RANK", local)
    monkeypatch.setattr(distributed, "_job", distributed.Job(3, 4))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", used.append)
    assert find_device(name) == torch.device(f"cuda:{expected}")
    assert used == [expected]


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "", "cuda", "cuda:1"])
def test_a_device_that_is_not_there_names_itself(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=f"device={name}: .*auto"):
        find_device(name)


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_a_gpu_that_only_imitates_bfloat16_computes_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    native = False
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation=True: native or including_emulation
    )
    assert isinstance(mixed_precision(torch.device("cuda")), nullcontext)
    native = True
    assert isinstance(mixed_precision(torch.device("cuda")), torch.autocast)


def test_the_cpu_computes_in_float32() -> None:
    with mixed_precision(torch.device("cpu")):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is asked to return memory")
def test_memory_between_blocks_in_use_is_returned() -> None:
    blocks = [torch.ones(1 << 14) for _ in range(2000)]  # 64 KiB each, 125 MiB
    kept = blocks[::10]
    blocks.clear()
    before = resident()
    return_freed_memory()
    assert before - resident() > 80 << 20
    assert all(bool(block.all()) for block in kept)
