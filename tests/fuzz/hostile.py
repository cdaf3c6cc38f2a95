"""Strategies for the fuzz targets: values that no program expects, and files that were valid once."""

import copy
import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

VALUES: list[Any] = [
    *(None, True, False, "", 0, -1, 1, 2**31, 2**63, -(2**63), 10**400, 1e-300, 1e38, 1e308),
    *(float("nan"), float("inf"), -float("inf"), 0.5, 16_000, 44_100, 19_999_999, 15_991),
    *(
        "\0",
        "a\0b",
        "\ud800",
        "\udcff",
        "a" * 5000,
        "\u0301" * 300,
        "\u202e",
        "-",
        ".",
        "..",
        "/",
        "/dev/zero",
        "a.wav",
    ),
    *("| touch PROOF", "touch PROOF |", "$(touch PROOF)", "http://127.0.0.1:9/a.wav", "file:///etc/passwd"),
    *(
        [],
        {},
        [[]],
        [None],
        {"a": None},
        [0] * 100,
        ["0"],
        [-1],
        {"type": "command", "source": "touch PROOF"},
    ),
    *("command", "url", "memory", "shar", "file", "MonoCut", "MultiCut", "MixedCut", "PaddingCut"),
]
RAW = [  # which no `json.dumps` writes
    *("9" * 5000, "-" + "9" * 5000, "[" * 2000, "[" * 500 + "]" * 500, '{"a":' * 900 + "1" + "}" * 900),
    *("1e999", "NaN", "-Infinity", '"\\ud800"', '"\\u0000"', "nul", "'a'", "00", '"\x01"'),
]

values = st.one_of(
    st.sampled_from(VALUES).map(copy.deepcopy),  # they are changed further
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.lists(st.integers() | st.text(max_size=3), max_size=3),
)


def paths_of(value: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The ways to all fields of a JSON value."""
    found = [before] if before else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return found + [path for key, each in items for path in paths_of(each, (*before, key))]


@st.composite
def changed(draw: st.DrawFn, entry: dict[str, Any]) -> str:
    """A JSON object as text, some of its fields replaced, removed or added."""
    entry = copy.deepcopy(entry)
    mark = "\N{SNOWMAN}"
    for _ in range(draw(st.integers(0, 3))):
        paths = paths_of(entry)
        if not paths:
            break
        *before, last = draw(st.sampled_from(paths))
        place: Any = entry
        for key in before:
            place = place[key]
        match draw(st.integers(0, 5)):
            case 0:
                place.pop(last)
            case 1 if isinstance(place, dict):
                place[
                    draw(st.sampled_from(["type", "custom", "features", "video", "shape", "width", "x"]))
                ] = draw(values)
            case 2:
                place[last] = mark
            case _:
                place[last] = draw(values)
    return json.dumps(entry).replace(json.dumps(mark), draw(st.sampled_from(RAW)))


@st.composite
def damaged(draw: st.DrawFn, content: bytes, edges: int = 0) -> bytes:
    """Bytes with some flipped, replaced, inserted or cut; half of the places are among the first `edges`."""
    found = bytearray(content)
    for _ in range(draw(st.integers(0, 4))):
        most = edges if edges and draw(st.booleans()) else len(found)
        place = draw(st.integers(0, max(0, min(most, len(found)) - 1)))
        match draw(st.integers(0, 4)):
            case 0:
                found[place : place + 1] = bytes([draw(st.integers(0, 255))])
            case 1:
                found[place : place + 4] = draw(
                    st.sampled_from([b"\xff" * 4, b"\0" * 4, b"\xff\xff\xff\x7f", b"\1\0\0\0"])
                )
            case 2:
                found[place:place] = draw(st.binary(max_size=12))
            case 3:
                del found[place:]
            case 4:
                del found[place : place + draw(st.integers(1, 8))]
    return bytes(found)


def lines_of(
    one: st.SearchStrategy[str], junk: Callable[[], st.SearchStrategy[bytes]]
) -> st.SearchStrategy[bytes]:
    """Files of some such lines, or of junk."""
    text = st.lists(one, min_size=1, max_size=3).map(
        lambda each: "\n".join(each).encode("utf-8", "surrogatepass")
    )
    return st.one_of(text, text, junk(), st.binary(max_size=200))
