"""CUDA graphs as the clock uses them: captured from calls, with what their nodes cost."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from opsmith.core.timing import GraphCosts
from opsmith.devices import kind_of

#: Calls of an empty kernel in the larger graph that measures a node, and replays of each.
EMPTY_NODES = 256
EMPTY_REPLAYS = 9
#: Cycles that the gate waits at least, about 0.1 ms, and at most, about 30 ms; for calls that are queued one by one at
#: first about 0.4 ms.
GATE_CYCLES = 200_000
QUEUED_GATE_CYCLES = 800_000
MAX_GATE_CYCLES = 64_000_000
#: Of a steady gate at first: nine graphs of a block are queued in that time.
STEADY_GATE_CYCLES = 1_600_000
#: So many times what queueing took the last time is what the gate waits the next time, at so many cycles a second.
GATE_SPARE = 2.0
CYCLES_A_SECOND = 2e9
#: To ask an idle device whether it is done takes less, microseconds; more than that goes on after the last event.
LATE_US = 100.0


class CapturedCalls:
    """Calls that were captured, and what they returned.

    Attributes:
        results: one per call; each replay writes them again.
        nodes: kernels, copies and fills in the graph.
    """

    def __init__(self, graph: torch.cuda.CUDAGraph, results: list[Any], nodes: int) -> None:
        self._graph = graph
        self.results = results
        self.nodes = nodes

    def replay(self, times: int = 1) -> None:
        """Run the calls, so often, one after another."""
        for _ in range(times):
            self._graph.replay()


def capture(calls: Sequence[Callable[[], Any]]) -> CapturedCalls | None:
    """Capture some calls, run them once, and wait; None if they cannot be captured.

    The stream that captures is one that the legacy default stream waits for. A launch there would
    otherwise run at once and be missing in the graph; like this it makes the capture fail.

    Unlike ``torch.cuda.graph`` this gives no cached memory back to the device before, which takes longer
    than most graphs run.
    """
    device = torch.cuda.current_device()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    pool, _ = _kept_pool(device)
    torch.cuda.synchronize()
    try:
        results = _record(graph, pool, calls)
        graph.instantiate()
    except RuntimeError:  # A call that synchronizes, or uses another stream.
        torch.cuda.synchronize()  # Raises if it is the device that is lost, not the capture.
        _call("GetLastError")  # Torch would take what is left there for an error of its next launch.
        end_failed_capture(pool)
        _kept_pool.cache_clear()  # Torch takes it for one that is still being captured to.
        return None
    captured = CapturedCalls(graph, results, _count_nodes(graph))
    captured.replay()
    torch.cuda.synchronize()
    return captured


@contextlib.contextmanager
def _nothing_collected() -> Iterator[None]:
    """What a collection destroys may be CUDA's, which ends a capture."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@torch.no_grad()
@_nothing_collected()
def _record(graph: torch.cuda.CUDAGraph, pool: Any, calls: Sequence[Callable[[], Any]]) -> list[Any]:
    with torch.cuda.stream(_blocking_stream(torch.cuda.current_device())):
        graph.capture_begin(pool=pool)
        try:
            return [call() for call in calls]
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # A graph may be empty: that of a view, for example.
                graph.capture_end()


@cache
def _kept_pool(device: int) -> tuple[Any, torch.cuda.CUDAGraph]:
    """The memory that all graphs of this process share, one after another.

    A graph that is never run keeps it alive: a pool without a graph is given back, and the next graph would
    have to ask the device for all of it again.
    """
    pool, graph = torch.cuda.graph_pool_handle(), torch.cuda.CUDAGraph(keep_graph=True)
    byte = torch.empty(1, dtype=torch.uint8, device=device)
    _record(graph, pool, [byte.zero_])
    return pool, graph


def give_memory_back(device: torch.device, most_bytes: int) -> None:
    """Give the device what nothing uses if torch keeps more than so much: other processes work on it, too.

    The memory of graphs that are gone is part of it.

    Args:
        device: of any type; only CUDA's memory is kept.
        most_bytes: what may be kept.
    """
    if device.type == "cuda" and torch.cuda.memory_reserved(device) > most_bytes:
        _kept_pool.cache_clear()
        torch.cuda.empty_cache()


def end_failed_capture(pool: Any) -> None:
    """Undo what a capture leaves behind where CUDA refuses to end it.

    Args:
        pool: the handle of its memory.
    """
    device = torch.cuda.current_device()
    # The generator believes that the capture goes on, and would refuse to draw outside of it.
    generator = torch.cuda.default_generators[device]
    generator.graphsafe_set_state(generator.clone_state())
    with contextlib.suppress(RuntimeError):  # The allocator's part has ended already.
        torch._C._cuda_endAllocateToPool(device, pool)
        torch._C._cuda_releasePool(device, pool)


@cache
def _blocking_stream(device: int) -> torch.cuda.Stream:
    handle = ctypes.c_void_p()
    _check("StreamCreate", ctypes.byref(handle))
    return torch.cuda.ExternalStream(handle.value, device=device)


@cache
def _runtime() -> ctypes.CDLL:
    """The runtime of CUDA or HIP that torch has loaded."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return ctypes.CDLL(next(line.split()[-1] for line in maps if kind_of("cuda").runtime[0] in line))


def _full_name(function: str) -> str:
    """``cudaStreamCreate`` of ``StreamCreate``, or ``hipStreamCreate``."""
    return f"{kind_of('cuda').runtime[1]}{function}"


def _call(function: str, *args: Any) -> int:
    """Call the runtime, by a function's name without what all begin with; returns its error, 0 for none."""
    error: int = getattr(_runtime(), _full_name(function))(*args)
    return error


