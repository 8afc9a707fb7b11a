"""One side of a timed pair: what a block runs, on what, and what can be looked at afterwards."""

from __future__ import annotations

import gc
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar
from unittest import mock

import pytest
import torch

from opsmith.calls.observer import Observer
from opsmith.core.case import CallRecord, Outcome, OutputTensor, TensorValue
from opsmith.core.fresh_values import Redraw, Variation
from opsmith.evaluation.timing import blocks
from opsmith.evaluation.timing.blocks import TimedCall
from opsmith.evaluation.timing.cuda_graphs import (
    GATE_CYCLES,
    MAX_GATE_CYCLES,
    QUEUED_GATE_CYCLES,
    STEADY_GATE_CYCLES,
    CapturedCalls,
    Gate,
    gate_cycles,
)
from opsmith.evaluation.timing.inputs import MADE_AT_ONCE, TimedInputs

CPU = torch.device("cpu")
SLOTS = 5


def inputs() -> TimedInputs:
    """Sets of a vector of numbers."""
    record = CallRecord(
        op="relu.default",
        args=(TensorValue(0, "f32", (20,), (1,), 0, ""),),
        kwargs={},
        storages=(struct.pack("20f", *range(20)),),
    )
    return TimedInputs(record, CPU, SLOTS, variations=[Variation(Redraw.BLENDED)])


class Recording:
    """A kernel that remembers its calls; it doubles."""

    def __init__(self) -> None:
        self.firsts: list[float] = []
        self.places: list[int] = []
        self.collects: set[bool] = set()
        self.differentiates: set[bool] = set()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.firsts.append(x[0].item())
        self.places.append(x.data_ptr())
        self.collects.add(gc.isenabled())
        self.differentiates.add(torch.is_grad_enabled())
        return x * 2

    def clear(self) -> None:
        for seen in (self.firsts, self.places, self.collects, self.differentiates):
            seen.clear()


class StandInGraph:
    """What a capture gives; its replays are counted."""

    def __init__(self, calls: Sequence[Callable[[], Any]]) -> None:
        self.calls = len(calls)
        self.results = [call() for call in calls]
        self.nodes = 3 * len(calls)
        self.replays = 0

    def replay(self, times: int = 1) -> None:
        self.replays += times


class StandInGate:
    """A device on which everything that is queued takes so long."""

    taken_us: float | None = 120.0
    #: The first waits of those that were asked, in order.
    asked: ClassVar[list[int]] = []

    def __init__(self, cycles: int = GATE_CYCLES) -> None:
        self._cycles = cycles

    def time_us(
        self, queue: Callable[[], None], *, before: Callable[[], None] | None = None, steady: bool = False
    ) -> float | None:
        StandInGate.asked.append(self._cycles)
        if before is not None:
            before()
        queue()
        return self.taken_us


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[StandInGraph]:
    """The graphs that were captured, on a device that is not there."""
    captured: list[StandInGraph] = []

    def capture(calls: Sequence[Callable[[], Any]]) -> StandInGraph:
        captured.append(StandInGraph(calls))
        return captured[-1]

    monkeypatch.setattr(blocks, "capture", capture)
    monkeypatch.setattr(blocks, "Gate", StandInGate)
    return captured


def looked_at(timed: TimedCall, slot: int) -> Outcome:
    """The outcome of one call of the last block."""
    observer = Observer()
    observer.keep([timed.observe(slot, observer)])
    [outcome] = observer.outcomes()
    return outcome


def numbers(outcome: Outcome) -> list[float]:
    """The elements of its only result."""
    [output] = outcome.outputs
    assert isinstance(output, OutputTensor)
    return list(struct.unpack("20f", output.data))


def test_every_call_of_a_block_has_inputs_of_its_own() -> None:
    """Other memory and other values, and every call of the next block others again."""
    kernel = Recording()
    timed = TimedCall(kernel, inputs(), CPU)
    kernel.clear()
    for round_number in (1, 2):
        timed.renew(round_number, SLOTS)
        timed.host_block(SLOTS)
    assert SLOTS == len(set(kernel.places))
    assert 2 * SLOTS == len(set(kernel.firsts))


