"""Tensors on disk: safetensors files that carry the SHA-256 of all they hold, checked when they are read."""

import hashlib
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from priormatch.errors import UserError
from priormatch.json_text import parse_json

SEAL = "priormatch"
"""The one entry of the file's metadata, as several would be written in no fixed order."""
ABOUT = "what is written about its tensors"
"""Stands for the JSON text in the list of hashes, and in a message; no tensor has this name."""


class Damaged(UserError):
    """A file that is not what was written."""


class Stored(NamedTuple):
    """What a file holds: tensors, what was written about them, and metadata of a file without hashes."""

    tensors: dict[str, Tensor]
    about: Any
    unsealed: dict[str, str]


def save_tensors(path: Path, tensors: Mapping[str, Tensor], about: Any) -> None:
    """Write tensors and a small JSON value about them, with the hashes of both."""
    apart, text = _apart(tensors), json.dumps(about)
    seal = {"about": text, "sha256": _hashes(apart, text)}
    save_file(apart, path, metadata={SEAL: json.dumps(seal, sort_keys=True)})


def size_of(tensors: Mapping[str, Tensor]) -> int:
    """The number of bytes that tensors take on disk."""
    return sum(value.nbytes for value in tensors.values())


def read_tensors(path: Path) -> Stored:
    """Read what `save_tensors` wrote, or a file without hashes; raises `Damaged` where it is anything else."""
    try:
        with safe_open(path, framework="pt") as opened:
            metadata = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        if SEAL not in metadata:
            return Stored(tensors, None, metadata)
        seal = parse_json(metadata[SEAL])
        text, expected = str(seal["about"]), dict(seal["sha256"])
    except PermissionError:
        raise  # no damage
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise Damaged(f"{path} is damaged ({_reason(error)})") from error
    found = _hashes(tensors, text)
    if wrong := sorted(name for name in {**found, **expected} if found.get(name) != expected.get(name)):
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise Damaged(f"{path} is damaged (the SHA-256 of {wrong[0]}{more} is not what was written)")
    return Stored(tensors, parse_json(text), {})


def read_shapes(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The type and shape of every tensor by the file's header, which the library keeps below 100 MB."""
    try:
        with safe_open(path, framework="pt") as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
            return {name: (str(each.get_dtype()), tuple(each.get_shape())) for name, each in slices.items()}
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise Damaged(f"{path} is damaged ({_reason(error)})") from error


def not_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    """Names of the tensors that hold NaN or infinity."""
    return [name for name, value in tensors.items() if not value.isfinite().all()]


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
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


def _hashes(tensors: Mapping[str, Tensor], about: str) -> dict[str, str]:
    """SHA-256 of each tensor with its name, type and shape, and of the text about them."""

    def of(name: str) -> str:
        value = tensors[name]
        head = hashlib.sha256(json.dumps([name, str(value.dtype), list(value.shape)]).encode())
        head.update(value.reshape(-1).view(torch.uint8).numpy().data)
        return head.hexdigest()

    with ThreadPoolExecutor() as threads:  # hashing releases Python's lock
        found = dict(zip(tensors, threads.map(of, tensors), strict=True))
    return {**found, ABOUT: hashlib.sha256(about.encode()).hexdigest()}


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
