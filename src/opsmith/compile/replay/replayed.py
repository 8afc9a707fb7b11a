"""A compiled callable whose launches are recorded at its third call, and repeated if that is faster.

One call of a compiled model costs the host tens of microseconds and some for each kernel that it launches. A CUDA graph
launches all kernels at once. What it reads and writes has fixed addresses, so around it inputs are copied in, unless
they stay where they were, and results are copied out: every call returns tensors of its own.

What a graph writes to, a cache or running statistics, must stay where it was. Such a graph is timed on the calls that
the model makes: each runs once, as compiled and as a repetition in turns.
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
from opsmith.compile.replay.results import Results
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
WORTH_IT = 0.97
#: Eager mode answers if it takes at most this part of the time.
EAGER_WORTH_IT = 0.98
#: Where the host is done with enqueuing in less than this part of the time, the device is what takes time. Above, even
#: a device that is never idle for long loses a microsecond between two kernels, which a recording saves: 4 % of a
#: ConvNeXt of 64 images on an H100, whose host is done in less than a fifth of the time.
HOST_BOUND = 0.05
#: Calls that are timed each way, of a graph that writes to its inputs.
TURNS = 4
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
        written: positions of inputs that the launches write to.
        results: how they are copied.
    """

    launches: Launches
    addresses: list[int | None]
    fixed: list[int]
    copied: list[int]
    buffers: list[Tensor]
    written: frozenset[int]
    results: Results

    def replay(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Repeat the launches and return copies of what they wrote."""
        if self.copied:
            torch._foreach_copy_(self.buffers, [inputs[place] for place in self.copied])
        self.launches.graph.replay()
        if self.written:
            changed = [one for one in map(inputs.__getitem__, self.written) if not one.is_inference()]
            torch.autograd.graph.increment_version(changed)
        return self.results.copied()


class Replayed:
    """Calls a compiled graph, or repeats what one call of it launched.

    The graph must return tensors that share no memory with its inputs:
    :func:`~opsmith.compile.replay.repeatable.repeatability`. Whatever cannot be recorded runs as before, and so
    do calls while another thread is in one, and calls that somebody else records.

    Args:
        compiled: called with one tensor for each input of the graph.
        device: that it runs on.
        eager: the graph as it was before it was compiled, which answers if it is faster.
        written: places of the inputs that the graph writes to.
        always: keep a recording without measuring whether it is faster.
        clock: seconds.
    """

    def __init__(
        self,
        compiled: Compiled,
        device: Device,
        *,
        eager: Compiled | None = None,
        written: frozenset[int] = frozenset(),
        always: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._compiled = compiled
        self._device = device
        self._eager = eager
        self._written = written
        self._always = always
        self._clock = clock
        self._lock = threading.Lock()
        self._recording: Recording | None = None
        self._turns: _Turns | None = None
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
                if self._turns is not None:
                    return self._timed(self._turns, self._recording, inputs)
                return self._repeated(self._recording, inputs)
            self._forget(self._recording, inputs)
        return self._watched(inputs)

    def _fits(self, recording: Recording, inputs: Sequence[Tensor]) -> bool:
        """Whether inputs are where the graph reads them."""
        return self._device.are_at(list(inputs), recording.addresses, recording.fixed)

    def _forget(self, recording: Recording, inputs: Sequence[Tensor]) -> None:
        """Begin anew: an input that the graph reads in place is elsewhere."""
        self._moves.update(place for place in recording.fixed if inputs[place].data_ptr() != recording.addresses[place])
        self._device.synchronise()  # The memory may be in use.
        self._recording, self._turns, self._calls = None, None, 1

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
        """Record the call, time it, and keep what is faster; or time the next calls, if each may run only once."""
        try:
            with self._device.same_random_numbers():
                report = self._tried(inputs, addresses, outputs)
        except Exception as exc:  # noqa: BLE001 - libraries and compiled code may raise anything while recorded
            report = GraphReport(reason=f"{type(exc).__name__}: {' '.join(str(exc).split())}")
        if self._turns is None or report.reason is not None:
            self._conclude(report)

    def _conclude(self, report: GraphReport) -> None:
        """Keep the recording, or give it up for the reason in the report."""
        self._turns = None
        if report.reason is not None:
            self._recording, self._given_up = None, True
        add_graph(report)
        _log.debug("a compiled graph %s", report.line())

    def _repeated(self, recording: Recording, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        self._device.follow()
        return recording.replay(inputs)

    def _timed(self, turns: _Turns, recording: Recording, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """A call that counts: it runs once, the way whose turn it is, and is timed."""
        self._device.synchronise()
        started = self._clock()
        outputs = self._repeated(recording, inputs) if turns.is_repetition else self._compiled(*inputs)
        self._device.synchronise()
        turns.add(self._clock() - started)
        if turns.done:
            self._conclude(_compared(*turns.best, recording))
        return outputs

    def _tried(self, inputs: Sequence[Tensor], addresses: list[int], outputs: Sequence[Tensor]) -> GraphReport:
        if self._recordings == MOST_RECORDINGS:
            return GraphReport(reason=f"its inputs moved after each of {MOST_RECORDINGS} recordings")
        if (reason := _why_no_copies(inputs, outputs)) is not None:
            return GraphReport(reason=reason)
        if (reason := _why_not_in_place(inputs, self._written)) is not None:
            return GraphReport(reason=reason)
        if not self._always and not self._written:
            enqueued_s, before_s = self._time(self._compiled, inputs, self._repeats(self._compiled, inputs))
            if enqueued_s < HOST_BOUND * before_s:
                return self._chosen(inputs, None)
        self._recordings += 1
        recording = self._recorded(inputs, addresses)
        if not self._written.issubset(recording.fixed):
            return GraphReport(reason="an input that it writes to moves")
        self._recording = recording
        if not self._always and not self._written:
            return self._chosen(inputs, recording)
        if not self._always:
            self._turns = _Turns()
        return GraphReport(pool_bytes=recording.launches.pool_bytes, copied=len(recording.copied))

    def _chosen(self, inputs: Sequence[Tensor], recording: Recording | None) -> GraphReport:
        """The fastest of the ways that there are: as compiled, in eager mode, as a repetition."""

        def repeated(*given: Tensor) -> Any:
            assert recording is not None
            self._fits(recording, given)
            return self._repeated(recording, given)

        ways = {"compiled": self._compiled}
        if self._eager is not None and self._runs_eagerly(inputs):
            ways["eager"] = self._eager
        if recording is not None:
            ways["repeated"] = repeated
        seconds = dict(zip(ways, self._in_turns(list(ways.values()), inputs), strict=True))
        eager_s = seconds.pop("eager", math.inf)
        if self._eager is not None and eager_s <= EAGER_WORTH_IT * min(seconds.values()):
            self._compiled = self._eager
            reason = f"eager mode is faster ({eager_s * 1e6:,.1f} us)"
            return GraphReport(reason=reason, before_us=seconds["compiled"] * 1e6)
        if recording is None:
            reason = "the device takes longer than the host"
            return GraphReport(reason=reason, before_us=seconds["compiled"] * 1e6)
        return _compared(seconds["compiled"], seconds["repeated"], recording)

    def _runs_eagerly(self, inputs: Sequence[Tensor]) -> bool:
        """Whether there is memory for what a compiled graph does not write."""
        assert self._eager is not None
        try:
            self._time(self._eager, inputs, 1)
        except Exception:  # noqa: BLE001 - of a device without memory, or of any op
            return False
        return True

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
        results = Results(launches.outputs)
        return Recording(launches, list(addresses), fixed, copied, buffers, self._written, results)

    def _repeats(self, call: Compiled, inputs: Sequence[Tensor]) -> int:
        _, one_s = self._time(call, inputs, 1)
        return max(2, min(ROUND_CALLS, math.ceil(ROUND_S / max(one_s, 1e-6))))

    def _in_turns(self, ways: Sequence[Compiled], inputs: Sequence[Tensor]) -> list[float]:
        """Seconds of a call of each way: the best of rounds that take turns."""
        for way in ways:
            self._time(way, inputs, 1)
        repeats = [self._repeats(way, inputs) for way in ways]
        rounds = [
            [self._time(way, inputs, calls)[1] for way, calls in zip(ways, repeats, strict=True)] for _ in range(ROUNDS)
        ]
        return [min(times) for times in zip(*rounds, strict=True)]

    def _time(self, call: Compiled, inputs: Sequence[Tensor], repeats: int) -> tuple[float, float]:
        """Seconds of one of several calls: until the host had enqueued them, and until the device was done."""
        self._device.synchronise()
        started = self._clock()
        for _ in range(repeats):
            call(*inputs)
        enqueued = self._clock()
        self._device.synchronise()
        return (enqueued - started) / repeats, (self._clock() - started) / repeats


class _Turns:
    """Times of calls that run once each, as compiled and as a repetition in turns."""

    def __init__(self) -> None:
        self._seconds: tuple[list[float], list[float]] = ([], [])

    @property
    def is_repetition(self) -> bool:
        """Whether the next call is one."""
        before, after = self._seconds
        return len(after) <= len(before)

    def add(self, seconds: float) -> None:
        """Take the time of the call whose turn it was."""
        self._seconds[self.is_repetition].append(seconds)

    @property
    def done(self) -> bool:
        """Whether each way has had enough calls."""
        return min(map(len, self._seconds)) >= TURNS

    @property
    def best(self) -> tuple[float, float]:
        """Seconds of a call as compiled and as a repetition, the best of each."""
        before, after = self._seconds
        return min(before), min(after)


def _compared(before_s: float, after_s: float, recording: Recording) -> GraphReport:
    """What becomes of a recording."""
    return GraphReport(
        reason=None if after_s <= WORTH_IT * before_s else "repeating it is not faster",
        before_us=before_s * 1e6,
        after_us=after_s * 1e6,
        pool_bytes=recording.launches.pool_bytes,
        copied=len(recording.copied),
    )


def _why_not_in_place(inputs: Sequence[Tensor], written: frozenset[int]) -> str | None:
    """Why inputs cannot be written to where they are: others are copied to where the recording reads them."""
    owners = {place: one.untyped_storage().data_ptr() for place, one in enumerate(inputs) if one.numel()}
    changed = [owner for place, owner in owners.items() if place in written]
    others = {owner for place, owner in owners.items() if place not in written}
    if len(set(changed)) < len(changed) or not others.isdisjoint(changed):
        return "an input that it writes to shares memory with another one"
    return None


def _why_no_copies(inputs: Sequence[Tensor], outputs: Sequence[Any]) -> str | None:
    """Why results cannot be copied out, where that is seen on results only."""
    if any(type(one) is not Tensor or one.layout != torch.strided for one in outputs):
        return "a result is no plain tensor"
    if any(one.requires_grad for one in outputs):
        return "a result needs a gradient"
    owners = {one.untyped_storage().data_ptr() for one in outputs if one.numel()}
    if not owners.isdisjoint(one.untyped_storage().data_ptr() for one in inputs if one.numel()):
        return "a result shares memory with an input"
    return None
