"""Where to compute, and in which precision."""

from contextlib import AbstractContextManager, nullcontext

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
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"device={name}: PyTorch sees no GPU here; give device=auto or device=cpu")
    return device


def mixed_precision(device: torch.device) -> AbstractContextManager[object]:
    """bfloat16 for the large products on a GPU that has it; float32 elsewhere."""
    if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.autocast("cuda", dtype=torch.bfloat16)
    return nullcontext()
