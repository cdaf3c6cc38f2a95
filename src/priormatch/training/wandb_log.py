"""Logging to Weights & Biases: the metrics of metrics.jsonl, under the same names."""

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

FOLDER = "wandb"  # for the files of the wandb package and our run ids
LOGIN_SECONDS = 60  # timeout of a prompt for an API key


@dataclasses.dataclass(frozen=True)
class WandbPlan:
    """The project to log to, and all settings, which become the config of the W&B runs."""

    project: str
    settings: dict[str, Any]


def wandb_plan(settings: Settings) -> WandbPlan | None:
    """The plan that the settings ask for, or None if wandb is not set."""
    if not settings.wandb:
        return None
    if find_spec("wandb") is None:
        raise UserError(
            f"wandb={settings.wandb}: wandb is not installed; install priormatch[wandb], or remove the setting"
        )
    return WandbPlan(settings.wandb, dataclasses.asdict(settings))


class WandbLog:
    """Logs one stage of a run as one W&B run, in a group named after the run's folder.

    The id is recorded in the folder as `wandb/STAGE.id`, so that a resumed stage also resumes its W&B run; a restarted
    stage gets a new one. An error is reported once and ends this log, never the training.
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
        self.run.define_metric(
            "*", step_metric="update"
        )  # not W&B's own step: a resumed run repeats lost updates

    def write(self, update: int, metrics: dict[str, Any]) -> None:
        """Log one line of metrics.jsonl."""
        if self.run is not None:
            self._try(lambda: self.run.log({"update": update, **metrics}))

    def close(self) -> None:
        """Finish the W&B run."""
        if self.run is not None:
            self._try(self.run.finish)
        self.run = None

    def _try(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:  # of the network, the server or the package
            reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(". ")
            say(f"Weights & Biases: {reason}; logging to it stops, and training continues")
            run, self.run = self.run, None
            with suppress(Exception):
                if run is not None:
                    run.finish(exit_code=1)


def run_id(folder: Path, stage: str, update: int) -> str:
    """The recorded id of a stage's W&B run; at update 0, a new id from the folder and the time."""
    record = folder / FOLDER / f"{stage}.id"
    if update > 0 and record.is_file():
        return record.read_text(encoding="utf-8").strip()
    made_of = f"{folder.resolve()}/{stage} at {time.time_ns()}"
    identity = hashlib.sha256(made_of.encode()).hexdigest()[:16]
    record.parent.mkdir(parents=True, exist_ok=True)
    replace_text(record, f"{identity}\n")
    return identity
