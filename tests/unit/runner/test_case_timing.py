"""How the cases of a job are timed together, and whose fault it is when that fails; both processes are stand-ins."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
import torch

from opsmith.calls.outcomes import HeldOutcome
from opsmith.core.case import CaseAddress, CaseRef, Outcome, OutputTensor
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import OpSchema, Variant
from opsmith.core.run import Options, TimedCase
from opsmith.core.timing import Cause, Ceilings, GraphCosts, Label, Work
from opsmith.core.verdict import Status
from opsmith.evaluation.timing.statistics import precisions_of
from opsmith.runner.child.outcome_files import INLINE_BYTES, OutcomeWriter, read_outcome, summarised
from opsmith.runner.clock import case_timing, stopwatch
from opsmith.runner.clock.case_timing import CaseTimer
from opsmith.runner.clock.device_limits import DeviceLimits
from opsmith.runner.clock.stopwatch import ClockSettings
from opsmith.runner.clock.timed_pairs import Dishonest
from opsmith.runner.processes.failures import WorkerFailed
from opsmith.runner.processes.referee_link import RefereeLink
from opsmith.runner.processes.worker_link import WorkerLink
from opsmith.runner.protocol.call_files import Spool
from opsmith.runner.protocol.job import Job
from opsmith.runner.protocol.referee_messages import Compared, ComparedCase, CompareTimed
from opsmith.runner.protocol.timing_messages import BlockTimed, PrepareTiming, ShowTimed, TimeBlock, TimingPrepared
from opsmith.runner.protocol.worker_messages import Answered, Inspect, Inspected, Returned

WHOLE = msgspec.Raw(msgspec.msgpack.encode(Outcome(structure="*", outputs=(), changed={})))
CALL_US = 20.0
CEILINGS = Ceilings(
    device="stand-in", copy_gbps=1.0, matmul_tflops={"f32": 1.0}, l2_bytes=1, measured_utc="2026", torch="2"
)


class StandIn:
    """Either process: its calls take as long as the other's.

    Attributes:
        call_us: that its calls take.
        slots: sets of inputs that there is room for.
        work: that a call has to do.
        asked: requests in order.
        groups: the calls that were prepared together.
        closed: how often it was ended.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.waits_awake = self.is_running = True
        self.wall_us = 0.0
        self.call_us = CALL_US
        self.slots = 64
        self.work: Work | None = None
        self.asked: list[Any] = []
        self.groups: list[list[bytes]] = []
        self.closed = 0

    def ask(self, request: Any, _reply_type: Any) -> Any:
        self.asked.append(request)
        self.wall_us = 30.0
        if isinstance(request, PrepareTiming):
            if request.pair == 0:
                self.groups.append([])
            self.groups[-1].append(request.call)
            return TimingPrepared(self.slots, request.variations, 0.1, work=self.work)
        if isinstance(request, TimeBlock):
            self.wall_us += request.calls * request.replays * self.call_us
            return BlockTimed(self.call_us, 1.0)
        return BlockTimed(None)

    def number(self, request: Any) -> int:
        """The number of the case that a request is about."""
        return int(self.groups[-1][request.pair])

    def close(self) -> None:
        self.closed += 1


class StandInReferee(StandIn):
    """Finds everything right, except for some cases.

    Attributes:
        wrong: those.
        compared: the cases of which a result was judged, in order.
    """

    def __init__(self, *wrong: int) -> None:
        super().__init__()
        self.wrong = wrong
        self.compared: list[int] = []

    def ask(self, request: Any, reply_type: Any) -> Any:
        if not isinstance(request, CompareTimed):
            return super().ask(request, reply_type)
        self.asked.append(request)
        number = self.number(request)
        self.compared.append(number)
        if request.outcome == summarised(b"summary"):
            return Compared({}, {}, unclear=(0,))
        is_right = number not in self.wrong and (request.outcome == WHOLE or _is_in_file(request, number))
        status = Status.PASSED if is_right else Status.WRONG_VALUE
        return Compared({0: ComparedCase(status, "as it was told", None, layout_differs=False)}, {})


def _is_in_file(request: CompareTimed, number: int) -> bool:
    """Whether the file that stands for an outcome is there and holds the right result."""
    read = read_outcome(request.outcome, Path(request.folder), torch.device("cpu"))
    return isinstance(read, HeldOutcome) and read.equals(large_outcome(number))


