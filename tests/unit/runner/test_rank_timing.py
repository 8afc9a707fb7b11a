"""How a case of ranks is timed, and whose fault it is when that fails; both groups and the referee are stand-ins."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from opsmith.core.case import CaseAddress, CaseRef, Outcome
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import OpSchema, TaskKind, Variant
from opsmith.core.run import Options, TimedCase
from opsmith.core.timing import Ceilings, Label, RankSpread
from opsmith.core.verdict import Status
from opsmith.evaluation.timing.statistics import precisions_of
from opsmith.runner.clock import rank_timing
from opsmith.runner.clock.device_limits import DeviceLimits
from opsmith.runner.clock.rank_timing import RankCaseTimer
from opsmith.runner.clock.stopwatch import ClockSettings
from opsmith.runner.processes.failures import WorkerFailed
from opsmith.runner.protocol.job import Job
from opsmith.runner.protocol.referee_messages import Compared, ComparedCase, CompareTimed
from opsmith.runner.protocol.timing_messages import BlockTimed, PrepareTiming, ShowTimed, TimeBlock, TimingPrepared
from opsmith.runner.protocol.worker_messages import Answered, Inspect, Inspected, Raised, Returned

CEILINGS = Ceilings(device="stand-in", copy_gbps=1.0, matmul_tflops={}, l2_bytes=1, measured_utc="2026", torch="2")
WHOLE = msgspec.Raw(msgspec.msgpack.encode(Outcome(structure="*", outputs=(), changed={})))


class StandInRank:
    """A link to a rank, which sleeps."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.waits_awake = False
        self.ran_stopped_us = 0.0

    def started(self) -> list[int]:
        return []

    def stop(self) -> None:
        """It does nothing anyway."""

    def take_load_s(self) -> float:
        return 1.5


class StandInGroup:
    """Ranks whose calls take so long.

    Attributes:
        act: told each block; may raise.
        problem: what one of them raises when it loads a kernel.
        loaded: kernels and the policies for them.
        retired: how often all were ended.
        foreign: what kind of memory the last rank's results lie in, if not in its own.
        changes: what the last rank has replaced.
    """

    def __init__(self, call_us: float = 500.0) -> None:
        self.call_us = call_us
        self.act: Callable[[TimeBlock], None] = lambda block: None
        self.problem: Raised | None = None
        self.links: list[StandInRank] = []
        self.loaded: list[tuple[Kernel, str | None]] = []
        self.notices = ()
        self.wall_us = 100.0
        self.spread = RankSpread(20.0, 10.0)
        self.retired = 0
        self.foreign: str | None = None
        self.changes: tuple[str, ...] = ()

    def resize(self, ranks: int) -> None:
        if len(self.links) != ranks:
            self.links = [StandInRank() for _ in range(ranks)]

    def load(self, kernel: Kernel, _root: object, _schema: object, policy: str | None = None) -> Raised | None:
        self.loaded.append((kernel, policy))
        return self.problem

    def ask_each(self, request: msgspec.Struct, _types: object) -> list[Any]:
        ranks = len(self.links)
        self.wall_us = 100.0
        if isinstance(request, PrepareTiming):
            return [TimingPrepared(request.slots, request.variations, 0.1)] * ranks
        if isinstance(request, ShowTimed):
            shown = [Answered((Returned((WHOLE,)),)) for _ in range(ranks)]
            return [*shown[:-1], msgspec.structs.replace(shown[-1], foreign=self.foreign)]
        if isinstance(request, Inspect):
            return [*[Inspected(())] * (ranks - 1), Inspected(self.changes)]
        if isinstance(request, TimeBlock):
            self.act(request)
            self.wall_us += request.calls * self.call_us
        return [BlockTimed(None)] * ranks

    def outcome_folders(self) -> tuple[str, tuple[str, ...]]:
        return "", tuple(f"/rank-{rank}" for rank in range(len(self.links)))

    def retire(self) -> None:
        self.links = []
        self.retired += 1