_COUNTED_NODES = frozenset({0, 1, 2})  # cudaGraphNodeTypeKernel, -Memcpy and -Memset.


def _count_nodes(graph: torch.cuda.CUDAGraph) -> int:
    handle, count = ctypes.c_void_p(graph.raw_cuda_graph()), ctypes.c_size_t()
    _check("GraphGetNodes", handle, None, ctypes.byref(count))
    if not count.value:
        return 0  # A view, for example. Asking an empty graph for its nodes is an error.
    nodes = (ctypes.c_void_p * count.value)()
    _check("GraphGetNodes", handle, nodes, ctypes.byref(count))
    kind, counted = ctypes.c_int(), 0
    for node in nodes:
        _check("GraphNodeGetType", ctypes.c_void_p(node), ctypes.byref(kind))
        counted += kind.value in _COUNTED_NODES
    return counted


def _check(function: str, *args: Any) -> None:
    """Call the runtime, by a function's name without what all begin with.

    Raises:
        RuntimeError: it returned an error, which torch would otherwise take for one of its next launch.
    """
    error = _call(function, *args)
    if error:
        _call("GetLastError")
        raise RuntimeError(f"{_full_name(function)} failed with error {error}")


class _PointerAttributes(ctypes.Structure):
    """``cudaPointerAttributes``."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("device", ctypes.c_int),
        ("device_pointer", ctypes.c_void_p),
        ("host_pointer", ctypes.c_void_p),
        ("reserved", ctypes.c_long * 8),  # From CUDA 13 on.
    )


#: ``cudaMemoryType``, but for the device's.
_FOREIGN_KINDS = {0: "memory that CUDA does not know", 1: "memory of the host", 3: "managed memory"}


def memory_kind(address: int) -> str | None:
    """What memory a result on a device lies in; None where it is the device's own."""
    attributes = _PointerAttributes()
    _check("PointerGetAttributes", ctypes.byref(attributes), ctypes.c_void_p(address))
    return _FOREIGN_KINDS.get(attributes.type)


class Gate:
    """Times what is queued behind a kernel that waits until all of it is there.

    The host's pace does not count then: what stands between the two events is the device's time alone.

    Args:
        cycles: that it waits the first time; later it follows how long queueing took.
    """

    def __init__(self, cycles: int = GATE_CYCLES) -> None:
        self._cycles = cycles
        self._steady_cycles = STEADY_GATE_CYCLES

    def time_us(
        self, queue: Callable[[], None], *, before: Callable[[], None] | None = None, steady: bool = False
    ) -> float | None:
        """Microseconds on the device of everything that ``queue`` queues; waits for it.

        What goes on elsewhere than on the current stream when that is done is added.

        It is queued again, behind a longer wait, if the gate let go too soon. None where no wait is long
        enough: what is queued waits for the device itself, and so for the gate.

        Args:
            queue: queues it.
            before: run ahead of each wait: what calls in place have made of their inputs, they must not meet again.
            steady: wait for as long as in the last such call, however long queueing takes: what another clock
                makes of two calls differs then by what they queue alone.
        """
        cycles = self._steady_cycles if steady else self._cycles
        while cycles <= MAX_GATE_CYCLES:
            if before is not None:
                before()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            began = time.perf_counter()
            torch.cuda._sleep(cycles)
            start.record()
            queue()
            end.record()
            in_time = not start.query()
            queueing_s = time.perf_counter() - began
            end.synchronize()
            late_us = _late_us()
            if in_time:
                if steady:
                    self._steady_cycles = cycles
                else:
                    self._cycles = gate_cycles(queueing_s)
                return float(start.elapsed_time(end)) * 1e3 + (late_us if late_us > LATE_US else 0.0)
            cycles *= 4
        return None


def _late_us() -> float:
    """Microseconds that the device goes on for when an event has passed: other streams, for which it does not wait."""
    began = time.perf_counter()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) * 1e6


def gate_cycles(queueing_s: float) -> int:
    """How long to wait for what took so many seconds to queue: one slow launch makes no later wait longer."""
    return min(max(GATE_CYCLES, math.ceil(GATE_SPARE * queueing_s * CYCLES_A_SECOND)), MAX_GATE_CYCLES)


def empty_nodes(device: torch.device, count: int) -> CapturedCalls:
    """A CUDA graph of so many kernels that do nothing."""
    import triton  # Slow to import; only a run on CUDA that times needs it.

    @triton.jit
    def empty(_anything):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202 - Triton reads annotations
        pass

    anything = torch.zeros(1, device=device)
    empty[(1,)](anything)
    captured = capture([lambda: empty[(1,)](anything)] * count)
    assert captured is not None
    return captured


def graph_costs(device: torch.device) -> GraphCosts:
    """Measure them, by a graph of one empty kernel and one of many."""
    one_us, many_us = (_replay_us(empty_nodes(device, count)) for count in (1, EMPTY_NODES))
    node_us = (many_us - one_us) / (EMPTY_NODES - 1)
    return GraphCosts(node_us, max(one_us - node_us, 0.0))


def _replay_us(graph: CapturedCalls) -> float:
    gate = Gate()
    times = [gate.time_us(graph.replay) for _ in range(EMPTY_REPLAYS)]
    return statistics.median([time_us for time_us in times if time_us is not None])
