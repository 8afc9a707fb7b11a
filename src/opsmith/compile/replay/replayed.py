"""A compiled callable whose launches are recorded at its third call, and repeated if that is faster.

One call of a compiled model costs the host tens of microseconds and some for each kernel that it launches. A CUDA graph
launches all kernels at once. What it reads and writes has fixed addresses, so around it inputs are copied in, unless
they stay where they were, and results are copied out: every call returns tensors of its own.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from opsmith.compile.replay.cuda import Compiled, Device, Launches
from opsmith.compile.report import GraphReport, add_graph

_log = logging.getLogger("opsmith")

#: The call after which launches are recorded. The first one tunes and loads kernels; the second one and this one tell
#: which inputs stay where they are.
RECORDED_AT = 3
#: Recordings of one callable, with those because an input moved. Each takes tens of milliseconds.
MOST_RECORDINGS = 8
#: An input that left its recorded address this often is copied from then on.
COPIED_AFTER = 2
#: A recording is kept if a call takes at most this part of the time: it also keeps memory.
WORTH_IT = 0.95
#: Where the host is done with enqueuing in less than this part of the time, the device is what takes time.
HOST_BOUND = 0.9
#: A round of timing lasts this long or this many calls, whatever is reached first, but at least two calls.
ROUND_S, ROUND_CALLS, ROUNDS = 2e-3, 20, 3


@dataclass(frozen=True)
class Recording:
    """Launches, and how calls reach what they read and write.

    Attributes:
        launches: of the call.
        addresses: of all inputs.
        fixed: positions of inputs that are read where they are.
        copied: positions of the others.
        buffers: where those are copied to.
    """

    launches: Launches
    addresses: list[int | None]
    fixed: list[int]
    copied: list[int]
    buffers: list[Tensor]

    def replay(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Repeat the launches and return copies of what they wrote."""
        if self.copied:
            torch._foreach_copy_(self.buffers, [inputs[place] for place in self.copied])
        self.launches.graph.replay()
        return tuple(one.clone() for one in self.launches.outputs)