def test_a_calls_memory_is_that_of_one_that_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of the second one, at which its kernel is recorded for a launch plan."""
    kernel = Recording()
    monkeypatch.setattr(blocks, "_allocated_bytes", lambda _: {"current": 5, "peak": 5 + (len(kernel.firsts) == 2)})
    monkeypatch.setattr(blocks, "_flushed_memory", lambda _: torch.zeros(1))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: None)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: None)
    assert 0 == TimedCall(kernel, inputs(), torch.device("cuda")).peak_bytes


def test_calls_that_warm_up_leave_the_sets_of_the_block_alone() -> None:
    """They are on the last sets, and nothing of them is kept: the block's results are those of its own calls."""
    kernel = Recording()
    timed = TimedCall(kernel, inputs(), CPU)
    timed.renew(1, SLOTS)
    kernel.clear()
    timed.warm_up(SLOTS, 2)
    assert [live.args[0].data_ptr() for live in timed.inputs.lives[SLOTS - 2 :]] == kernel.places
    kernel.clear()
    timed.host_block(SLOTS - 2)
    assert numbers(looked_at(timed, 0))[0] == 2 * kernel.firsts[0]
    timed.warm_up(SLOTS, 0)
    assert SLOTS - 2 == len(kernel.places)


def test_a_block_has_as_many_calls_as_are_asked_for() -> None:
    """None is one, too: it measures the trip."""
    kernel = Recording()
    timed = TimedCall(kernel, inputs(), CPU)
    kernel.clear()
    for calls in (0, 3):
        timed.host_block(calls)
        assert calls == len(kernel.firsts)


def test_a_block_is_not_interrupted_by_pythons_garbage_collector() -> None:
    """It takes longer the more a process holds; afterwards it works again, even if the kernel raised."""
    kernel = Recording()
    timed = TimedCall(kernel, inputs(), CPU)
    kernel.clear()
    timed.host_block(2)
    assert {False} == kernel.collects
    assert gc.isenabled()


def test_a_kernel_that_raises_leaves_the_garbage_collector_on() -> None:
    """The process goes on to judge others."""
    kernel = Recording()
    timed = TimedCall(kernel, inputs(), CPU)
    timed.inputs.lives[0].args = ()
    with pytest.raises(TypeError):
        timed.host_block(2)
    assert gc.isenabled()


def test_a_capture_that_fails_by_chance_is_tried_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its calls would be timed launch by launch."""
    answers = [None, CapturedCalls(mock.Mock(), [], SLOTS)]
    monkeypatch.setattr(blocks, "capture", lambda _calls: answers.pop(0))
    timed = TimedCall(Recording(), inputs(), CPU)
    first = timed.captured(SLOTS)
    assert first is not None
    assert first is timed.captured(SLOTS)  # It is kept.


def test_a_graph_of_sets_that_were_made_anew_is_captured_again(graphs: list[StandInGraph]) -> None:
    """It would read what is no longer theirs."""
    record = inputs().record
    timed = TimedCall(torch.neg, TimedInputs(record, CPU, 2 * MADE_AT_ONCE), CPU)
    first = timed.captured(2)
    timed.inputs.make(MADE_AT_ONCE)
    assert first is timed.captured(2)
    timed.inputs.make(2 * MADE_AT_ONCE)
    assert first is not timed.captured(2)
    assert 2 == len(graphs)


def test_no_timed_call_is_differentiated() -> None:
    """The first one, a block of E and a block of K alike."""
    kernel = Recording()
    timed = TimedCall(kernel, inputs(), CPU)
    timed.host_block(2)
    assert {False} == kernel.differentiates


def test_the_first_call_is_told_apart() -> None:
    """Compiling and tuning are no part of a block; peak memory is not counted on a CPU."""
    calls: list[torch.Tensor] = []

    def slow_at_first(x: torch.Tensor) -> torch.Tensor:
        if not calls:
            time.sleep(0.05)
        calls.append(x)
        return x

    timed = TimedCall(slow_at_first, inputs(), CPU)
    assert 0.05 <= timed.first_call_s < 5
    assert 1 == len(calls)
    assert timed.peak_bytes is None


@pytest.mark.parametrize("slot", [0, 2, SLOTS - 1])
def test_any_result_of_the_last_block_can_be_looked_at(slot: int) -> None:
    """It is the answer to the values that its call had in this round, as the referee makes them again."""
    timed = TimedCall(Recording(), inputs(), CPU)
    for round_number in (1, 6):
        timed.renew(round_number, SLOTS)
        timed.host_block(SLOTS)
        values = struct.unpack("20f", timed.inputs.record_of(slot, round_number).storages[0])  # type: ignore[arg-type]
        outcome = looked_at(timed, slot)
        assert [2 * value for value in values] == numbers(outcome)
        assert {} == outcome.changed


def test_a_timed_call_that_changes_its_input_is_seen() -> None:
    """Against the values that it had, not those of another round."""
    timed = TimedCall(lambda x: x.add_(1), inputs(), CPU)
    timed.renew(4, SLOTS)
    timed.host_block(SLOTS)
    outcome = looked_at(timed, 1)
    assert [0] == list(outcome.changed)
    before = struct.unpack("20f", timed.inputs.record_of(1, 4).storages[0])  # type: ignore[arg-type]
    assert list(struct.unpack("20f", outcome.changed[0])) == pytest.approx([value + 1 for value in before])


def test_results_of_an_earlier_block_are_not_kept() -> None:
    """They would take memory, and could be shown in place of this block's."""
    timed = TimedCall(Recording(), inputs(), CPU)
    timed.renew(1, SLOTS)
    timed.host_block(SLOTS)
    timed.renew(2, 1)
    timed.host_block(1)
    with pytest.raises(IndexError):
        looked_at(timed, 1)


