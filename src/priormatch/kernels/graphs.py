"""CUDA graphs: the hundreds of small launches of a step are recorded once per shape and replayed as one."""

import gc
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from priormatch.device import has_kernels

T = TypeVar("T")
WARM_UPS = 1
SCARCE = 0.25  # share of GPU memory; with less free, the cache of the warm-ups is emptied before recording
MODE = "thread_local"  # a loader thread may pin memory while this one records


@cache
def _pool() -> tuple[Any, torch.cuda.CUDAGraph]:
    """The memory pool that all graphs share; they run one at a time, so temporaries can be reused.

    It has a graph of its own, because a pool is freed with its last graph.
    """
    handle, keeper = torch.cuda.graph_pool_handle(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(keeper, pool=handle, capture_error_mode=MODE):
        torch.zeros(1, device="cuda")
    return handle, keeper


@cache
def _side_stream() -> torch.cuda.Stream:
    """The stream of all warm-ups and recordings, so that memory freed by one is available to the next."""
    return torch.cuda.Stream()


class Recording(Generic[T]):
    """A function without arguments, recorded now and replayed when called.

    It must not read tensor values on the host. The next replay of any recording may overwrite its result: use or copy
    the result before that. Each replay draws new random numbers, from the generator's seed at that time.
    """

    def __init__(self, function: Callable[[], T]) -> None:
        pool, noise, side = _pool()[0], torch.cuda.get_rng_state(), _side_stream()
        side.wait_stream(torch.cuda.current_stream())
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                function()
            torch.cuda.synchronize()
            free, total = torch.cuda.mem_get_info()
            if free < SCARCE * total:
                torch.cuda.empty_cache()
            collecting = gc.isenabled()
            gc.disable()  # objects freed during capture would be recorded too, or cause an error
            self.graph.capture_begin(pool=pool, capture_error_mode=MODE)
            try:
                self.result = function()
            finally:
                self.graph.capture_end()
                if collecting:
                    gc.enable()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.set_rng_state(noise)

    def __call__(self) -> T:
        """Replay the recording and return its result."""
        self.graph.replay()
        return self.result


class Arena:
    """Memory shared by tensors of different shapes, one at a time, as large as the largest so far.

    When a buffer is replaced by a larger one, existing views keep the old one alive.
    """

    def __init__(self) -> None:
        self.flat: dict[Hashable, Tensor] = {}

    def copy(self, name: Hashable, x: Tensor) -> Tensor:
        """Copy x into the buffer with the given name, overwriting its content."""
        place = name, x.dtype
        if place not in self.flat or self.flat[place].numel() < x.numel():
            self.flat[place] = torch.empty(x.numel(), dtype=x.dtype, device=x.device)
        return self.flat[place][: x.numel()].view(x.shape).copy_(x, non_blocking=True)


class Gradients:
    """Gradients at fixed addresses, as a recorded backward pass requires."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = [each for each in parameters if each.requires_grad]
        self.buffers: list[Tensor] = []

    def attach(self) -> None:
        """Replace gradients that are None with their buffers, set to zero."""
        if self.parameters[0].grad is not None:
            assert self.buffers and self.parameters[0].grad is self.buffers[0], (
                "a model has one step that adds"
            )
            return
        if not self.buffers:
            self.buffers = [torch.zeros_like(each) for each in self.parameters]
        torch._foreach_zero_(self.buffers)
        for parameter, buffer in zip(self.parameters, self.buffers, strict=True):
            parameter.grad = buffer

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Restore the gradients at the end of the context."""
        before = [each.clone() for each in self.buffers]
        try:
            yield
        finally:
            torch._foreach_copy_(self.buffers, before)

    @contextmanager
    def added_at_once(self) -> Iterator[None]:
        """Add the gradients of the context to the buffers at its end, in few launches instead of one each."""
        for parameter in self.parameters:
            parameter.grad = None
        yield
        pairs = [
            (buffer, parameter.grad)
            for buffer, parameter in zip(self.buffers, self.parameters, strict=True)
            if parameter.grad is not None
        ]
        if pairs:
            torch._foreach_add_(*map(list, zip(*pairs, strict=True)))
        for parameter, buffer in zip(self.parameters, self.buffers, strict=True):
            parameter.grad = buffer


class Graphed(Generic[T]):
    """A function of tensors, run as one CUDA graph per combination of input shapes; on the CPU it is just called.

    Keyword arguments are for values that are not tensors; each combination of them has its own graph too.
    `parameters` are those whose gradients a backward pass in the function adds to. `recorded` is false if it cannot be
    recorded.
    """

    def __init__(
        self,
        function: Callable[..., T],
        parameters: Iterable[nn.Parameter] | None = None,
        recorded: bool = True,
    ) -> None:
        self.function, self.recorded = function, recorded
        self.gradients = Gradients(parameters) if parameters is not None else None
        self.recordings: dict[Hashable, tuple[list[Tensor], Recording[T]]] = {}
        self.arena = Arena()

    def __call__(self, *inputs: Tensor, **options: Hashable) -> T:
        """Call the function; on a GPU the next recording may overwrite the result."""
        if not (self.recorded and has_kernels(inputs[0].device)):
            return self.function(*inputs, **options)
        if self.gradients is not None:
            self.gradients.attach()
        shapes = (*options.items(), *((each.shape, each.dtype) for each in inputs))
        if shapes not in self.recordings:
            self.recordings[shapes] = self._record(inputs, options)
        own, recording = self.recordings[shapes]
        for mine, given in zip(own, inputs, strict=True):
            mine.copy_(given, non_blocking=True)
        return recording()

    def _record(
        self, inputs: Sequence[Tensor], options: Mapping[str, Hashable]
    ) -> tuple[list[Tensor], Recording[T]]:
        own = [self.arena.copy(number, each) for number, each in enumerate(inputs)]
        if self.gradients is None:
            return own, Recording(lambda: self.function(*own, **options))
        gradients = self.gradients

        def function() -> T:
            with gradients.added_at_once():
                return self.function(*own, **options)

        with gradients.preserved():
            return own, Recording(function)