class Replayed:
    """Calls a compiled graph, or repeats what one call of it launched.

    The graph must write to no input and return tensors that share memory with nothing:
    :func:`~opsmith.compile.replay.repeatable.why_not_repeatable`. Whatever cannot be recorded runs as before, and so
    do calls while another thread is in one, and calls that somebody else records.

    Args:
        compiled: called with one tensor for each input of the graph.
        device: that it runs on.
        always: keep a recording without measuring whether it is faster.
        clock: seconds.
    """

    def __init__(
        self,
        compiled: Compiled,
        device: Device,
        *,
        always: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._compiled = compiled
        self._device = device
        self._always = always
        self._clock = clock
        self._lock = threading.Lock()
        self._recording: Recording | None = None
        self._given_up = False
        self._calls = 0
        self._recordings = 0
        self._addresses: list[int] = []
        self._moves: Counter[int] = Counter()

    def __call__(self, *inputs: Tensor) -> Sequence[Tensor]:
        if self._given_up or not self._lock.acquire(blocking=False):
            return self._compiled(*inputs)
        try:
            return self._called(inputs)
        finally:
            self._lock.release()

    def _called(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        if self._device.busy_recording():
            return self._compiled(*inputs)
        if self._recording is not None:
            if self._fits(self._recording, inputs):
                self._device.follow()
                return self._recording.replay(inputs)
            self._forget(self._recording, inputs)
        return self._watched(inputs)

    def _fits(self, recording: Recording, inputs: Sequence[Tensor]) -> bool:
        """Whether inputs are where the graph reads them."""
        return self._device.are_at(list(inputs), recording.addresses, recording.fixed)

    def _forget(self, recording: Recording, inputs: Sequence[Tensor]) -> None:
        """Begin anew: an input that the graph reads in place is elsewhere."""
        self._moves.update(place for place in recording.fixed if inputs[place].data_ptr() != recording.addresses[place])
        self._device.synchronise()  # The memory may be in use.
        self._recording, self._calls = None, 1

    def _watched(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """A call as before, and a recording if it is time for one."""
        outputs = self._compiled(*inputs)
        self._calls += 1
        addresses = [one.data_ptr() for one in inputs]
        if self._calls >= RECORDED_AT:
            self._decide(inputs, addresses, outputs)
        self._addresses = addresses
        return outputs

    def _decide(self, inputs: Sequence[Tensor], addresses: list[int], outputs: Sequence[Tensor]) -> None:
        """Record the call, time it, and keep what is faster. Calls do nothing but return results, so more are free."""
        try:
            with self._device.same_random_numbers():
                report = self._tried(inputs, addresses, outputs)
        except Exception as exc:  # noqa: BLE001 - libraries and compiled code may raise anything while recorded
            report = GraphReport(reason=f"{type(exc).__name__}: {' '.join(str(exc).split())}")
        if report.reason is not None:
            self._recording, self._given_up = None, True
        add_graph(report)
        _log.debug("a compiled graph %s", report.line())

    def _tried(self, inputs: Sequence[Tensor], addresses: list[int], outputs: Sequence[Tensor]) -> GraphReport:
        if self._recordings == MOST_RECORDINGS:
            return GraphReport(reason=f"its inputs moved after each of {MOST_RECORDINGS} recordings")
        if (reason := _why_no_copies(inputs, outputs)) is not None:
            return GraphReport(reason=reason)
        if not self._always:
            enqueued_s, before_s = self._time(self._compiled, inputs, self._repeats(inputs))
            if enqueued_s < HOST_BOUND * before_s:
                return GraphReport(reason="the device takes longer than the host", before_us=before_s * 1e6)
        self._recordings += 1
        recording = self._recorded(inputs, addresses)
        report = GraphReport(pool_bytes=recording.launches.pool_bytes, copied=len(recording.copied))
        if not self._always:
            before_s, after_s = self._compared(recording, inputs)
            slower = None if after_s <= WORTH_IT * before_s else "repeating it is not faster"
            report = GraphReport(
                reason=slower,
                before_us=before_s * 1e6,
                after_us=after_s * 1e6,
                pool_bytes=report.pool_bytes,
                copied=report.copied,
            )
        self._recording = recording
        return report

    def _recorded(self, inputs: Sequence[Tensor], addresses: list[int]) -> Recording:
        before = self._addresses
        fixed = [
            place
            for place, address in enumerate(addresses)
            if address == before[place] and self._moves[place] < COPIED_AFTER
        ]
        copied = sorted(set(range(len(inputs))).difference(fixed))
        with torch.inference_mode(False):  # Later calls may write to buffers outside of it.
            buffers = [
                torch.empty_strided(one.shape, one.stride(), dtype=one.dtype, device=one.device)
                for one in (inputs[place] for place in copied)
            ]
        if copied:
            torch._foreach_copy_(buffers, [inputs[place] for place in copied])
        given = list(inputs)
        for place, buffer in zip(copied, buffers, strict=True):
            given[place] = buffer
        launches = self._device.record(self._compiled, given)
        if (reason := _why_no_copies(given, launches.outputs)) is not None:
            raise RuntimeError(reason)
        return Recording(launches, list(addresses), fixed, copied, buffers)

    def _repeats(self, inputs: Sequence[Tensor]) -> int:
        _, one_s = self._time(self._compiled, inputs, 1)
        return max(2, min(ROUND_CALLS, math.ceil(ROUND_S / max(one_s, 1e-6))))

    def _compared(self, recording: Recording, inputs: Sequence[Tensor]) -> tuple[float, float]:
        """Seconds of a call as before and as a repetition: the best of rounds that take turns."""

        def repeated(*given: Tensor) -> Any:
            self._fits(recording, given)
            self._device.follow()
            return recording.replay(given)

        self._time(repeated, inputs, 1)
        repeats = self._repeats(inputs)
        rounds = [[self._time(call, inputs, repeats)[1] for call in (self._compiled, repeated)] for _ in range(ROUNDS)]
        before, after = zip(*rounds, strict=True)
        return min(before), min(after)

    def _time(self, call: Compiled, inputs: Sequence[Tensor], repeats: int) -> tuple[float, float]:
        """Seconds of one of several calls: until the host had enqueued them, and until the device was done."""
        self._device.synchronise()
        started = self._clock()
        for _ in range(repeats):
            call(*inputs)
        enqueued = self._clock()
        self._device.synchronise()
        return (enqueued - started) / repeats, (self._clock() - started) / repeats


def _why_no_copies(inputs: Sequence[Tensor], outputs: Sequence[Any]) -> str | None:
    """Why results cannot be copied out, where that is seen on results only."""
    if any(type(one) is not Tensor or one.layout != torch.strided for one in outputs):
        return "a result is no plain tensor"
    if any(one.requires_grad for one in outputs):
        return "a result needs a gradient"
    if any(torch.empty_like(one, device="meta").stride() != one.stride() for one in outputs):
        return "a result has gaps or overlaps"
    owners = [one.untyped_storage().data_ptr() for one in outputs if one.numel()]
    if len(set(owners)) < len(owners) or not {one.untyped_storage().data_ptr() for one in inputs}.isdisjoint(owners):
        return "results share memory"
    return None