class StandInReferee:
    """Finds what is compared as it is told.

    Attributes:
        status: that.
        compared: what it was asked to compare.
    """

    def __init__(self) -> None:
        self.status = Status.PASSED
        self.compared: list[CompareTimed] = []

    def ask(self, request: Any, _type: object) -> Any:
        if isinstance(request, PrepareTiming):
            return TimingPrepared(512, request.variations, 0.1)
        self.compared.append(request)
        return Compared({0: ComparedCase(self.status, "as it was told", None, layout_differs=False)}, {})


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing disturbs the ranks, and all sleep."""
    monkeypatch.setattr("opsmith.runner.clock.timed_processes.first_thread_us", lambda pid: (0.0, 0.0))
    monkeypatch.setattr("opsmith.runner.clock.timed_processes.is_awake", lambda pid: False)
    monkeypatch.setattr("opsmith.runner.clock.timed_processes.runs_beside", lambda pid, started: False)
    monkeypatch.setattr("opsmith.runner.clock.timed_processes.process_us", lambda pid: 0.0)
    reference = Kernel(task="sum", backend="aten", loader=Loader.ATEN, entry="sum.py:Model", root="/problems")
    monkeypatch.setattr(rank_timing, "Aten", lambda: SimpleNamespace(kernel_for=lambda _task: reference))


def case(number: int, ranks: int = 2) -> CaseRef:
    """The case of that number."""
    return CaseRef(
        address=CaseAddress("parallel", "sum", "f32", "inputs", number, 0),
        op="sum",
        signature=str(number),
        content_hash=str(number),
        size_bytes=4,
        spool=0,
        offset=0,
        length=1,
        ranks=ranks,
    )


class Bench:
    """Both groups, the referee, and the timer of a kernel's cases.

    Args:
        cases: of the kernel.
    """

    def __init__(self, *cases: CaseRef) -> None:
        self.reference, self.candidate, self.referee = StandInGroup(), StandInGroup(), StandInReferee()
        self.timer = RankCaseTimer(
            cast("Any", self.referee),
            cast("Any", self.candidate),
            cast("Any", self.reference),
            cast("Any", SimpleNamespace(read=lambda one: str(one.address.sample).encode())),
            Job(
                schema=OpSchema(name="sum", schema="sum.py", variant=Variant.FUNCTIONAL, kind=TaskKind.PARALLEL),
                kernel=Kernel(task="sum", backend="test", loader=Loader.FILE, entry="sum.py:ModelNew"),
                root=Path("/kernels"),
                cases=cases,
                counts={},
                policy="native",
            ),
            options=Options(suite="parallel", backend="test", device="cpu", dtypes=("f32",), tolerance="strict"),
            seed=1,
            settings=ClockSettings(
                precisions=precisions_of("quick", "E"),
                quantities="E",
                cores=(0, 1, 2),
                noise_of_ranks={2: 0.02, 3: 0.9},
            ),
            limits=DeviceLimits.of(CEILINGS),
        )

    def time(self) -> list[TimedCase]:
        """All cases."""
        return list(self.timer.time())


def test_a_kernel_of_ranks_is_timed_against_the_problems_own_code() -> None:
    """On as many ranks, and with the noise of so many."""
    bench = Bench(case(0, 2), case(1, 3))
    bench.candidate.call_us = 750.0
    two, three = bench.time()
    assert [Label.SLOWER, Label.UNDECIDED] == [timed.timings[0].label for timed in (two, three)]
    assert [0.02, 0.9] == [timed.timings[0].noise for timed in (two, three)]
    assert 750.0 == pytest.approx(two.timings[0].candidate_us, rel=0.01)
    assert RankSpread(20.0, 10.0) == two.timings[0].candidate_spread
    assert {None} == {policy for _, policy in bench.reference.loaded}
    assert {"native"} == {policy for _, policy in bench.candidate.loaded}
    assert 1.5 == two.load_s


def test_ranks_that_would_share_processors_are_not_timed() -> None:
    """Each would wait for the other's turn, and which one does is chance."""
    bench = Bench(case(0, 3), case(1, 4))
    three, four = bench.time()
    assert three.timings
    assert ((), "not timed: 4 ranks would share 3 processors") == (four.timings, four.problem)
    assert not bench.reference.links or len(bench.reference.links) == 3


def test_what_all_ranks_returned_is_compared_within_the_runs_tolerance() -> None:
    """What lies in files of theirs, too."""
    bench = Bench(case(0))
    [timed] = bench.time()
    assert timed.offence is None
    assert {("strict", ("/rank-0", "/rank-1"))} == {(one.tolerance, one.rank_folders) for one in bench.referee.compared}
    assert {2} == {len(msgspec.msgpack.decode(one.outcome)) for one in bench.referee.compared}


def test_what_a_timed_call_of_ranks_returns_may_be_wrong() -> None:
    """Then there is no time."""
    bench = Bench(case(0))
    bench.referee.status = Status.WRONG_VALUE
    [timed] = bench.time()
    assert "a timed call did not return the answer: WRONG_VALUE, as it was told" == timed.offence
    assert () == timed.timings


@pytest.mark.parametrize(
    ("attribute", "value", "offence"),
    [
        ("foreign", "a file", "a timed result or argument lies in memory that its rank does not own: a file"),
        ("changes", ("time.time was replaced",), "tampered with its process while it was timed: time.time was"),
    ],
)
def test_what_any_rank_does_is_held_against_its_kernel(attribute: str, value: object, offence: str) -> None:
    """Here it is the last one."""
    bench = Bench(case(0))
    setattr(bench.candidate, attribute, value)
    [timed] = bench.time()
    assert str(timed.offence).startswith(offence)
    assert () == timed.timings


def test_a_kernel_that_does_not_load_a_second_time_has_no_time() -> None:
    """It may load when it is tested, and raise when it is timed: the run goes on."""
    bench = Bench(case(0), case(1))
    bench.candidate.problem = Raised("error", "rank 1: ImportError: not now", "")
    assert ["rank 1: ImportError: not now"] * 2 == [timed.problem for timed in bench.time()]


def test_a_rank_that_dies_in_a_block_costs_that_case_alone() -> None:
    """The next case is timed on a new group."""
    bench = Bench(case(0), case(1))
    deaths = [1]

    def dies_once(_block: TimeBlock) -> None:
        if deaths:
            deaths.pop()
            bench.candidate.retire()
            raise WorkerFailed(Status.CRASHED, "rank 1: ended by signal 11", ())

    bench.candidate.act = dies_once
    first, second = bench.time()
    assert ("rank 1: ended by signal 11", ()) == (first.problem, first.timings)
    assert (None, 1) == (second.problem, len(second.timings))
