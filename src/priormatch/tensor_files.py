"""Tensors on disk: safetensors files with SHA-256 hashes of their content, checked on reading."""

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

from priormatch.errors import UserError, one_line
from priormatch.json_text import parse_json

SEAL = "priormatch"
"""The only metadata entry of the file, because several would be written in no fixed order."""
ABOUT = "what is written about its tensors"
"""Key of the JSON text in the list of hashes and in messages; no tensor has this name."""


class Damaged(UserError):
    """A file whose content is not what was written."""


class Stored(NamedTuple):
    """The content of a file: tensors, the JSON value stored with them, and the metadata of a file without hashes."""

    tensors: dict[str, Tensor]
    about: Any
    unsealed: dict[str, str]


def save_tensors(path: Path, tensors: Mapping[str, Tensor], about: Any) -> None:
    """Write tensors and a small JSON value, with hashes of both."""
    apart, text = _apart(tensors), json.dumps(about)
    seal = {"about": text, "sha256": _hashes(apart, text)}
    save_file(apart, path, metadata={SEAL: json.dumps(seal, sort_keys=True)})


def size_of(tensors: Mapping[str, Tensor]) -> int:
    """The size of tensors on disk in bytes."""
    return sum(value.nbytes for value in tensors.values())


def read_tensors(path: Path) -> Stored:
    """Read a file written by `save_tensors`, or one without hashes; raise `Damaged` for anything else."""
    try:
        with safe_open(path, framework="pt") as opened:
            metadata = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        if SEAL not in metadata:
            return Stored(tensors, None, metadata)
        seal = parse_json(metadata[SEAL])
        text, expected = str(seal["about"]), dict(seal["sha256"])
    except PermissionError:
        raise  # the file is not damaged
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise Damaged(f"{path} is damaged ({one_line(error)})") from error
    found = _hashes(tensors, text)
    if wrong := sorted(name for name in {**found, **expected} if found.get(name) != expected.get(name)):
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise Damaged(f"{path} is damaged (the SHA-256 of {wrong[0]}{more} is not what was written)")
    return Stored(tensors, parse_json(text), {})


def read_shapes(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The type and shape of every tensor, from the file's header, which the library limits to 100 MB."""
    try:
        with safe_open(path, framework="pt") as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
            return {name: (str(each.get_dtype()), tuple(each.get_shape())) for name, each in slices.items()}
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise Damaged(f"{path} is damaged ({one_line(error)})") from error


def not_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    """Names of the tensors that contain NaN or infinity."""
    return [name for name, value in tensors.items() if not value.isfinite().all()]


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Move tensors to CPU memory, each with its own storage, as safetensors requires; copy only if necessary."""
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
    """SHA-256 of each tensor with its name, type and shape, and of the JSON text."""

    def of(name: str) -> str:
        value = tensors[name]
        head = hashlib.sha256(json.dumps([name, str(value.dtype), list(value.shape)]).encode())
        head.update(value.reshape(-1).view(torch.uint8).numpy().data)
        return head.hexdigest()

    with ThreadPoolExecutor() as threads:  # hashing releases the GIL
        found = dict(zip(tensors, threads.map(of, tensors), strict=True))
    return {**found, ABOUT: hashlib.sha256(about.encode()).hexdigest()}