class StandInWorker(StandIn):
    """Answers as it is told.

    Attributes:
        act: told the number of a case whenever a block of it is timed; may raise.
        notices: what its link has been told.
        is_large: whether its results are summarised.
        changes: what it has replaced.
    """

    def __init__(self, act: Callable[[int], None] = lambda number: None) -> None:
        super().__init__()
        self.folder = Path("/nowhere")
        self.act = act
        self.notices: tuple[Any, ...] = ()
        self.is_large = False
        self.changes: tuple[str, ...] = ()

    def load(self, *_: Any) -> None:
        self.notices = ()

    ran_stopped_us = 0.0

    def started(self) -> list[int]:
        return []

    def stop(self) -> None:
        """It does nothing unasked."""

    def take_load_s(self) -> float:
        return 1.5

    def ask(self, request: Any, reply_type: Any) -> Any:
        if isinstance(request, TimeBlock) and request.calls and request.captured:
            self.act(self.number(request))
        if isinstance(request, ShowTimed):
            self.asked.append(request)
            outcome = summarised(b"summary") if self.is_large and not request.in_full else WHOLE
            return Answered((Returned((outcome,)),))
        if isinstance(request, Inspect):
            self.asked.append(request)
            return Inspected(self.changes)
        return super().ask(request, reply_type)


class WorkerWithFiles(StandInWorker):
    """Writes the number of a case into a file, as often as a large result has bytes."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self._writer = OutcomeWriter(folder)

    def ask(self, request: Any, reply_type: Any) -> Any:
        reply = super().ask(request, reply_type)
        if not isinstance(request, ShowTimed):
            return reply
        self._writer.forget()
        return Answered((Returned((self._writer.encode(large_outcome(self.number(request))),)),))


def large_outcome(number: int) -> HeldOutcome:
    """The right result of the case of that number."""
    size = INLINE_BYTES + 1
    form = OutputTensor("u8", (size,), (1,), 0, "cpu", "strided", None, None, b"")
    outcome = Outcome(structure="*", outputs=(form,), changed={})
    return HeldOutcome(form=outcome, elements=(bytes([number]) * size,), changed={})


@pytest.fixture(autouse=True)
def _free_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's own process stays where it is, and nothing disturbs it."""
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: None)
    monkeypatch.setattr("opsmith.runner.clock.timed_processes.first_thread_us", lambda pid: (0.0, 0.0))
    monkeypatch.setattr("opsmith.runner.clock.timed_processes.runs_beside", lambda pid, started: False)
    monkeypatch.setattr("opsmith.runner.clock.timed_processes.process_us", lambda pid: 0.0)


def case(number: int, size_bytes: int = 4) -> CaseRef:
    """The case of that number."""
    return CaseRef(
        address=CaseAddress("opinfo", "relu", "f32", "sample", number, 0),
        op="relu.default",
        signature=str(number),
        content_hash=str(number),
        size_bytes=size_bytes,
        spool=0,
        offset=0,
        length=1,
    )


def timed(
    count: int | list[CaseRef],
    referee: StandInReferee | None = None,
    worker: StandInWorker | None = None,
    quantities: str = "KE",
    device: str = "stand-in",
) -> list[TimedCase]:
    """The cases of one kernel, timed."""
    cases = tuple([case(number) for number in range(count)] if isinstance(count, int) else count)
    timer = CaseTimer(
        cast("RefereeLink", referee or StandInReferee()),
        cast("WorkerLink", worker or StandInWorker()),
        cast("Spool", SimpleNamespace(read=lambda case: str(case.address.sample).encode())),
        Job(
            schema=OpSchema(
                name="relu.default", schema="aten::relu(Tensor self) -> Tensor", variant=Variant.FUNCTIONAL
            ),
            kernel=Kernel(task="relu.default", backend="test", loader=Loader.FILE, entry="relu.py:relu"),
            root=None,
            cases=cases,
            counts={},
            policy="native",
        ),
        options=Options(suite="opinfo", backend="test", device="cuda", dtypes=("f32",)),
        seed=1,
        settings=ClockSettings(
            precisions=precisions_of("quick", quantities),
            quantities=quantities,
            cores=(0, 1),
            graphs=GraphCosts(0.5, 0.0),
        ),
        limits=DeviceLimits.of(msgspec.structs.replace(CEILINGS, device=device)),
    )
    return list(timer.time())


def numbers(found: list[TimedCase]) -> list[int]:
    """The numbers of timed cases."""
    return [CaseAddress.parse(one.case).sample for one in found]


