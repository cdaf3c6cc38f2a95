"""Tuning of shallow fusion: coordinate descent over lists of values, and a log of the trials."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from priormatch.config import FusionSettings, load_settings
from priormatch.distributed import from_main, is_main
from priormatch.errors import UserError
from priormatch.files import replace_text, writing
from priormatch.json_text import parse_json
from priormatch.old_names import NEW_NAMES, with_names
from priormatch.yaml_files import read_yaml

GRID: Mapping[str, Sequence[float]] = {
    "lm_weight": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0),
    "token_bonus": (0.0, 0.5, 1.0, 1.5, 2.0, 3.0),
    "eos_threshold": (1.0, 1.1, 1.25, 1.5, 2.0, math.inf),
    "token_margin": (4.0, 6.0, 8.0, 10.0, math.inf),
    "attention_jump": (20.0, 30.0, 40.0, math.inf),
    "beam_threshold": (5.0, 7.0, 10.0, math.inf),
}
"""The values to try for each setting, in ascending order."""

Grid = Mapping[str, Sequence[float]]
NAMES = [each.name for each in fields(FusionSettings)]
LIMITS: dict[str, Any] = {"eos_threshold": 1.5, "token_margin": 10.0, "attention_jump": 30.0}
NO_LIMITS: dict[str, Any] = dict.fromkeys([*LIMITS, "beam_threshold"], math.inf)
"""The values in a search to which limits do not apply, so that the tuned file shows none."""
STARTS: Sequence[Mapping[str, Any]] = [
    {"lm_weight": weight, "centered": False, "token_bonus": bonus, **limits}
    for weight, bonus in ((0.2, 0.5), (0.5, 1.0), (1.0, 2.0))
    for limits in (dict.fromkeys(LIMITS, math.inf), LIMITS)
]
"""Starting points of the descent besides the given settings: with the limits off, and with them on."""

TOGETHER = ["lm_weight", "token_bonus"]
"""Settings that also change together: the prior lowers the scores of longer hypotheses, the bonus compensates."""

MATCHING_SHARE = 0.4
"""Share of the best LM weight used for matching: each new proposal has learned some of the prior already."""
MATCHING_RULE = f"centred, {MATCHING_SHARE:g} of the best weight"
"""How values for matching are found; part of the fingerprints of older stages, hence the spelling."""


COMPARED = ("greedy", "with_prior")
"""Error rates in a tuned file."""
NEVER_WORSE = "compared with none"
"""How values are found since they are never worse than no prior; a part of the fingerprints of newer stages."""


class Errors(NamedTuple):
    """Error rates in percent, compared by WER first, then by CER."""

    wer: float
    cer: float

    def __str__(self) -> str:
        return f"WER {self.wer:.2f} %, CER {self.cer:.2f} %"


Measure = Callable[[FusionSettings], Errors]


def descend(measure: Measure, starts: Iterable[FusionSettings], grid: Grid) -> FusionSettings:
    """Walk from the best start in one direction after the other, until a whole round finds nothing better."""
    best = min(starts, key=measure)
    directions = [*([name] for name in grid), *([TOGETHER] if grid.keys() >= set(TOGETHER) else [])]
    while True:
        before = best
        for names in directions:
            for step in (1, -1):
                best = walk(measure, best, grid, names, step)
        if best == before:
            return best


def grid_of(limited: bool) -> Grid:
    """The values to try in a search with limits, or in one to which they do not apply."""
    return GRID if limited else {name: GRID[name] for name in TOGETHER}


def starts_from(settings: FusionSettings, limited: bool = True) -> list[FusionSettings]:
    """Starting points of a descent: the settings themselves, and copies with the values of each of `STARTS`."""
    if not limited:
        settings = replace(settings, **NO_LIMITS)
    starts = [start for start in STARTS if limited or start["eos_threshold"] == math.inf]
    return [settings, *(replace(settings, **start) for start in starts)]


def centered(
    settings: FusionSettings, weights: Sequence[float], limited: bool = True
) -> list[FusionSettings]:
    """The settings with each LM weight, centered and without a bonus, with their own limits and with `LIMITS`."""
    if not limited:
        settings = replace(settings, **NO_LIMITS)
    return [
        replace(settings, lm_weight=weight, centered=True, token_bonus=0.0, **limits)
        for limits in ({}, LIMITS)[: 2 if limited else 1]
        for weight in weights
    ]


def without_prior(settings: FusionSettings, for_matching: bool = False) -> list[FusionSettings]:
    """The search without the prior and limits: with the beam of the settings, and for decoding also greedy."""
    plain = replace(settings, lm_weight=0.0, centered=for_matching, token_bonus=0.0, **NO_LIMITS)
    return [plain] if for_matching else [plain, replace(plain, beam_size=1)]


def walk(
    measure: Measure, start: FusionSettings, grid: Grid, names: Sequence[str], step: int
) -> FusionSettings:
    """The best settings in one direction, up to the first that are worse than the best.

    Equal results do not stop the walk: a limit that had no effect may have one when it is tighter.
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
    """The settings with the next higher (`step` 1) or next lower (-1) values; None if one of them has none."""
    next_values: dict[str, Any] = {}
    for name in names:
        here = getattr(settings, name)
        beyond = [value for value in grid[name] if (value > here if step > 0 else value < here)]
        if not beyond:
            return None
        next_values[name] = min(beyond) if step > 0 else max(beyond)
    return replace(settings, **next_values)


