"""One side of a timed pair: a callable with its inputs, run in blocks on request.

Two quantities, never mixed: **E** is the host's time for one call as a caller pays for it, launch
included; **K** is the time on the device alone. Reference and candidate sit in different processes;
the judge asks each for a block in turn, in random order, while the other one is idle. Every call of a
block has a set of inputs of its own, written before the block begins (:mod:`.timed_inputs`).

K comes from one replay of a CUDA graph that holds all calls of the block. Where the calls cannot be
captured, they are queued one by one. In both cases a kernel that waits is queued first, so that
neither launching the graph nor the host's pace counts (:mod:`.cuda_graphs`).
"""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch

from opsmith.calls.live import LiveCall
from opsmith.calls.observer import Observed, Observer
from opsmith.devices import kind_of
from opsmith.evaluation.timing.cuda_graphs import QUEUED_GATE_CYCLES, CapturedCalls, Gate, capture, memory_kind
from opsmith.evaluation.timing.inputs import TimedInputs
from opsmith.evaluation.timing.result_memory import ResultMemory

#: glibc's names for what mallopt sets, and the largest threshold that it takes.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_THRESHOLD_BYTES = 32 << 20


class TimedCall:
    """A callable with prepared inputs, ready to be run in timed blocks.

    Attributes:
        first_call_s: seconds of the first call, compiling and tuning included.
        peak_bytes: what a call takes of the device's memory at most when it was made before; None where torch does not
            count it.

    Args:
        function: the kernel or the ATen overload.
        inputs: as many sets as a block has calls at most.
        device: where it runs.
        warm: leave in the device's cache what writing the inputs has put there.
        on_device: what K is measured of, if not of ``function``.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: TimedInputs,
        device: torch.device,
        *,
        warm: bool = False,
        on_device: Callable[..., Any] | None = None,
    ) -> None:
        self._function = function
        self._on_device = on_device or function
        self.inputs = inputs
        self._device = device
        self._round = 0
        self._results: list[Any] = []
        self._memory = ResultMemory(inputs.record.op)
        self._captured: tuple[tuple[int, int], CapturedCalls | None] | None = None
        # Queueing calls takes many times as long as launching a graph of them.
        self._graph_gate, self._queue_gate = Gate(), Gate(QUEUED_GATE_CYCLES)
        kind = kind_of(device.type)
        _keep_freed_memory()
        self._flushed = _flushed_memory(device) if kind.flush_bytes and not warm else None
        start = time.perf_counter()
        self._call_once()
        self.first_call_s = time.perf_counter() - start
        self.peak_bytes = self._peak_bytes() if kind.counts_memory else None

    @torch.no_grad()
    def _call_once(self) -> None:
        live = self.inputs.lives[0]
        self._function(*live.args, **live.kwargs)
        self._synchronize()

    def try_sets(self) -> None:
        """Run the call on all sets that there are.

        Raises:
            Exception: what the call raises.
        """
        self._run_calls(self._function, self.inputs.lives)
        self._results = []
        self._synchronize()

    def _peak_bytes(self) -> int:
        self._call_once()  # At its second call a kernel is recorded for a launch plan, which takes memory of its own.
        before = _allocated_bytes(self._device)["current"]
        torch.get_device_module(self._device).reset_peak_memory_stats(self._device)
        self._call_once()
        return _allocated_bytes(self._device)["peak"] - before

    def renew(self, round_number: int, calls: int) -> None:
        """Get ready for a block: fresh values in every set of inputs, nothing in the cache, nothing kept."""
        self._queue_fresh_values(round_number, calls)
        self._synchronize()

    def queue_renewal(self, round_number: int, calls: int) -> None:
        """Fresh values in every set of inputs, and nothing kept; :meth:`renew` of another call waits for it, too."""
        self._memory.compare(self._results)
        self._results = []
        self._round = round_number
        self.inputs.renew(round_number, calls)

    def _queue_fresh_values(self, round_number: int, calls: int) -> None:
        self.queue_renewal(round_number, calls)
        if self._flushed is not None:
            self._flushed.zero_()

    def warm_up(self, sets: int, calls: int) -> None:
        """Have in the processor's caches what a block of calls on the first of so many sets needs.

        A process that was not asked for a while has lost its code to the other one. Run so many calls, on the last of
        these sets, and touch the arguments of all of them: a program has just made what it calls an op with.
        """
        for tensor in self.inputs.tensors(sets):
            tensor.data_ptr()
        if calls:
            self._run_calls(self._function, self.inputs.lives[sets - calls : sets])
            self._results = []
            self._synchronize()

    def host_block(self, calls: int) -> None:
        """Run so many calls, each on a set of inputs of its own, and wait: for somebody else's clock.

        Every page that they have written on the host is read, so that none of it is written later.
        """
        gc.disable()  # A collection takes longer the more the process holds, which is not the call's doing.
        try:
            lives = self.inputs.lives[:calls]
            self._run_calls(self._function, lives)
            self._synchronize()
            self._memory.read(self._results, lives)
        finally:
            gc.enable()

    @torch.no_grad()
    def _run_calls(self, function: Callable[..., Any], lives: Sequence[LiveCall]) -> None:
        results = self._results
        for live in lives:
            results.append(function(*live.args, **live.kwargs))

    def device_block(
        self,
        calls: int,
        *,
        round_number: int | None = None,
        replays: int = 1,
        steady: bool = False,
        captured: bool = True,
    ) -> tuple[float | None, float | None]:
        """K of so many calls, in microseconds a call, and the graph's nodes that a call takes.

        Args:
            calls: each on a set of inputs of its own.
            round_number: write this round's values first; None leaves what is there.
            replays: run the same calls so often, one after another.
            steady: see :meth:`.cuda_graphs.Gate.time_us`.
            captured: as a CUDA graph, if they can be.

        Returns:
            the time, None where it cannot be told from the host's, because a call waits for the device;
            and the nodes, None where no graph was captured.
        """
        self.inputs.make(calls)
        graph = self.captured(calls) if captured else None
        before = None if round_number is None else partial(self._queue_fresh_values, round_number, calls)
        if graph is None:
            time_us = self._queue_gate.time_us(lambda: self._queue_calls(calls, replays), before=before, steady=steady)
        else:
            time_us = self._graph_gate.time_us(lambda: graph.replay(replays), before=before, steady=steady)
            self._results = graph.results
        nodes = None if graph is None else graph.nodes / calls
        return None if time_us is None else time_us / (calls * replays), nodes

    def _queue_calls(self, calls: int, times: int) -> None:
        for _ in range(times):
            self._results = []
            self._run_calls(self._on_device, self.inputs.lives[:calls])

    def captured(self, calls: int) -> CapturedCalls | None:
        """The CUDA graph of so many calls, or None if they cannot be captured."""
        self.inputs.make(calls)
        key = calls, len(self.inputs.lives)  # Where more sets are made, all of them come to lie elsewhere.
        if self._captured is None or self._captured[0] != key:
            self._results = []
            self._captured = None  # It holds the results of its calls.
            bound = [partial(self._on_device, *live.args, **live.kwargs) for live in self.inputs.lives[:calls]]
            # Of 400 pairs of calls on an H100 five could not be captured, and in another run five others.
            self._captured = key, capture(bound) or capture(bound)
        return self._captured[1]

    def observe(self, slot: int, observer: Observer) -> Observed:
        """What the last block's call on one set of inputs returned and changed."""
        before = self.inputs.before(slot, self._round)
        return observer.describe(self._results[slot], self.inputs.lives[slot], before)

    def host_spans(self) -> list[tuple[int, int]]:
        """Where the last block's results and all arguments lie on the host; see :meth:`ResultMemory.spans`."""
        return self._memory.spans(self._results, self.inputs.tensors(len(self.inputs.lives)))

    def foreign_results(self) -> str | None:
        """What kind of memory the last block's results on a device lie in, if not the device's own."""
        tensors = self._memory.on_device(self._results, self.inputs.lives[: len(self._results)])
        kinds = [memory_kind(tensor.data_ptr()) for tensor in tensors if tensor.numel()]
        return next((kind for kind in kinds if kind is not None), None)

    def _synchronize(self) -> None:
        if self._device.type != "cpu":
            torch.accelerator.synchronize()


def _allocated_bytes(device: torch.device) -> dict[str, int]:
    """``current`` and ``peak`` of what torch's allocator has handed out.

    To ask torch for one of them by name takes longer than many calls: it flattens all of its figures first.
    """
    stats = torch.get_device_module(device).memory_stats_as_nested_dict(device)
    allocated: dict[str, int] = stats["allocated_bytes"]["all"]
    return allocated


@cache
def _flushed_memory(device: torch.device) -> torch.Tensor:
    """What all timed calls of this process write to, before their blocks: nothing is in the device's cache then."""
    return torch.empty(kind_of(device.type).flush_bytes, dtype=torch.uint8, device=device)


def _keep_freed_memory() -> None:
    """Let malloc hand freed memory out again instead of giving it back to the system.

    By default glibc maps large blocks anew for every call until one of that size was freed, so that a
    result costs its page faults in one process and nothing in another, as their past happens to be:
    a factor of four was seen between two that did the same.
    """
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_THRESHOLD_BYTES)
    libc.mallopt(_M_TRIM_THRESHOLD, 1 << 30)
