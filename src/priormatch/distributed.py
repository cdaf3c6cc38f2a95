"""Several processes that do one job together, as torchrun starts them: who is who, and what they exchange.

Alone, every function here does nothing. Two kinds of messages are exchanged. Gradients are summed on the device, by
NCCL where each process has a GPU of its own. Everything else is small and goes through the hosts (gloo), where a
process that is gone or late is noticed.
"""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from uuid import uuid4

from priormatch.errors import UserError

if TYPE_CHECKING:  # slow to import
    from torch import Tensor, nn
    from torch.distributed import ProcessGroup
    from torch.distributed.distributed_c10d import Store

T = TypeVar("T")
LATE = timedelta(minutes=10)
"""How long the others wait for a process in the middle of common work."""
PATIENT = timedelta(days=7)
"""How long they wait for the end of work that one process does for all."""
ANSWER = timedelta(seconds=2)
"""How long a process may take to say that it is there, when one is missing."""
POLL = 0.05  # seconds


@dataclass
class Job:
    """This process among those of its job; `place` is where they are, such as update 7 of a stage."""

    rank: int = 0
    ranks: int = 1
    quick: "ProcessGroup | None" = None
    patient: "ProcessGroup | None" = None
    place: str = "the start"


_job = Job()


def rank() -> int:
    """The number of this process, from 0."""
    return _job.rank


def ranks() -> int:
    """The number of processes."""
    return _job.ranks


def is_main() -> bool:
    """Whether this process writes files and messages for all."""
    return _job.rank == 0