def test_k_is_the_time_of_one_call(graphs: list[StandInGraph]) -> None:
    """All that ran, over calls and replays; nodes are those of a call too."""
    timed = TimedCall(Recording(), inputs(), CPU)
    assert (40.0, 3.0) == timed.device_block(3)
    assert (10.0, 3.0) == timed.device_block(3, replays=4)
    assert 5 == graphs[0].replays


def test_a_graph_is_captured_once_for_each_number_of_calls(graphs: list[StandInGraph]) -> None:
    """Replays write into the same results; another number of calls is another graph."""
    timed = TimedCall(Recording(), inputs(), CPU)
    for calls in (3, 3, 2, 3):
        timed.device_block(calls, round_number=calls)
    assert [3, 2, 3] == [graph.calls for graph in graphs]


def test_fresh_values_are_written_before_a_replay(graphs: list[StandInGraph]) -> None:
    """When the graph is there: capturing runs the calls on what was there before."""
    timed = TimedCall(Recording(), inputs(), CPU)
    timed.device_block(SLOTS, round_number=9)
    [before] = timed.inputs.before(2, 9)
    assert before.tolist() == timed.inputs.lives[2].storages[0].tolist()


def test_what_a_graph_returned_can_be_looked_at(graphs: list[StandInGraph]) -> None:
    """Not what calls returned that were queued one by one before it."""
    timed = TimedCall(Recording(), inputs(), CPU)
    timed.device_block(SLOTS, round_number=1, captured=False)
    timed.device_block(SLOTS, round_number=2)
    graphs[0].results[3].fill_(5)
    assert [5.0] * 20 == numbers(looked_at(timed, 3))


def test_calls_are_queued_one_by_one_where_that_is_asked(graphs: list[StandInGraph]) -> None:
    """For calibration, and as often as there are replays; there are no nodes then."""
    kernel = Recording()
    timed = TimedCall(kernel, inputs(), CPU)
    kernel.clear()
    assert (15.0, None) == timed.device_block(4, replays=2, captured=False)
    assert (8, []) == (len(kernel.firsts), graphs)


