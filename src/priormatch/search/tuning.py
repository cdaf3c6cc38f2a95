"""Tuning a fused search: coordinate descent over short lists of values, and a log of what has been tried."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import Any, NamedTuple

from priormatch.config import FusionSettings, load_settings
from priormatch.errors import UserError
from priormatch.files import replace_text

GRID: Mapping[str, Sequence[float]] = {
    "lm_weight": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5),
    "token_bonus": (0.0, 0.5, 1.0, 1.5, 2.0, 3.0),
    "eos_threshold": (math.inf, 2.0, 1.5, 1.25, 1.1, 1.0),
    "token_margin": (math.inf, 10.0, 8.0, 6.0, 4.0),
}
"""What is tried of each setting, one setting after the other."""


class Errors(NamedTuple):
    """Error rates in percent, the lower the better: first by words, then by characters."""

    wer: float
    cer: float

    def __str__(self) -> str:
        return f"WER {self.wer:.2f} %, CER {self.cer:.2f} %"


Measure = Callable[[FusionSettings], Errors]


def descend(measure: Measure, start: FusionSettings, grid: Mapping[str, Sequence[float]]) -> FusionSettings:
    """Coordinate descent: the best value of one setting after the other, until a whole round changes nothing.

    A value must be strictly better to take another's place, so the errors of every round are lower.
    """
    best, fewest = start, measure(start)
    while True:
        before = best
        for name, values in grid.items():
            for value in values:
                change: dict[str, Any] = {name: value}
                tried = replace(best, **change)
                if (errors := measure(tried)) < fewest:
                    best, fewest = tried, errors
        if best == before:
            return best


class Trials:
    """Error rates of settings that have been tried, in a file of JSON lines, so that nothing is tried twice.

    Every line tells what it holds of (`key`), such as a model and a set: of others the file may hold trials too.
    Lines that are no trials, such as one cut off by a kill, are passed over.
    """

    def __init__(self, path: Path, key: str) -> None:
        self.path, self.key = path, key
        self.found: dict[tuple[float, ...], Errors] = {}
        content = path.read_bytes() if path.is_file() else b""
        for line in content.splitlines():
            try:
                entry = json.loads(line)
                if entry["of"] == key:
                    settings = FusionSettings(**entry["fusion"])
                    self.found[astuple(settings)] = Errors(float(entry["wer"]), float(entry["cer"]))
            except (ValueError, TypeError, KeyError):
                continue
        if content and not content.endswith(b"\n"):
            self._append("\n")

    def measured(self, measure: Measure) -> Measure:
        """The same measure, which looks here first and puts down here what it has found."""

        def remembered(settings: FusionSettings) -> Errors:
            tried = astuple(settings)
            if tried not in self.found:
                self.found[tried] = measure(settings)
                entry = {"of": self.key, "fusion": finite(settings), **self.found[tried]._asdict()}
                self._append(json.dumps(entry) + "\n")
            return self.found[tried]

        return remembered

    def _append(self, text: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text)


def finite(settings: FusionSettings) -> dict[str, Any]:
    """The settings but for limits that are off, of which JSON knows no number."""
    return {name: value for name, value in asdict(settings).items() if value != math.inf}


def write_tuned(path: Path, settings: FusionSettings, about: Mapping[str, Any]) -> None:
    """Write settings as YAML, with what is to be known about them."""
    import yaml

    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, yaml.safe_dump({"fusion": asdict(settings), "tuned": dict(about)}, sort_keys=False))


def read_tuned(path: Path) -> list[str]:
    """What `write_tuned` wrote, as overrides such as fusion.lm_weight=0.4."""
    import yaml

    advice = "make it with `priormatch tune`"
    if not path.is_file():
        raise UserError(f"no fusion settings at {path}: {advice}")
    try:
        tree = yaml.safe_load(path.read_bytes())
        values = tree.get("fusion") if isinstance(tree, dict) else None
        if not isinstance(values, dict):
            raise UserError("no part is called fusion")
        overrides = [f"fusion.{name}={value}" for name, value in values.items()]
        load_settings(None, overrides)
    except (yaml.YAMLError, UserError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path} does not hold fusion settings ({reason}): {advice}") from error
    return overrides
