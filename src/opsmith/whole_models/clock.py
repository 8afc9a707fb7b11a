"""Timed calls of a whole model, and the memory that one takes."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

import torch

from opsmith.evaluation.timing.cuda_graphs import Gate
from opsmith.evaluation.timing.inputs import TimedInputs


class ModelClock:
    """Runs blocks of calls on request: E is for somebody else's clock, K for the device's own.

    The calls of a block have inputs of their own, as far as there are sets of them, written anew before each block.
    Weights are the same in every call, and what the call before has left in the device's cache is there: a whole
    model moves more than a cache holds.

    Args:
        call: one call on the inputs that it is given, forward and backward.
        inputs: sets of them.
        device: where it runs.
    """

    def __init__(self, call: Callable[[Sequence[Any]], None], inputs: TimedInputs, device: torch.device) -> None:
        self._call, self._inputs, self._device = call, inputs, device
        self._gate = Gate()

    def renew(self, key: int, calls: int) -> None:
        """Write fresh values into the inputs of so many calls."""
        self._inputs.renew(key, min(calls, self._inputs.count))
        self._synchronize()

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
        self._run(1)
        self._synchronize()
        return torch.cuda.max_memory_reserved(self._device)

    def _run(self, calls: int) -> None:
        lives = self._inputs.lives
        for number in range(calls):
            self._call(lives[number % len(lives)].args)

    def _synchronize(self) -> None:
        if self._device.type != "cpu":
            torch.accelerator.synchronize()
