"""`priormatch doctor`: all checks, one line for each finding."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from priormatch.errors import UserError
from priormatch.json_text import to_json

Status = Literal["ok", "warning", "problem"]
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's output: a status, what was found, and what to do about it."""

    status: Status
    what: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.status:8} {self.what}{f'; {self.advice}' if self.advice else ''}"


def examine(recipe: str | None, overrides: Sequence[str], as_json: bool = False) -> bool:
    """Print the findings of all checks, as lines or as one JSON object; return whether there is a problem."""
    found = []
    for finding in findings(recipe, overrides):
        found.append(finding)
        if not as_json:
            print(finding, flush=True)
    counts = Counter(finding.status for finding in found)
    if as_json:
        print(to_json({"findings": found, **{each: counts[each] for each in STATUSES}}))
    else:
        others = (f"{counts[each]} {each}{'' if counts[each] == 1 else 's'}" for each in STATUSES[1:])
        print(f"{counts['ok']} ok, {', '.join(others)}")
    return counts["problem"] > 0


def findings(recipe: str | None, overrides: Sequence[str]) -> Iterator[Finding]:
    """Check the installation and the machine, and with a recipe its data and models; later checks need earlier ones."""
    from priormatch.doctor import install

    yield install.python_finding(sys.version_info[:2])
    yield from install.requirement_findings(install.requirements(), install.installed_version)
    broken = list(install.import_findings(install.MODULES))
    yield from broken
    if broken:
        return
    yield from install.sound_findings()
    yield install.ffmpeg_finding()
    from priormatch.config import Settings, load_settings, recipe_path
    from priormatch.doctor import machine
    from priormatch.doctor import recipe as of_recipe
    from priormatch.training.wandb_log import wandb_plan

    settings = None
    try:
        settings = load_settings(recipe_path(recipe) if recipe else None, overrides)
        wandb_plan(settings)
    except UserError as error:
        yield Finding("problem", str(error))
    known = settings or Settings()
    yield from guarded(machine.findings(known.device, Path(known.runs)))
    if settings is not None and (recipe or overrides):
        yield from of_recipe.settings_findings(settings)
        yield from guarded(of_recipe.data_findings(settings))
        yield from guarded(of_recipe.model_findings(Path(settings.runs) / settings.name))


def guarded(found: Iterator[Finding]) -> Iterator[Finding]:
    """Yield the findings of a check; a `UserError` becomes a problem."""
    try:
        yield from found
    except UserError as error:
        yield Finding("problem", str(error))