def test_calls_that_cannot_be_captured_are_queued_one_by_one(
    graphs: list[StandInGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is found out once, in two attempts."""
    tried: list[Any] = []
    monkeypatch.setattr(blocks, "capture", tried.append)
    timed = TimedCall(Recording(), inputs(), CPU)
    for round_number in (1, 2):
        assert (30.0, None) == timed.device_block(4, round_number=round_number)
    assert 2 == len(tried)
    assert [2 * value for value in timed.inputs.lives[3].args[0].tolist()] == numbers(looked_at(timed, 3))


def test_k_of_a_call_that_waits_for_the_device_is_none(
    graphs: list[StandInGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no number that would stand for it."""
    monkeypatch.setattr(StandInGate, "taken_us", None)
    timed = TimedCall(Recording(), inputs(), CPU)
    assert (None, None) == timed.device_block(4, captured=False)


def test_k_may_be_of_another_function_than_e(graphs: list[StandInGraph]) -> None:
    """A baseline that replays graphs itself runs on the device what eager does."""
    on_host, on_device = Recording(), Recording()
    timed = TimedCall(on_host, inputs(), CPU, on_device=on_device)
    on_host.clear()
    timed.device_block(2, captured=False)
    timed.device_block(2)
    assert (0, 4) == (len(on_host.firsts), len(on_device.firsts))
    timed.host_block(3)
    assert (3, 4) == (len(on_host.firsts), len(on_device.firsts))


def test_a_graph_does_not_wait_for_as_long_as_calls_that_are_queued_one_by_one(
    graphs: list[StandInGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which come first, to find out how many calls make a block."""
    monkeypatch.setattr(StandInGate, "asked", [])
    timed = TimedCall(Recording(), inputs(), CPU)
    timed.device_block(2, captured=False)
    timed.device_block(2)
    assert [QUEUED_GATE_CYCLES, GATE_CYCLES] == StandInGate.asked


@pytest.mark.parametrize(
    ("queueing_s", "cycles"), [(0.0, GATE_CYCLES), (100e-6, 400_000), (1e-3, 4_000_000), (10.0, MAX_GATE_CYCLES)]
)
def test_the_gate_waits_for_as_long_as_queueing_took_and_some_more(queueing_s: float, cycles: int) -> None:
    """So that one slow launch does not make all later blocks wait, within limits."""
    assert cycles == gate_cycles(queueing_s)


class StandInEvent:
    """An event of a device on which the gate lets go too soon in the first few blocks."""

    too_soon = 0

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        StandInEvent.too_soon -= 1
        return StandInEvent.too_soon >= 0

    def elapsed_time(self, _end: StandInEvent) -> float:
        return 0.25


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The cycles that gates have waited."""
    cycles: list[int] = []
    monkeypatch.setattr(torch.cuda, "Event", StandInEvent)
    monkeypatch.setattr(torch.cuda, "_sleep", cycles.append)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return cycles


@pytest.mark.usefixtures("waited")
def test_what_another_stream_does_after_the_last_event_is_part_of_k(monkeypatch: pytest.MonkeyPatch) -> None:
    """No event of the calls' own stream waits for it."""
    monkeypatch.setattr(StandInEvent, "too_soon", 0)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: time.sleep(0.02))
    late_us = Gate().time_us(lambda: None)
    assert late_us is not None
    assert late_us >= 20_250.0


def test_one_slow_launch_makes_no_later_block_wait(waited: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The block is queued again behind a longer wait, and the next one waits as if nothing had been."""
    monkeypatch.setattr(StandInEvent, "too_soon", 1)
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)  # A busy machine is slow at any time.
    gate = Gate()
    assert [250.0] * 2 == [gate.time_us(lambda: None) for _ in range(2)]
    assert [GATE_CYCLES, 4 * GATE_CYCLES, GATE_CYCLES] == waited


def test_a_block_that_is_queued_again_meets_the_values_that_it_met_at_first(
    waited: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else calls in place would be applied to their own results, and be taken for wrong ones."""
    monkeypatch.setattr(StandInEvent, "too_soon", 2)
    timed = TimedCall(lambda x: x.mul_(2), inputs(), CPU)
    assert (62.5, None) == timed.device_block(4, round_number=7, captured=False)
    assert 3 == len(waited)
    [before] = timed.inputs.before(3, 7)
    assert [2 * value for value in struct.unpack("20f", bytes(before.tolist()))] == numbers(looked_at(timed, 3))


def test_a_steady_gate_waits_for_as_long_as_the_last_time(waited: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge's clock takes the difference of two such blocks, of which one takes longer to queue."""
    monkeypatch.setattr(StandInEvent, "too_soon", 1)
    gate = Gate()
    for queueing_s in (0.0, 0.02, 0.0):
        gate.time_us(lambda: time.sleep(queueing_s), steady=True)  # noqa: B023 - called at once
    assert [STEADY_GATE_CYCLES, *[4 * STEADY_GATE_CYCLES] * 3] == waited
