"""Timed calls of a whole model, and the memory that one takes."""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch

from opsmith.evaluation.timing.cuda_graphs import Gate


class ModelClock:
    """Runs blocks of calls on request: E is for somebody else's clock, K for the device's own.

    Weights and inputs are the same in every call, and what the call before has left in the device's cache is there:
    a whole model moves more than a cache holds.

    Args:
        call: one call, forward and backward.
        device: where it runs.
    """

    def __init__(self, call: Callable[[], None], device: torch.device) -> None:
        self._call, self._device = call, device
        self._gate = Gate()

    def host_block(self, calls: int) -> None:
        """Run so many calls and wait for the device."""
        gc.disable()  # A collection is not the call's doing.
        try:
            self._run(calls)
            self._synchronize()
        finally:
            gc.enable()

    def device_block_us(self, calls: int) -> float | None:
        """Microseconds of so many calls on the device, launches not counted.

        None off CUDA, where the call waits for the device, and where its launches fill the device's queue before the
        last one is made: the time of such a call cannot be told from the host's.
        """
        if self._device.type != "cuda":
            return None
        self._synchronize()
        return self._gate.time_us(lambda: self._run(calls))

    def peak_bytes(self) -> int | None:
        """Device memory that torch's allocator holds at most during a call, weights included; None off CUDA.

        It is what is reserved, not what is in use: the memory of a captured CUDA graph is no longer in use by the
        allocator's books when the graph is replayed.
        """
        if self._device.type != "cuda":
            return None
        self._synchronize()
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)
        self._call()
        self._synchronize()
        return torch.cuda.max_memory_reserved(self._device)

    def _run(self, calls: int) -> None:
        for _ in range(calls):
            self._call()

    def _synchronize(self) -> None:
        if self._device.type != "cpu":
            torch.accelerator.synchronize()
