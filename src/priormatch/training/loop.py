"""The training loop, shared by supervised training, prior training and local prior matching."""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from priormatch import distributed
from priormatch.config import KeepSettings, OptimizerSettings
from priormatch.device import return_freed_memory
from priormatch.errors import UserError
from priormatch.processes import Stop, deferred_stop
from priormatch.progress import Meter, say
from priormatch.recognizers.folder import WEIGHTS
from priormatch.recognizers.protocols import Module
from priormatch.stopwatch import Stopwatch
from priormatch.training.checkpoint import (
    Checkpoints,
    of_prefix,
    optimizer_tensors,
    read_checkpoint,
    restore_optimizer,
    with_prefix,
)
from priormatch.training.health import Health
from priormatch.training.metrics import MetricsLog
from priormatch.training.optimizer import learning_rate, make_optimizer, step_if_finite
from priormatch.training.wandb_log import WandbLog, WandbPlan

SECONDS_BETWEEN_NOTES = 1.0
FIRST_CHECKPOINT = (
    10.0  # seconds after the start; later ones come after twice the time, up to the one that is set
)


class Task(Protocol):
    """The parts that differ between supervised training, prior training and matching."""

    @property
    def model(self) -> Module:
        """The model that is trained."""

    @property
    def ids(self) -> Sequence[str]:
        """Utterances of the last update's batch; empty for text."""

    def backward(self, update: int, watch: Stopwatch) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        """Take the next batches, add the gradient of the loss, and return the loss and metrics to report.

        Of several processes each adds the gradient of its share of the loss, and returns that share. The metrics stay
        on the device, and the next call may overwrite them.
        """

    def validate(self, update: int) -> tuple[float, dict[str, Any]]:
        """Return a score (lower is better) and metrics to report."""

    def save(self, folder: Path) -> None:
        """Save the model in a folder."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and JSON state for a checkpoint, in addition to the model and the optimizer."""

    def restore(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Restore what `state` returned."""

    def close(self) -> None:
        """Stop processes that read ahead."""


@dataclass(frozen=True)
class Schedule:
    """How long and with which optimizer to train, and how often to validate, report and save."""

    updates: int
    optimizer: OptimizerSettings
    seed: int
    validate_every: int
    validate_first: bool = False  # if the initial model is already trained
    start_counts: bool = True  # whether the initial model can be the best
    report_every: int = 100
    checkpoint_seconds: float = 120.0
    keep: Mapping[str, KeepSettings] = field(default_factory=dict)  # copies of the model to keep
    wandb: WandbPlan | None = None  # also log to Weights & Biases
    score: str = "validation score {:.2f}"  # how the validation score is shown


def fit(task: Task, schedule: Schedule, folder: Path, log_folder: Path) -> float:
    """Train until the end of the schedule and return the best validation score; resume if there is a checkpoint.

    Saves the model with the best validation score in `folder/model`, and the copies that the schedule asks for in
    `folder/kept`. Metrics go to `log_folder`, under the name of the folder. The random numbers of an update depend
    only on (seed, update), so a resumed run repeats lost updates bit for bit. The first Ctrl-C or SIGTERM saves a
    checkpoint at the end of the update and stops; the second stops at once.
    """
    with deferred_stop() as stop:
        best = fit_until(stop, task, schedule, folder, log_folder)
    if not math.isfinite(best):
        raise UserError(
            f"{folder.name}: no validation score is finite, so training has diverged: lower its"
            " optimizer.learning_rate"
        )
    return best


def fit_until(stop: Stop, task: Task, schedule: Schedule, folder: Path, log_folder: Path) -> float:
    """Train until the schedule ends, or save and stop if requested; return the best validation score so far."""
    stage = folder.name
    distributed.at(f"the start of {stage}")
    parameters = [each for each in task.model.parameters() if each.requires_grad]
    optimizer = make_optimizer(parameters, schedule.optimizer)
    update, best, state = resume(task, optimizer, folder)
    plan = schedule.wandb if distributed.is_main() else None
    mirror = None if plan is None else WandbLog(plan, log_folder, stage, update)
    log = MetricsLog(log_folder, stage, update, mirror, state["gathered"])
    if update == 0 and schedule.validate_first:
        best = validate(task, schedule, 0, math.inf, folder, log)
    watch, health = Stopwatch(parameters[0].device), Health(stage, state["bad"], state["skipped"])
    began = saved = reported = noted = time.monotonic()
    since, note, checkpoints = update, "", Checkpoints(folder)

    with closing(log), closing(task), closing(checkpoints), Meter(stage, schedule.updates, update) as meter:
        while update < schedule.updates:
            torch.manual_seed(seed_of(schedule.seed, update))
            distributed.at(f"update {update + 1} of {stage}")
            rate = set_rate(optimizer, learning_rate(schedule.optimizer, update, schedule.updates))
            loss, norm, figures = make_update(task, optimizer, schedule.optimizer.clip, update, watch)
            health.watch(update, norm, task.ids)
            update += 1

            figures = {"skipped": norm.isfinite().logical_not(), "learning_rate": rate, **figures}
            log.add({"loss": loss, "gradient_norm": norm, **figures})
            if update % schedule.report_every == 0:
                now = time.monotonic()
                means = over_processes(distributed.from_all(log.means()))
                log.write(update, report(means, watch, (now - reported) / (update - since)))
                reported, since = now, update
            due = update % schedule.validate_every == 0 or update == schedule.updates
            if due:
                best = validate(task, schedule, update, best, folder, log)
            late = distributed.is_main() and is_late(began, saved, schedule.checkpoint_seconds)
            saving, stopping = agree(stop, due or late)
            if saving:
                state = {"update": update, "best": best, "gathered": log.settle(), **health.settle()}
                if distributed.is_main():
                    checkpoints.write(*checkpoint_of(task, optimizer, state))
                saved = time.monotonic()
                watch.lap("validation")
            if time.monotonic() - noted > SECONDS_BETWEEN_NOTES:  # reading the loss waits for the GPU
                validated = f", best {schedule.score.format(best)}" if math.isfinite(best) else ""
                note, noted = f"loss {float(loss):.3g}{validated}", time.monotonic()
            meter.advance(note=note)
            if stopping:
                break
    if update < schedule.updates:
        say(f"{stage}: saved at update {update} of {schedule.updates}")
    if update == schedule.updates and math.isfinite(best):
        health.finish(update)
    return best


def is_late(began: float, saved: float, most: float) -> bool:
    """Whether to save: `most` seconds after the last checkpoint, and sooner at first, so that little is lost."""
    return time.monotonic() - saved > min(most, max(saved - began, FIRST_CHECKPOINT))


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> float:
    """Set the learning rate of all parameters, and return it."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    return rate


def agree(stop: Stop, saving: bool) -> tuple[bool, bool]:
    """Decide together with the other processes whether to save now, and whether to stop because one was asked to."""
    signal, saves = distributed.highest(stop.signal or 0, saving)
    if signal:
        stop.signal = signal
    return bool(saves or signal), bool(signal)


def make_update(
    task: Task, optimizer: torch.optim.Optimizer, clip: float, update: int, watch: Stopwatch
) -> tuple[Tensor, Tensor, Mapping[str, Tensor | float]]:
    """Make one update, the same in all processes; return the loss, the gradient norm before clipping, and metrics."""
    task.model.train()
    optimizer.zero_grad(set_to_none=True)
    loss, figures = task.backward(update, watch)
    loss = distributed.sum_gradients(task.model.parameters(), loss)
    norm = nn.utils.clip_grad_norm_(task.model.parameters(), clip)
    step_if_finite(optimizer, norm)
    watch.lap("update")
    return loss, norm, figures


def over_processes(means: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Metrics over all processes: the sum of each amount of data, the mean of everything else."""
    names = dict.fromkeys(name for each in means for name in each)
    found = {name: [each[name] for each in means if name in each] for name in names}
    return {
        name: sum(values) / (1 if name.endswith("_seconds") else len(values))
        for name, values in found.items()
    }


def report(means: dict[str, float], watch: Stopwatch, seconds: float) -> dict[str, float]:
    """Metrics of the updates since the last report: means, speed, and shares of time."""
    speed = {"seconds_per_update": seconds}
    if "audio_seconds" in means and seconds > 0:
        speed["audio_per_second"] = means["audio_seconds"] / seconds
    return {**means, **speed, **{f"time_{name}": share for name, share in watch.shares().items()}}


def seed_of(seed: int, update: int) -> int:
    """A seed for one update, spread over all bits because the CPU generator uses only the lower 32.

    Processes of a job have different ones, so that their dropout differs.
    """
    entropy = [seed, update, *([rank] if (rank := distributed.rank()) else [])]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0])


def validate(
    task: Task, schedule: Schedule, update: int, best: float, folder: Path, log: MetricsLog
) -> float:
    """Score the model, save it if it is the best so far or a copy is due, and return the best score."""
    task.model.eval()
    score, figures = task.validate(update)
    return_freed_memory()
    log.write(update, {"validation_score": score, **figures})
    if update == 0 and not schedule.start_counts:
        return best
    if distributed.is_main():
        if score < best or not (folder / "model").exists():
            task.save(folder / "model")
        keep_copies(task, schedule, update, score, folder)
    return score if score < best else best  # NaN is never the best


def keep_copies(task: Task, schedule: Schedule, update: int, score: float, folder: Path) -> None:
    """Save the copies of the model that are due."""
    copies = {
        name: folder / "kept" / name for name, when in schedule.keep.items() if reached(when, update, score)
    }
    new = {name: copy for name, copy in copies.items() if not (copy / WEIGHTS).exists()}
    for name, copy in new.items():
        task.save(copy)
        say(f"{folder.name}: copy {name} kept at update {update}, {schedule.score.format(score)}")
    if len(new) > 1:
        say(
            f"{folder.name}: {' and '.join(new)} are the same model: validate more often to get different ones"
        )


def reached(when: KeepSettings, update: int, score: float) -> bool:
    """Whether a copy is due."""
    return update >= when.update if when.update else score <= when.score


def resume(task: Task, optimizer: torch.optim.Optimizer, folder: Path) -> tuple[int, float, dict[str, Any]]:
    """Restore the checkpoint of a folder; return the updates made, the best score, and the state of log and health."""
    nothing = {"bad": 0, "skipped": [], "gathered": {}}  # checkpoints of earlier versions lack some of these
    found = read_checkpoint(folder) if distributed.is_main() else None
    state = distributed.from_main(None if found is None else found[1])
    if state is None:
        return 0, math.inf, nothing
    tensors = distributed.tensors_from_main({} if found is None else found[0])
    try:
        task.model.load_state_dict(of_prefix("model", tensors))
        restore_optimizer(optimizer, task.model, of_prefix("optimizer", tensors))
        task.restore(of_prefix("task", tensors), state["task"])
        update, best = int(state["update"]), float(state["best"])
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"the checkpoint in {folder} is from another training ({str(error).splitlines()[0][:200]}): remove"
            " checkpoint*.safetensors there to restart the stage"
        ) from error
    say(f"{folder}: resuming from update {update}")
    return update, best, nothing | state


def checkpoint_of(
    task: Task, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `resume` needs."""
    tensors, of_task = task.state()
    return {
        **with_prefix("model", task.model.state_dict()),
        **with_prefix("optimizer", optimizer_tensors(optimizer, task.model)),
        **with_prefix("task", tensors),
    }, {**state, "task": of_task}
