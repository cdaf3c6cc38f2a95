"""Device selection, precision and memory."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from importlib.util import find_spec

import torch

from priormatch.distributed import own_gpu, ranks
from priormatch.errors import UserError


def find_device(name: str) -> torch.device:
    """The device with the given name; `auto` selects a GPU if there is one, and each process of a job its own."""
    if name in ("auto", "cuda") and ranks() > 1 and torch.cuda.is_available():
        name = f"cuda:{own_gpu()}"
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UserError(f"device={name}: not a device; use auto, cpu, cuda or cuda:1") from error
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise UserError(f"device={name}: PyTorch sees no GPU here; set device=auto or device=cpu")
        torch.cuda.set_device(device.index or 0)  # kernels and CUDA graphs run on the current device
    return device


def gpus_for(name: str) -> list[str]:
    """The GPUs for processes that run in parallel, as CUDA_VISIBLE_DEVICES names them.

    "" leaves the choice to each process: there are not several GPUs, or a device other than auto and cuda is given.
    """
    count = torch.cuda.device_count()
    if count < 2 or name not in ("auto", "cuda"):
        return [""]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return [each.strip() for each in visible.split(",")][:count] if visible else list(map(str, range(count)))


def memory_of(device: torch.device) -> int:
    """The bytes that a model may take at most: free on a GPU, installed for the CPU."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def require_memory(needed: int, device: torch.device, what: str) -> None:
    """Refuse what needs more bytes than a device has."""
    if needed > (there := memory_of(device)):
        raise UserError(
            f"{what} needs {needed / 1e9:.1f} GB of memory, but {device} has {there / 1e9:.1f} GB: use a smaller model"
            " or another machine"
        )


def use_threads(count: int) -> None:
    """Set the number of CPU threads; 0 keeps PyTorch's default."""
    if count:
        torch.set_num_threads(count)


def return_freed_memory() -> None:
    """Let glibc return all freed memory to the system, from between blocks in use too.

    Batches of many different shapes leave gaps: without this, training on a CPU ends with three times the memory.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def mixed_precision(device: torch.device) -> AbstractContextManager[object]:
    """Autocast to bfloat16 on a GPU that supports it; float32 elsewhere."""
    if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.autocast("cuda", dtype=torch.bfloat16)
    return nullcontext()


def has_kernels(device: torch.device) -> bool:
    """Whether Triton kernels and CUDA graphs are used on a device; the plain layers compute the same without them."""
    if device.type != "cuda" or _plain or torch.version.hip is not None or not _has_triton():
        return False
    return device.index in (None, torch.cuda.current_device())


_plain = False


@contextmanager
def plainly() -> Iterator[None]:
    """Disable kernels and CUDA graphs inside the context, as the reference for tests and benchmarks."""
    global _plain
    before, _plain = _plain, True
    try:
        yield
    finally:
        _plain = before


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None
