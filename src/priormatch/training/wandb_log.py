"""Weights & Biases beside the run's own files: what metrics.jsonl tells, under the same names."""

import dataclasses
import hashlib
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from priormatch.config import Settings
from priormatch.errors import UserError
from priormatch.files import replace_text
from priormatch.progress import say

FOLDER = "wandb"  # where the package keeps its files, and we the ids
LOGIN_SECONDS = 60  # that a question for an API key may wait for an answer


@dataclasses.dataclass(frozen=True)
class WandbPlan:
    """The project to log to, and all settings, which become the configuration of its runs."""

    project: str
    settings: dict[str, Any]


def wandb_plan(settings: Settings) -> WandbPlan | None:
    """What the settings ask for; None where they ask for nothing."""
    if not settings.wandb:
        return None
    if find_spec("wandb") is None:
        raise UserError(
            f"wandb={settings.wandb}: the package wandb is not installed; install priormatch[wandb], or leave it out"
        )
    return WandbPlan(settings.wandb, dataclasses.asdict(settings))


class WandbLog:
    """Logs one stage of a run as one run of Weights & Biases, in the group of the run's folder.

    Its id is recorded in the folder, as `wandb/STAGE.id`, and a stage that goes on after a kill goes on there too; one
    that begins anew gets another. Whatever fails is told once and ends this log, never the training.
    """

    def __init__(self, plan: WandbPlan, folder: Path, stage: str, update: int) -> None:
        self.run: Any = None
        self._try(lambda: self._begin(plan, folder, stage, update))

    def _begin(self, plan: WandbPlan, folder: Path, stage: str, update: int) -> None:
        import wandb

        self.run = wandb.init(
            project=plan.project,
            id=run_id(folder, stage, update),
            name=f"{folder.resolve().name}/{stage}",
            group=folder.resolve().name,
            job_type=stage,
            config=plan.settings,
            dir=folder,
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off", login_timeout=LOGIN_SECONDS),
        )
        self.run.define_metric("*", step_metric="update")  # updates that a kill has undone are made again

    def write(self, update: int, metrics: dict[str, Any]) -> None:
        """Log one line of metrics.jsonl."""
        if self.run is not None:
            self._try(lambda: self.run.log({"update": update, **metrics}))

    def close(self) -> None:
        """Send what is left."""
        if self.run is not None:
            self._try(self.run.finish)
        self.run = None

    def _try(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:  # a network, a server or a package of others
            reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(". ")
            say(f"Weights & Biases: {reason}; nothing more is logged there, and the training goes on")
            run, self.run = self.run, None
            with suppress(Exception):
                if run is not None:
                    run.finish(exit_code=1)


def run_id(folder: Path, stage: str, update: int) -> str:
    """The recorded id of a stage's run; from update 0 on a new one, made of the place and the time."""
    record = folder / FOLDER / f"{stage}.id"
    if update > 0 and record.is_file():
        return record.read_text(encoding="utf-8").strip()
    made_of = f"{folder.resolve()}/{stage} at {time.time_ns()}"
    identity = hashlib.sha256(made_of.encode()).hexdigest()[:16]
    record.parent.mkdir(parents=True, exist_ok=True)
    replace_text(record, f"{identity}\n")
    return identity
