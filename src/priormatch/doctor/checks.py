"""`priormatch doctor`: all checks, one line each."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from priormatch.doctor import install
from priormatch.doctor.finding import Finding, guarded
from priormatch.errors import UserError


def examine(recipe: str | None, overrides: Sequence[str]) -> bool:
    """Print the findings of all checks; return whether there is a problem."""
    counts: Counter[str] = Counter()
    for finding in findings(recipe, overrides):
        print(finding, flush=True)
        counts[finding.status] += 1
    told = (f"{counts[each]} {each}{'' if counts[each] == 1 else 's'}" for each in ("warning", "problem"))
    print(f"{counts['ok']} ok, {', '.join(told)}")
    return counts["problem"] > 0


def findings(recipe: str | None, overrides: Sequence[str]) -> Iterator[Finding]:
    """Check the installation and the machine, and with a recipe its data and models; later checks need earlier ones."""
    yield install.python_finding(sys.version_info[:2])
    yield from install.requirement_findings(install.requirements(), install.installed_version)
    broken = list(install.import_findings(install.MODULES))
    yield from broken
    if broken:
        return
    yield from install.sound_findings()
    from priormatch.config import Settings, load_settings, recipe_path
    from priormatch.doctor import data_checks as data
    from priormatch.doctor import machine
    from priormatch.doctor import model_checks as models
    from priormatch.doctor import settings_checks as of_settings
    from priormatch.training.wandb_log import wandb_plan

    settings = None
    try:
        settings = load_settings(recipe_path(recipe) if recipe else None, overrides)
        wandb_plan(settings)
    except UserError as error:
        yield Finding("problem", str(error))
    known = settings or Settings()
    yield from guarded(lambda: machine.findings(known.device, Path(known.runs)))
    if settings is not None and (recipe or overrides):
        yield from of_settings.findings(settings)
        yield from guarded(lambda: data.findings(settings))
        yield from guarded(lambda: models.findings(Path(settings.runs) / settings.name))
