"""One side of a timed pair: a callable with its inputs, run in blocks on request.

Two quantities, never mixed: **E** is the host's time for one call as a caller pays for it, launch
included; **K** is the time on the device alone. Reference and candidate sit in different processes;
the judge asks each for a block in turn, in random order, while the other one is idle. Every call of a
block has a set of inputs of its own, written before the block begins (:mod:`.timed_inputs`).

K comes from one replay of a CUDA graph that holds all calls of the block. Where the calls cannot be
captured, they are queued behind a kernel that waits until all of them are there, so that the host's
pace does not count; what stands between two events then is the device's time as well.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch

from opsmith.evaluation.outcome import Observed, Observer
from opsmith.evaluation.timed_inputs import TimedInputs

#: Written before each block, so that neither inputs nor results are in the device's cache: several
#: times an H200's 50 MB.
FLUSH_BYTES = 160 << 20
#: Cycles that the gate waits at first, about 0.5 ms, and at most, about 30 ms.
GATE_CYCLES = 1_000_000
MAX_GATE_CYCLES = 64_000_000


class TimedCall:
    """A callable with prepared inputs, ready to be run in timed blocks.

    Args:
        function: the kernel or the ATen overload.
        inputs: as many sets as a block has calls at most.
        device: where it runs.
    """

    def __init__(self, function: Callable[..., Any], inputs: TimedInputs, device: torch.device) -> None:
        self.function = function
        self.inputs = inputs
        self._device = device
        self._round = 0
        self._results: list[Any] = []
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, list[Any]] | None] = {}
        self._gate_cycles = GATE_CYCLES
        self._flushed = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=device) if device.type == "cuda" else None
        self._call_once()

    @torch.no_grad()
    def _call_once(self) -> None:
        live = self.inputs.lives[0]
        self.function(*live.args, **live.kwargs)
        self._synchronize()

    def renew(self, round_number: int) -> None:
        """Get ready for a block: fresh values in every set of inputs, nothing in the cache, nothing kept."""
        self._results = []
        self._round = round_number
        self.inputs.renew(round_number)
        if self._flushed is not None:
            self._flushed.zero_()
        self._synchronize()

    def block(self, calls: int, quantity: str, replays: int = 1) -> float | None:
        """Run ``calls`` calls, each on a set of inputs of its own.

        Args:
            quantity: ``E`` runs the calls and waits for them, for somebody else's clock; ``K`` runs
                them between two events of the device.
            replays: of K: how often the same calls run, one after another.

        Returns:
            K in microseconds a call; None for E.
        """
        if quantity == "K":
            return self._device_block(calls, replays)
        self._host_block(calls)
        return None

    @torch.no_grad()
    def _host_block(self, calls: int) -> None:
        function, results = self.function, self._results
        # A collection takes longer the more the process holds, which is not the call's doing.
        gc.disable()
        try:
            for live in self.inputs.lives[:calls]:
                results.append(function(*live.args, **live.kwargs))
            self._synchronize()
        finally:
            gc.enable()

    def _device_block(self, calls: int, replays: int) -> float:
        captured = self._graph(calls)
        if captured is None:
            return sum([self._gated_block(calls) for _ in range(replays)]) / replays
        graph, self._results = captured
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(replays):
            graph.replay()
        end.record()
        self._synchronize()
        return float(start.elapsed_time(end)) / (calls * replays) * 1e3

    def _graph(self, calls: int) -> tuple[torch.cuda.CUDAGraph, list[Any]] | None:
        if calls not in self._graphs:
            self._graphs.clear()  # Each holds the results of its calls.
            self._graphs[calls] = self._capture(calls)
        return self._graphs[calls]

    @torch.no_grad()
    def _capture(self, calls: int) -> tuple[torch.cuda.CUDAGraph, list[Any]] | None:
        graph = torch.cuda.CUDAGraph()
        results: list[Any] = []
        try:
            with torch.cuda.graph(graph):
                results += [self.function(*live.args, **live.kwargs) for live in self.inputs.lives[:calls]]
        except RuntimeError:  # A call that synchronizes, or uses another stream.
            return None
        graph.replay()
        self._synchronize()
        return graph, results

    def _gated_block(self, calls: int) -> float:
        """Queue the calls behind a waiting kernel; again with a longer wait if it let go too soon."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        while True:
            self._results = []
            torch.cuda._sleep(self._gate_cycles)
            start.record()
            with torch.no_grad():
                self._results += [self.function(*live.args, **live.kwargs) for live in self.inputs.lives[:calls]]
            end.record()
            in_time = not start.query()
            self._synchronize()
            if in_time or self._gate_cycles >= MAX_GATE_CYCLES:
                return float(start.elapsed_time(end)) / calls * 1e3
            self._gate_cycles *= 4  # A call that waits for the device itself is never in time.

    def is_captured(self, calls: int) -> bool:
        """Whether blocks of so many calls run as a CUDA graph; asked after such a block of K."""
        return self._graphs.get(calls) is not None

    def observe(self, slot: int, observer: Observer) -> Observed:
        """What the last block's call on one set of inputs returned and changed."""
        record = self.inputs.record_of(slot, self._round)
        return observer.describe(self._results[slot], self.inputs.lives[slot], record)

    def _synchronize(self) -> None:
        if self._device.type != "cpu":
            torch.accelerator.synchronize()
