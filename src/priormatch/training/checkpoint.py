"""Checkpoints: all that a run needs to resume, in a file with hashes; the previous checkpoint is kept too."""

import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from priormatch.errors import UserError
from priormatch.files import replacing, sync
from priormatch.json_text import parse_json
from priormatch.progress import say
from priormatch.recognizers.protocols import Module
from priormatch.tensor_files import SEAL, Damaged, not_finite, read_tensors, save_tensors, size_of

FILE = "checkpoint.safetensors"
OLD = "checkpoint.old.safetensors"
DAMAGED = "checkpoint.damaged.safetensors"
FILES = (FILE, OLD, DAMAGED)

Checkpoint = tuple[dict[str, Tensor], dict[str, Any]]


def write_checkpoint(folder: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Write tensors and a small JSON state; the existing checkpoint becomes the old one.

    After the first checkpoint, a kill or power failure at any moment leaves at least one complete checkpoint.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / FILE
    with replacing(file, size_of(tensors)) as temporary:
        save_tensors(temporary, tensors, state)
        sync(temporary)  # before the existing checkpoint is renamed
        if file.exists():
            os.replace(file, folder / OLD)


def update_of(file: Path) -> int | None:
    """The update of a checkpoint, from its header alone; None if there is no checkpoint, or a damaged one."""
    with suppress(OSError, ValueError, KeyError, TypeError, SafetensorError):
        with safe_open(file, framework="pt") as opened:
            seal = parse_json(opened.metadata()[SEAL])
        return int(parse_json(str(seal["about"]))["update"])
    return None


class Checkpoints:
    """Writes the checkpoints of a training in the background, one at a time, while it goes on.

    A checkpoint of a later update is never replaced: another process, perhaps on another machine, has written it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.thread = folder, ThreadPoolExecutor(1)
        self.last: Future[None] | None = None

    def write(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Copy what is to be written now; raise the error of the write before, if there was one."""
        self.wait()
        now = {name: each.detach().to("cpu", copy=True) for name, each in tensors.items()}
        self.last = self.thread.submit(self._write, now, deepcopy(dict(state)))

    def _write(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        file = self.folder / FILE
        if (there := update_of(file)) is not None and there >= state["update"]:
            raise UserError(
                f"{file} is at update {there}, but this process at {state['update']}: another process trains there as"
                " well; stop one of them"
            )
        write_checkpoint(self.folder, tensors, state)

    def wait(self) -> None:
        """Wait until the last checkpoint is on disk."""
        last, self.last = self.last, None
        if last is not None:
            last.result()

    def close(self) -> None:
        """Wait, and end the thread."""
        self.thread.shutdown()
        self.wait()


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """Tensors and state of the newest undamaged checkpoint in a folder, or None if the folder has no checkpoint.

    A damaged checkpoint is renamed, so that it does not replace the old one at the next write.
    """
    file, old = folder / FILE, folder / OLD
    if not file.exists():
        return _read(old, "remove it to restart this stage") if old.exists() else None
    if not old.exists():
        return _read(file, "remove it to restart this stage")
    try:
        return _read(file, "")
    except Damaged as damage:
        tensors, state = _read(old, f"{FILE} is damaged as well, so remove both to restart this stage")
        os.replace(file, folder / DAMAGED)
        say(
            f"{damage}: resuming from {OLD}, written at update {state.get('update')};"
            f" the damaged file is kept as {DAMAGED}"
        )
        return tensors, state


def _read(file: Path, advice: str) -> Checkpoint:
    """Read a checkpoint; those of earlier versions have only the state in the metadata, and no hashes."""
    try:
        if not file.is_file():
            raise Damaged(f"{file} is damaged (it is not a file)")
        tensors, state, unsealed = read_tensors(file)
        if state is None:
            if unsealed.keys() != {"state"}:
                raise Damaged(f"{file} is damaged (it has no training state)")
            state = parse_json(unsealed["state"])
            if wrong := not_finite(tensors):
                raise Damaged(f"{file} is damaged ({wrong[0]} contains NaN or infinity)")
        if not isinstance(state, dict):
            raise Damaged(f"{file} is damaged (its state is not a training state)")
        return tensors, state
    except (Damaged, ValueError) as error:
        what = str(error) if isinstance(error, Damaged) else f"{file} is damaged ({error})"
        raise Damaged(f"{what}: {advice}" if advice else what) from error


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: Module) -> dict[str, Tensor]:
    """The optimizer's state by parameter name."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{names[parameter]}|{key}": torch.as_tensor(value)
        for parameter, values in optimizer.state.items()
        for key, value in values.items()
        if value is not None
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, model: Module, tensors: dict[str, Tensor]) -> None:
    """Restore the state that `optimizer_tensors` returned."""
    parameters = dict(model.named_parameters())
    for name, value in tensors.items():
        parameter, key = name.rsplit("|", 1)
        place = parameters[parameter]
        optimizer.state[place][key] = value.to(
            place.device, copy=True
        )  # fused AdamW needs even its step counts on the device


def with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Add a prefix to the names of tensors."""
    return {f"{prefix}/{name}": value for name, value in tensors.items()}


def of_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with a prefix, without it."""
    return {name.partition("/")[2]: value for name, value in tensors.items() if name.startswith(f"{prefix}/")}
