"""Tuning a fused search: descent by small steps through lists of values, and a log of what has been tried."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from priormatch.config import FusionSettings, load_settings
from priormatch.errors import UserError
from priormatch.files import replace_text, writing
from priormatch.json_text import parse_json
from priormatch.old_names import NEW_NAMES, with_names
from priormatch.yaml_files import read_yaml

GRID: Mapping[str, Sequence[float]] = {
    "lm_weight": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5),
    "token_bonus": (0.0, 0.5, 1.0, 1.5, 2.0, 3.0),
    "eos_threshold": (1.0, 1.1, 1.25, 1.5, 2.0, math.inf),
    "token_margin": (4.0, 6.0, 8.0, 10.0, math.inf),
    "attention_jump": (20.0, 30.0, 40.0, math.inf),
    "beam_threshold": (5.0, 7.0, 10.0, math.inf),
}
"""The values that a setting may take, from the lowest to the highest."""

Grid = Mapping[str, Sequence[float]]
NAMES = [each.name for each in fields(FusionSettings)]
LIMITS: dict[str, Any] = {"eos_threshold": 1.5, "token_margin": 10.0, "attention_jump": 30.0}
STARTS: Sequence[Mapping[str, Any]] = [
    {"lm_weight": weight, "centered": False, "token_bonus": bonus, **limits}
    for weight, bonus in ((0.2, 0.5), (0.5, 1.0), (1.0, 2.0))
    for limits in (dict.fromkeys(LIMITS, math.inf), LIMITS)
]
"""Where a descent may begin beside the settings it is given: with the limits off, and with them on."""

TOGETHER = ["lm_weight", "token_bonus"]
"""Settings that also take steps together: what the prior takes from longer hypotheses, the bonus gives back."""

MATCHING_SHARE = 0.4
"""Of the best weight, what hypotheses are found with: each renewal adds the prior to what has learned some of it."""
MATCHING_RULE = f"centred, {MATCHING_SHARE:g} of the best weight"
"""How values for matching are found; part of the fingerprints of older stages, hence the spelling."""


class Errors(NamedTuple):
    """Error rates in percent, the lower the better: first by words, then by characters."""

    wer: float
    cer: float

    def __str__(self) -> str:
        return f"WER {self.wer:.2f} %, CER {self.cer:.2f} %"


Measure = Callable[[FusionSettings], Errors]


def descend(measure: Measure, starts: Iterable[FusionSettings], grid: Grid) -> FusionSettings:
    """From the best of the starts walk in one direction after the other, until a whole round finds nothing better."""
    best = min(starts, key=measure)
    directions = [*([name] for name in grid), *([TOGETHER] if grid.keys() >= set(TOGETHER) else [])]
    while True:
        before = best
        for names in directions:
            for step in (1, -1):
                best = walk(measure, best, grid, names, step)
        if best == before:
            return best


def starts_from(settings: FusionSettings) -> list[FusionSettings]:
    """Where a descent may begin: the settings themselves, and the same with the usual starts' values."""
    return [settings, *(replace(settings, **start) for start in STARTS)]


def centered(settings: FusionSettings, weights: Sequence[float]) -> list[FusionSettings]:
    """The settings with each of the weights, centered and without a bonus, with their own limits and the usual ones."""
    return [
        replace(settings, lm_weight=weight, centered=True, token_bonus=0.0, **limits)
        for limits in ({}, LIMITS)
        for weight in weights
    ]


def walk(
    measure: Measure, start: FusionSettings, grid: Grid, names: Sequence[str], step: int
) -> FusionSettings:
    """The best of the settings that lie in one direction, up to the first that is worse than that.

    Equal ones are passed over: a limit that nothing reached may bite when it is closer still.
    """
    best, fewest, here = start, measure(start), start
    while (there := neighbor(here, grid, names, step)) is not None:
        here, errors = there, measure(there)
        if errors > fewest:
            break
        if errors < fewest:
            best, fewest = here, errors
    return best


def neighbor(settings: FusionSettings, grid: Grid, names: Sequence[str], step: int) -> FusionSettings | None:
    """The same with the next higher values (`step` 1) or the next lower ones (-1); None where one has no next."""
    next_values: dict[str, Any] = {}
    for name in names:
        here = getattr(settings, name)
        beyond = [value for value in grid[name] if (value > here if step > 0 else value < here)]
        if not beyond:
            return None
        next_values[name] = min(beyond) if step > 0 else max(beyond)
    return replace(settings, **next_values)


class Trials:
    """Error rates of settings that have been tried, in a file of JSON lines, so that nothing is tried twice.

    Every line tells what it holds of (`key`), such as a model and a set: of others the file may hold trials too. Limits
    that are off are null there. Lines that are no trials, such as one cut off by a kill, are passed over.
    """

    def __init__(self, path: Path, key: str) -> None:
        self.path, self.key = path, key
        self.found: dict[tuple[float, ...], Errors] = {}
        content = path.read_bytes() if path.is_file() else b""
        for line in content.splitlines():
            try:
                entry = parse_json(line)
                if entry["of"] == key:
                    settings = [
                        math.inf if entry["fusion"][name] is None else entry["fusion"][name] for name in NAMES
                    ]
                    self.found[tuple(settings)] = Errors(float(entry["wer"]), float(entry["cer"]))
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
                fusion = {name: finite(settings).get(name) for name in NAMES}
                entry = {"of": self.key, "fusion": fusion, **self.found[tried]._asdict()}
                self._append(json.dumps(entry) + "\n")
            return self.found[tried]

        return remembered

    def _append(self, text: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with writing(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(text)


def finite(settings: FusionSettings) -> dict[str, Any]:
    """The settings but for limits that are off."""
    return {name: value for name, value in asdict(settings).items() if value != math.inf}


def write_tuned(path: Path, settings: FusionSettings, about: Mapping[str, Any]) -> None:
    """Write settings as YAML, with what is to be known about them."""
    import yaml

    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, yaml.safe_dump({"fusion": asdict(settings), "tuned": dict(about)}, sort_keys=False))


def is_for_decoding(path: Path) -> bool:
    """Whether a file that `read_tuned` has read says that it was tuned for decoding; one by hand need not say."""
    about = read_yaml(path).get("tuned")
    return isinstance(about, dict) and about.get("for") == "decoding"


def read_tuned(path: Path) -> list[str]:
    """What `write_tuned` wrote, as overrides such as fusion.lm_weight=0.4."""
    advice = "make it with `priormatch tune`"
    if not path.is_file():
        raise UserError(f"no fusion settings at {path}: {advice}")
    try:
        tree = with_names(read_yaml(path), NEW_NAMES)
        values = tree.get("fusion") if isinstance(tree, dict) else None
        if not isinstance(values, dict):
            raise UserError("no part is called fusion")
        overrides = [f"fusion.{name}={value}" for name, value in values.items()]
        load_settings(None, overrides)
    except UserError as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path} does not hold fusion settings ({reason}): {advice}") from error
    return overrides
