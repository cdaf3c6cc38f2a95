"""JSON: writing of results, and parsing of untrusted text, where deep nesting is an ordinary error, not a crash."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

DEEPEST = 32
"""Maximum nesting depth of lists and objects; manifests have six levels."""
SUSPECT = re.compile(r"\\u(0000|[dD][89a-fA-F])")
"""Escapes of NUL, which paths cannot contain, and of unpaired surrogates, which cannot be encoded."""


def to_json(value: Any) -> str:
    """Format results as indented JSON; dataclasses become objects, and NaN becomes null."""
    return json.dumps(without_nan(value), indent=2, ensure_ascii=False, allow_nan=False, default=str)


def without_nan(value: Any) -> Any:
    """Replace NaN and infinity in a tree of results with None, because JSON cannot represent them."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {name: without_nan(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def parse_json(text: str | bytes) -> Any:
    """Parse JSON text; raise ValueError with the reason if it is invalid."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("lists or objects are nested too deeply") from None


def parse_object(line: str) -> dict[str, Any]:
    """Parse a JSON object of bounded depth with encodable strings; raise ValueError with the reason otherwise."""
    found = parse_json(line)
    if type(found) is not dict:
        raise ValueError("not a JSON object")
    if line.count("[") + line.count("{") > DEEPEST or ("\\u" in line and SUSPECT.search(line)):
        _check(found, DEEPEST)
    return found


def _check(value: Any, room: int) -> None:
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("a string contains a NUL character")
        if not value.isascii():
            value.encode()
    elif isinstance(value, dict | list):
        if room == 0:
            raise ValueError("lists or objects are nested too deeply")
        for each in value:
            _check(each, room - 1)
        if isinstance(value, dict):
            for each in value.values():
                _check(each, room - 1)
