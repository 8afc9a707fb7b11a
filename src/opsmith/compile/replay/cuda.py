"""Recording launches on a CUDA device, and waiting for them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

Compiled = Callable[..., Sequence[Tensor]]

#: One graph is captured at a time in a process: torch routes allocations to the pool of the one underway.
_capturing = threading.Lock()


class Graph(Protocol):
    """Launches that can be repeated."""

    def replay(self) -> None:
        """Enqueue them on the current stream."""
        ...


class Launches(NamedTuple):
    """What a call launched.

    Attributes:
        graph: repeats it.
        outputs: which each repetition overwrites.
        pool_bytes: memory that the graph keeps for what it writes.
    """

    graph: Graph
    outputs: Sequence[Tensor]
    pool_bytes: int


class Device(Protocol):
    """What a recording asks of a device."""

    def record(self, call: Compiled, inputs: Sequence[Tensor]) -> Launches:
        """Record a call; nothing runs.

        Raises:
            Exception: the call does something that cannot be recorded.
        """
        ...

    def are_at(self, inputs: list[Tensor | int], addresses: list[int | None], places: list[int]) -> bool:
        """Whether the inputs at these places have the addresses at these places."""
        ...

    def busy_recording(self) -> bool:
        """Whether somebody else records what is launched on the current stream."""
        ...

    def follow(self) -> None:
        """Have what is enqueued next on the current stream wait for what the last call enqueued on another."""
        ...

    def synchronise(self) -> None:
        """Wait for everything that was enqueued."""
        ...

    def same_random_numbers(self) -> contextlib.AbstractContextManager[None]:
        """Put the generators back at the end to where they were."""
        ...


class Cuda:
    """One device, as one recorded callable uses it.

    Args:
        device: with an index.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._index = device.index
        self._stream: torch.cuda.Stream | None = None
        self._raw_stream: int | None = None

    def record(self, call: Compiled, inputs: Sequence[Tensor]) -> Launches:
        """As :meth:`Device.record`; in a memory pool of the graph's own."""
        # The stream is set again on the way out: torch leaves the capture's in place if its end fails.
        with _capturing, torch.cuda.device(self._device), torch.cuda.stream(torch.cuda.current_stream()):
            pool = torch.cuda.graph_pool_handle()
            try:
                with _own_workspaces():
                    return self._captured(call, inputs, pool)
            except Exception:
                self._settle(pool)
                raise

    def _captured(self, call: Compiled, inputs: Sequence[Tensor], pool: Any) -> Launches:
        graph = torch.cuda.CUDAGraph()
        # Other threads may go on allocating memory meanwhile.
        with torch.cuda.graph(graph, pool=pool, stream=torch.cuda.Stream(), capture_error_mode="thread_local"):
            before = torch.cuda.memory_reserved()
            outputs = call(*inputs)
            pool_bytes = torch.cuda.memory_reserved() - before
        return Launches(graph, outputs, pool_bytes)

    def _settle(self, pool: Any) -> None:
        """Undo what torch leaves behind if the end of a capture fails.

        The allocator takes the capture for one that goes on, and defers what it would free; the generator refuses to
        draw until the next capture ends well.
        """
        with contextlib.suppress(RuntimeError):  # The end has come as far as that.
            torch._C._cuda_endAllocateToPool(self._index, pool)
        torch.cuda.synchronize()
        with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=torch.cuda.Stream(), capture_error_mode="thread_local"):
            torch.zeros(1, device=self._device)

    def are_at(self, inputs: list[Tensor | int], addresses: list[int | None], places: list[int]) -> bool:
        """As :meth:`Device.are_at`; in one call, for models with hundreds of parameters."""
        return torch._C._tensors_data_ptrs_at_indices_equal(inputs, addresses, places)

    def busy_recording(self) -> bool:
        """As :meth:`Device.busy_recording`."""
        return torch.cuda.is_current_stream_capturing()

    def follow(self) -> None:
        """As :meth:`Device.follow`."""
        raw = torch._C._cuda_getCurrentRawStream(self._index)
        if raw == self._raw_stream:
            return
        current = torch.cuda.current_stream(self._device)
        if self._stream is not None:
            current.wait_stream(self._stream)
        self._stream, self._raw_stream = current, raw

    def synchronise(self) -> None:
        """As :meth:`Device.synchronise`."""
        torch.cuda.synchronize(self._device)

    def same_random_numbers(self) -> contextlib.AbstractContextManager[None]:
        """As :meth:`Device.same_random_numbers`."""
        return torch.random.fork_rng(devices=[self._index])


@contextlib.contextmanager
def _own_workspaces() -> Iterator[None]:
    """Have cuBLAS allocate workspaces in the graph's pool, which lives as long as the graph."""
    torch._C._cuda_clearCublasWorkspaces()
    try:
        yield
    finally:
        torch._C._cuda_clearCublasWorkspaces()
