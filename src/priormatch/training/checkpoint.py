"""Checkpoints: everything a run needs to go on, in one safetensors file that is replaced at once."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from priormatch.errors import UserError
from priormatch.files import replacing

FILE = "checkpoint.safetensors"


def write_checkpoint(folder: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Write tensors and a small JSON state; a kill at any moment leaves the old file or the new one."""
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / FILE) as temporary:
        save_file(_apart(tensors), temporary, metadata={"state": json.dumps(state)})


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors in the CPU's memory, each in its own, as safetensors wants them; copied only where need be."""
    apart: dict[str, Tensor] = {}
    taken: set[int] = set()
    for name, value in tensors.items():
        value = value.detach().cpu().contiguous()
        if value.untyped_storage().data_ptr() in taken:
            value = value.clone()
        taken.add(value.untyped_storage().data_ptr())
        apart[name] = value
    return apart


def read_checkpoint(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Tensors and state of the folder's checkpoint, or None where there is none."""
    file = folder / FILE
    if not file.is_file():
        return None
    try:
        with safe_open(file, framework="pt") as opened:
            state = json.loads((opened.metadata() or {})["state"])
            return {name: opened.get_tensor(name) for name in opened.keys()}, state  # noqa: SIM118
    except (SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise UserError(f"{file} is damaged ({error}): remove it to begin this stage again") from error


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimiser's state by parameter name."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{names[parameter]}|{key}": torch.as_tensor(value)
        for parameter, values in optimizer.state.items()
        for key, value in values.items()
        if value is not None
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put the state that `optimizer_tensors` gave back."""
    parameters = dict(model.named_parameters())
    for name, value in tensors.items():
        parameter, key = name.rsplit("|", 1)
        place = parameters[parameter]
        optimizer.state[place][key] = value.to(place.device, copy=True)  # even the steps, in fused AdamW


def with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Put a group of tensors under a common name."""
    return {f"{prefix}/{name}": value for name, value in tensors.items()}


def of_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The group of tensors under a common name."""
    return {name.partition("/")[2]: value for name, value in tensors.items() if name.startswith(f"{prefix}/")}
