"""Timing one side of a pair, and what a series of paired blocks says.

Two quantities, never mixed: **E** is the host's time for one call as a caller pays for it, launch
included; **K** is the time on the device alone, from one replay of a CUDA graph that holds all the
calls of a block. Reference and candidate sit in different processes; the judge asks each for a
block in turn, in random order, while the other one is idle.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from opsmith.core.case import CallRecord
from opsmith.core.verdict import Timing
from opsmith.evaluation.inputs import LiveCall, rebuild
from opsmith.suites.recording import storage_bytes

#: Distinct copies of the inputs that the calls of a block rotate over.
INPUT_COPIES = 8
#: Copies are limited to this, so that a large case does not fill the device.
MAX_COPIES_BYTES = 2 << 30
#: Coverage of the interval on a speedup.
CONFIDENCE = 0.99
BOOTSTRAP_SAMPLES = 2_000


class TimedCall:
    """A callable with prepared inputs, ready to be run in timed blocks.

    Args:
        function: the kernel or the ATen overload.
        record: the serialized call.
        device: where it runs.
    """

    def __init__(self, function: Callable[..., Any], record: CallRecord, device: torch.device) -> None:
        self._function = function
        self._record = record
        self._device = device
        size = max(1, sum(map(len, record.storages)))
        copies = max(1, min(INPUT_COPIES, MAX_COPIES_BYTES // size))
        self._inputs = [rebuild(record, device) for _ in range(copies)]
        self._graphs: dict[int, torch.cuda.CUDAGraph | None] = {}
        self._mutates = self._changes_inputs()

    def block(self, calls: int) -> tuple[float, float | None]:
        """Run one block of ``calls`` calls.

        Returns:
            microseconds a call: (E, K); K is None on the CPU and where the call cannot be captured.
        """
        if self._mutates:
            self._inputs = [rebuild(self._record, self._device) for _ in self._inputs]
            self._graphs.clear()
        host_us = self._host_block(calls)
        return host_us, self._device_block(calls) if self._device.type == "cuda" else None

    def _changes_inputs(self) -> bool:
        self._call(self._inputs[0])
        self._synchronize()
        before = self._record.storages
        after = [storage_bytes(storage) for storage in self._inputs[0].storages]
        return list(before) != after

    @torch.no_grad()
    def _call(self, live: LiveCall) -> None:
        self._function(*live.args, **live.kwargs)

    @torch.no_grad()
    def _host_block(self, calls: int) -> float:
        function, inputs = self._function, self._inputs
        self._synchronize()
        start = time.perf_counter()
        for number in range(calls):
            live = inputs[number % len(inputs)]
            function(*live.args, **live.kwargs)
        self._synchronize()
        return (time.perf_counter() - start) / calls * 1e6

    def _device_block(self, calls: int) -> float | None:
        graph = self._graph(calls)
        if graph is None:
            return None
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / calls * 1e3

    def _graph(self, calls: int) -> torch.cuda.CUDAGraph | None:
        if calls not in self._graphs:
            self._graphs[calls] = self._capture(calls)
        return self._graphs[calls]

    @torch.no_grad()
    def _capture(self, calls: int) -> torch.cuda.CUDAGraph | None:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                for number in range(calls):
                    self._call(self._inputs[number % len(self._inputs)])
        except RuntimeError:  # A call that synchronizes or allocates on the host has no K.
            return None
        return graph

    def _synchronize(self) -> None:
        if self._device.type != "cpu":
            torch.accelerator.synchronize()


def paired_timing(
    reference_us: Sequence[float], candidate_us: Sequence[float], *, calls_per_block: int, quantity: str, seed: int
) -> Timing:
    """Summarise paired blocks: the median of the per-block log ratios and a bootstrap interval.

    Args:
        reference_us: microseconds a call of the reference, one per block.
        candidate_us: the same for the candidate, block by block in the same order.
        calls_per_block: calls between two clock reads.
        quantity: ``K`` or ``E``.
        seed: of the bootstrap's resampling.
    """
    log_ratios = np.log(np.asarray(reference_us)) - np.log(np.asarray(candidate_us))
    generator = np.random.default_rng(seed)
    resampled = generator.choice(log_ratios, size=(BOOTSTRAP_SAMPLES, len(log_ratios)))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.median(resampled, axis=1), [tail, 1 - tail])
    return Timing(
        reference_us=float(np.median(reference_us)),
        candidate_us=float(np.median(candidate_us)),
        speedup=float(np.exp(np.median(log_ratios))),
        low=float(np.exp(low)),
        high=float(np.exp(high)),
        confidence=CONFIDENCE,
        blocks=len(log_ratios),
        calls_per_block=calls_per_block,
        quantity=quantity,
    )
