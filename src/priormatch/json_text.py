"""JSON that anybody may have written: deep nesting is an error like any other, not a crash."""

import json
import re
from typing import Any

DEEPEST = 32
"""Levels of lists and objects within each other; manifests have six."""
SUSPECT = re.compile(r"\\u(0000|[dD][89a-fA-F])")
"""Escapes of NUL, which no path may have, and of halves of surrogate pairs, which cannot be encoded alone."""


def parse_json(text: str | bytes) -> Any:
    """The value that a text holds; a ValueError says why there is none."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("lists or objects are nested too deeply") from None


def parse_object(line: str) -> dict[str, Any]:
    """The object on a line, of bounded depth and with text that can be encoded; a ValueError says why there is none."""
    found = parse_json(line)
    if type(found) is not dict:
        raise ValueError("not a JSON object")
    if line.count("[") + line.count("{") > DEEPEST or ("\\u" in line and SUSPECT.search(line)):
        _check(found, DEEPEST)
    return found


def _check(value: Any, room: int) -> None:
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("a text holds a NUL character")
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
