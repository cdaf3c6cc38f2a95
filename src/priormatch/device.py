"""Where to compute, and in which precision."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from importlib.util import find_spec

import torch

from priormatch.errors import UserError


def find_device(name: str) -> torch.device:
    """The device of that name; `auto` takes a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UserError(f"device={name}: not a device; give auto, cpu, cuda or cuda:1") from error
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise UserError(f"device={name}: PyTorch sees no GPU here; give device=auto or device=cpu")
        torch.cuda.set_device(device.index or 0)  # kernels and recordings go to the current device
    return device


def use_threads(count: int) -> None:
    """Compute with so many threads of the CPU; 0 leaves it to PyTorch."""
    if count:
        torch.set_num_threads(count)


def mixed_precision(device: torch.device) -> AbstractContextManager[object]:
    """bfloat16 for the large products on a GPU that has it; float32 elsewhere."""
    if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.autocast("cuda", dtype=torch.bfloat16)
    return nullcontext()


def has_kernels(device: torch.device) -> bool:
    """Whether Triton kernels and recorded graphs are used there; without them the plain layers do the same."""
    if device.type != "cuda" or _plain or torch.version.hip is not None or not _has_triton():
        return False
    return device.index in (None, torch.cuda.current_device())


_plain = False


@contextmanager
def plainly() -> Iterator[None]:
    """Do without kernels and recordings for a while: that is what they are tested and measured against."""
    global _plain
    before, _plain = _plain, True
    try:
        yield
    finally:
        _plain = before


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None