def started() -> bool:
    """Whether torchrun, or anything that sets the same variables, started this process."""
    return {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()


@contextmanager
def joined() -> Iterator[None]:
    """Work together with the other processes of the job inside the context; alone, do nothing."""
    global _job
    if not started():
        yield
        return
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    store, number, count = next(rendezvous("env://", timeout=LATE))
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        store = part_of_store(store, number, count)
    dist.init_process_group(_backend(), store=store, rank=number, world_size=count, timeout=LATE)
    quick, patient = (dist.new_group(backend="gloo", timeout=each) for each in (LATE, PATIENT))
    _job = Job(dist.get_rank(), dist.get_world_size(), quick, patient)
    try:
        yield
    except SystemExit:  # an exit code that all processes have agreed on
        dist.destroy_process_group()
        raise
    dist.destroy_process_group()  # after an error it could wait for processes that are gone; messages need the rest


def part_of_store(store: "Store", number: int, count: int) -> "Store":
    """The part of torchrun's store for the processes that run now.

    When a process fails, torchrun starts all of them again with the same store, which still has the addresses of the
    earlier ones (PyTorch 2.13). So each process stores a random name, process 0 lists the names that it finds, and the
    others confirm the list that has their own. The part is called by the name of process 0.
    """
    from torch.distributed.distributed_c10d import PrefixStore

    own, deadline = uuid4().hex, time.monotonic() + LATE.total_seconds()
    store.set(f"name/{number}", own)
    others = [f"name/{each}" for each in range(1, count)]
    while time.monotonic() < deadline:
        if number == 0 and store.check(others):
            names = [store.get(each).decode() for each in others]
            store.set(f"names/{own}", ",".join(names))
            if store.check([f"seen/{own}/{each}" for each in names]):
                return PrefixStore(own, store)
        elif number > 0 and store.check(["name/0"]):
            first = store.get("name/0").decode()
            if store.check([f"names/{first}"]) and own in store.get(f"names/{first}").decode().split(","):
                store.set(f"seen/{first}/{own}", "")
                return PrefixStore(first, store)
        time.sleep(POLL)
    raise UserError(
        f"process {number} of {count} waited {LATE} for the others to start: look for their errors"
    )


def _backend() -> str:
    """NCCL if each process of this machine can have a GPU of its own."""
    import torch

    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return "nccl" if 0 < local <= torch.cuda.device_count() else "gloo"


def own_gpu() -> int:
    """The number of the GPU for this process; several processes may share one."""
    import torch

    return int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count() if started() else 0


def at(place: str) -> None:
    """Note where this process is, for messages about a process that is missing."""
    _job.place = place


def from_main(value: T) -> T:
    """The value that the main process gives, in all processes, however long that takes."""
    if _job.ranks == 1:
        return value
    import torch.distributed as dist

    found = [value]
    with _noticing():
        dist.broadcast_object_list(found, src=0, group=_job.patient)
    return found[0]


def from_all(value: T, patient: bool = False) -> list[T]:
    """The values of all processes, by rank; `patient` if some may need much longer than others."""
    if _job.ranks == 1:
        return [value]
    import torch.distributed as dist

    found: list[Any] = [None] * _job.ranks
    with _noticing():
        dist.all_gather_object(found, value, group=_job.patient if patient else _job.quick)
    return found


def highest(*numbers: int) -> tuple[int, ...]:
    """The highest of each of these numbers over all processes."""
    if _job.ranks == 1:
        return numbers
    import torch
    import torch.distributed as dist

    found = torch.tensor(numbers)
    with _noticing():
        dist.all_reduce(found, dist.ReduceOp.MAX, group=_job.quick)
    return tuple(found.tolist())


def tensors_from_main(tensors: "dict[str, Tensor]") -> "dict[str, Tensor]":
    """The tensors that the main process gives, in all processes, on the CPU."""
    if _job.ranks == 1:
        return tensors
    import torch
    import torch.distributed as dist

    shapes = from_main({name: (each.shape, each.dtype) for name, each in tensors.items()})
    found = {}
    for name, (shape, dtype) in shapes.items():
        found[name] = tensors[name].cpu() if is_main() else torch.empty(shape, dtype=dtype)
        with _noticing():
            dist.broadcast(found[name], src=0, group=_job.patient)
    return found


def sum_gradients(parameters: "Iterable[nn.Parameter]", loss: "Tensor") -> "Tensor":
    """Replace the gradients by their sums over all processes; return the sum of the losses.

    Where no process has a gradient, there is none afterwards either.
    """
    if _job.ranks == 1:
        return loss
    import torch
    import torch.distributed as dist

    trained = [each for each in parameters if each.requires_grad]
    found = any(each.grad is not None for each in trained)
    parts = [torch.zeros_like(each) if each.grad is None else each.grad for each in trained]
    more = torch.stack([loss.detach(), torch.full_like(loss, float(found))]).to(parts[0].dtype)
    flat = torch.cat([*(each.flatten() for each in parts), more])
    with _noticing():
        dist.all_reduce(flat)
    if found or float(flat[-1]) > 0:
        sums = flat[:-2].split([each.numel() for each in parts])
        torch._foreach_copy_(parts, [each.view_as(part) for each, part in zip(sums, parts, strict=True)])
        for parameter, part in zip(trained, parts, strict=True):
            parameter.grad = part
    return flat[-2].to(loss.dtype)


@contextmanager
def _noticing() -> Iterator[None]:
    """Turn the error about a process that is gone or late into a sentence that names it."""
    try:
        yield
    except RuntimeError as error:
        _explain(error)


def _explain(error: RuntimeError) -> NoReturn:
    missing = _missing()
    who = f"process{'es' * (len(missing) > 1)} {', '.join(map(str, missing))}" if missing else "a process"
    raise UserError(
        f"{who} of {_job.ranks} stopped answering at {_job.place}; its own message says why, unless it was killed;"
        " the same command resumes from the last checkpoint, even with a different number of processes"
    ) from error


def _missing() -> list[int]:
    """The other processes that do not say that they are still there; the first one, if nobody can be asked."""
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import _get_default_store

    missing = []
    try:
        store = _get_default_store()
        store.set(f"{_job.place}/{_job.rank}", "here")
        for other in range(_job.ranks):
            try:
                store.wait([f"{_job.place}/{other}"], ANSWER)
            except dist.DistStoreError:
                missing.append(other)
    except dist.DistNetworkError:  # the store was in the first process
        return [0]
    return missing