@pytest.mark.slow
def test_cases_are_timed_together_and_told_in_order() -> None:
    """On a device: a CPU's are timed one by one, each in processes of its own if need be."""
    for quantities, together in (("KE", case_timing.MOST_TOGETHER), ("E", 1)):
        worker = StandInWorker()
        found = timed(20, worker=worker, quantities=quantities)
        assert list(range(20)) == numbers(found)
        assert together == max(map(len, worker.groups))
        for one in found:
            assert [*quantities] == [timing.quantity for timing in one.timings]
            assert {Label.SAME} == {timing.label for timing in one.timings}
            assert (None, None) == (one.offence, one.problem)
        assert 1.5 == found[0].load_s


def test_large_cases_are_timed_in_small_groups() -> None:
    """Both sides hold the inputs of all that is timed together; one that is too large is alone."""
    most = case_timing.MOST_TOGETHER_BYTES
    worker = StandInWorker()
    sizes = [most // 2, most // 2, 4, 2 * most, 4, 4]
    timed([case(number, size) for number, size in enumerate(sizes)], worker=worker)
    assert [[b"0", b"1"], [b"2"], [b"3"], [b"4", b"5"]] == worker.groups


@pytest.mark.parametrize("is_large", [False, True])
def test_a_wrong_result_is_held_against_its_case_alone(*, is_large: bool) -> None:
    """Whether it was kept until the clock had stopped, or judged at once because the next block writes over it."""
    worker, referee = StandInWorker(), StandInReferee(3)
    worker.is_large = is_large
    found = timed(6, referee, worker)
    assert [3] == [number for number, one in enumerate(found) if one.offence]
    assert "did not return the answer: WRONG_VALUE" in str(found[3].offence)
    assert () == found[3].timings
    assert all(len(one.timings) == 2 for number, one in enumerate(found) if number != 3)


def test_nothing_is_compared_while_the_clock_runs() -> None:
    """A device that changes from one process to another takes longer than a block."""
    referee = StandInReferee()
    timed(4, referee)
    kinds = [isinstance(request, CompareTimed) for request in referee.asked]
    assert 12 == sum(kinds)
    assert all(kinds[kinds.index(True) :])


def test_of_the_last_blocks_all_is_shown_before_anything_is_judged() -> None:
    """Each change from one process to the other takes as long as several blocks; what is unclear is still there."""
    order: list[str] = []
    worker, referee = StandInWorker(), StandInReferee()
    worker.is_large = True

    def noting(side: StandIn) -> Callable[..., Any]:
        ask = side.ask

        def noted(request: Any, reply_type: Any) -> Any:
            order.append(type(request).__name__)
            return ask(request, reply_type)

        return noted

    worker.ask, referee.ask = noting(worker), noting(referee)  # type: ignore[method-assign]
    timed(3, referee, worker)
    last_block = len(order) - 1 - order[::-1].index("TimeBlock")
    judged = ["CompareTimed", "ShowTimed", "CompareTimed"] * 3
    assert [*["ShowTimed"] * 3, *judged, "Inspect"] == order[last_block + 1 :]


def test_large_results_that_have_no_summary_are_all_judged(tmp_path: Path) -> None:
    """Where a part of one lies on the host it goes in a file, which is gone when the worker shows the next one."""
    referee = StandInReferee()
    found = timed(4, referee, WorkerWithFiles(tmp_path))
    assert [None] * 4 == [one.offence for one in found]
    assert {0, 1, 2, 3} == set(referee.compared)


def test_what_was_replaced_is_asked_once_when_all_blocks_are_over() -> None:
    """It takes longer than several blocks."""
    worker = StandInWorker()
    timed(8, worker=worker)
    kinds = [type(request) for request in worker.asked]
    assert 1 == kinds.count(Inspect)
    assert TimeBlock not in kinds[kinds.index(Inspect) :]
    assert ShowTimed not in kinds[kinds.index(Inspect) :]


def test_what_was_replaced_is_held_against_a_kernel() -> None:
    """Nothing that it has is a time then."""
    worker = StandInWorker()
    worker.changes = ("time.time was replaced",)
    found = timed(3, worker=worker)
    assert all(one.timings == () for one in found)
    assert all("tampered with its process" in str(one.offence) for one in found)


def test_a_case_that_ends_its_process_takes_no_other_case_with_it() -> None:
    """The others are timed in new processes, one by one, and so is it: it says itself why it has no time."""

    def dies(number: int) -> None:
        if number == 2:
            raise WorkerFailed(Status.CRASHED, "ended by signal 11", ())

    worker, referee = StandInWorker(dies), StandInReferee()
    found = timed(4, referee, worker)
    assert list(range(4)) == numbers(found)
    assert [None, None, "ended by signal 11", None] == [one.problem for one in found]
    assert [2, 2, 0, 2] == [len(one.timings) for one in found]
    assert worker.closed == referee.closed == 1
    assert [4, 1, 1, 1, 1] == [len(group) for group in worker.groups]


def test_what_was_seen_once_is_held_against_the_case_that_was_timed_then() -> None:
    """Even if it behaves from then on."""
    worker = StandInWorker()
    was_seen: list[int] = []

    def is_seen(number: int) -> None:
        if number == 1 and not was_seen:
            was_seen.append(number)
            worker.notices = (SimpleNamespace(line="called aten::mm"),)

    worker.act = is_seen
    found = timed(3, worker=worker)
    assert [None, "while it was timed: called aten::mm", None] == [one.offence for one in found]
    assert [2, 0, 2] == [len(one.timings) for one in found]


def test_a_clock_that_is_found_to_lie_is_held_against_its_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """One case of a kernel is held against the judge's clock in any case."""
    checked: list[int] = []

    def lies(_clock: Any, pair: Any, _calls: int, _own_us: float) -> None:
        checked.append(pair.number)
        raise Dishonest("its own clock says 1 us a call")

    monkeypatch.setattr(stopwatch.PairedClock, "_cross_check", lies)
    found = timed(5)
    assert 1 == len(checked)
    assert [number for number, one in enumerate(found) if one.offence] == checked


def moving(size_bytes: int, *call_us: float, slots: int = 64) -> tuple[StandInReferee, StandInWorker]:
    """Both processes, whose calls have to move so much and take so long."""
    referee, worker = StandInReferee(), StandInWorker()
    referee.work = Work(least_bytes=size_bytes, traffic_bytes=size_bytes)
    referee.slots = slots
    referee.call_us, worker.call_us = call_us
    return referee, worker


def test_what_a_device_cannot_do_on_either_side_is_undecided() -> None:
    """It is the clock that is wrong, so no side has a time, a speedup or a percentage; the whole call has its own."""
    [one] = timed(1, *moving(10 << 30, 20.0, 20.0), device="NVIDIA H100 80GB HBM3")
    assert ["E"] == [timing.quantity for timing in one.timings]
    [undecided] = one.undecided
    assert ("K", Cause.BEYOND_DEVICE) == (undecided.quantity, undecided.cause)
    assert "the reference itself is faster than the device can be, it moves at least" in undecided.reason
    assert (None, None) == (one.offence, one.problem)


@pytest.mark.parametrize(("candidate_us", "slots"), [(20.0, 64), (1.0, 1)])
def test_what_a_device_cannot_do_on_the_candidates_side_is_held_against_it(candidate_us: float, slots: int) -> None:
    """Also where its blocks are too short to be measured."""
    [one] = timed(1, *moving(10 << 30, 5e3, candidate_us, slots=slots), device="NVIDIA H100 80GB HBM3")
    assert str(one.offence).startswith("faster than the device can be") or "its own clock says" in str(one.offence)
    assert () == one.timings


@pytest.mark.parametrize(("size_bytes", "percent"), [(10_000, 50.0), (30_000, 150.0), (1_000_000, None)])
def test_what_was_never_measured_of_a_cpu_is_undecided(size_bytes: int, percent: float | None) -> None:
    """Others may have used it when it was measured, so twice as much may be."""
    [one] = timed(1, *moving(size_bytes, 20.0, 20.0), quantities="E")
    if percent is None:
        assert () == one.timings
        assert [Cause.BEYOND_DEVICE] == [undecided.cause for undecided in one.undecided]
    else:
        assert [pytest.approx(percent)] == [timing.percent_of_floor for timing in one.timings]
        assert () == one.undecided


def test_blocks_that_stay_too_short_are_undecided_in_two_pairs_of_processes() -> None:
    """A third one could not outvote them."""
    referee, worker = moving(8, 20.0, 20.0, slots=2)
    [one] = timed(1, referee, worker, quantities="E")
    assert () == one.timings
    [undecided] = one.undecided
    assert Cause.TOO_SHORT is undecided.cause
    assert "the most there may be" in undecided.reason
    assert 1 == worker.closed
