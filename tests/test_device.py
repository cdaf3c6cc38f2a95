from contextlib import nullcontext

import pytest
import torch

from priormatch.device import find_device, mixed_precision
from priormatch.errors import UserError


def test_auto_takes_a_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert find_device("auto").type == "cuda"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert find_device("auto").type == "cpu"


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