class Trials:
    """Error rates of settings already tried, in a JSON lines file, so that nothing is tried twice.

    Every line names what it was measured on (`key`), such as a model and a dataset, because the file may contain trials
    of others too. Limits that are off are null. Invalid lines, such as one cut off by a kill, are skipped.
    """

    def __init__(self, path: Path, key: str) -> None:
        self.path, self.key = path, key
        self.found: dict[tuple[float, ...], Errors] = {}
        content = path.read_bytes() if path.is_file() else b""
        for line in content.splitlines():
            try:
                entry = with_names(parse_json(line), NEW_NAMES)
                if entry["of"] == key:
                    settings = [
                        math.inf if entry["fusion"][name] is None else entry["fusion"][name] for name in NAMES
                    ]
                    self.found[tuple(settings)] = Errors(float(entry["wer"]), float(entry["cer"]))
            except (ValueError, TypeError, KeyError):
                continue
        if content and not content.endswith(b"\n"):
            self._append("\n")
        self.found = from_main(self.found)

    def measured(self, measure: Measure) -> Measure:
        """The same measure, with its results cached in this file."""

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
        if not is_main():
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with writing(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(text)


def finite(settings: FusionSettings) -> dict[str, Any]:
    """The settings without the limits that are off."""
    return {name: value for name, value in asdict(settings).items() if value != math.inf}


def write_tuned(path: Path, settings: FusionSettings, about: Mapping[str, Any]) -> None:
    """Write fusion settings as YAML, with metadata about the tuning."""
    import yaml

    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, yaml.safe_dump({"fusion": asdict(settings), "tuned": dict(about)}, sort_keys=False))


def is_for_decoding(path: Path) -> bool:
    """Whether a file that `read_tuned` has read is marked as tuned for decoding; a handwritten one need not be."""
    about = read_yaml(path).get("tuned")
    return isinstance(about, dict) and about.get("for") == "decoding"


def is_worse_than_none(path: Path) -> bool:
    """Whether a file that `write_tuned` wrote has values that are worse than greedy decoding without the prior.

    Older versions did not compare the values with none. A file without error rates is not judged.
    """
    try:
        about: Any = read_yaml(path)["tuned"]
        greedy, found = (Errors(float(about[name]["wer"]), float(about[name]["cer"])) for name in COMPARED)
    except (KeyError, TypeError, ValueError, UserError):
        return False
    return found > greedy and "without_prior" not in about


def read_tuned(path: Path) -> list[str]:
    """Read what `write_tuned` wrote, as overrides such as fusion.lm_weight=0.4."""
    advice = "make it with `priormatch tune`"
    if not path.is_file():
        raise UserError(f"no fusion settings at {path}: {advice}")
    try:
        tree = with_names(read_yaml(path), NEW_NAMES)
        values = tree.get("fusion") if isinstance(tree, dict) else None
        if not isinstance(values, dict):
            raise UserError("it has no fusion section")
        overrides = [f"fusion.{name}={value}" for name, value in values.items()]
        load_settings(None, overrides)
    except UserError as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path} does not hold fusion settings ({reason}): {advice}") from error
    return overrides
