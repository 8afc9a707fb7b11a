"""The seconds that judging and timing one kernel may take; the lane is a stand-in."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from opsmith.core.case import CaseAddress, CaseRef
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import OpSchema, Variant
from opsmith.core.run import Options, PlannedOp, TimedCase
from opsmith.core.timing import Cause
from opsmith.core.verdict import Part, Status, Verdict
from opsmith.runner.processes.failures import TIME_IS_OVER
from opsmith.runner.protocol.job import Job
from opsmith.session import Judged, Session, Watch

MOST_S = 0.5
KERNEL = Kernel(task="relu.default", backend="mine", loader=Loader.FILE, entry="k.py:relu", dsl="torch")


def case(number: int, *, expects_error: bool = False) -> CaseRef:
    """A case of the op."""
    address = CaseAddress("opinfo", "relu", "f32", "error" if expects_error else "sample", number, 0)
    return CaseRef(
        address=address, op="relu.default", signature="", content_hash=str(number), size_bytes=4, spool=0, offset=0,
        length=1, expects_error=expects_error,
    )  # fmt: skip


def verdict(number: int, status: Status = Status.PASSED, **more: Any) -> Verdict:
    """About a case."""
    fields = {"case": str(case(number).address), "dtype": "f32", "content_hash": "", **more}
    return Verdict(op="relu.default", kernel="k", status=status, **fields)


class Lane:
    """Says what it is told, each after a while."""

    def __init__(self, found: list[tuple[float, Verdict]], timed: list[tuple[float, TimedCase]]) -> None:
        self._found, self._timed = found, timed
        self.given_s: list[float] = []

    def judge_alone(self, _job: Job, *, most_s: float, begun: Callable[[], None]) -> Iterator[Verdict]:
        """The verdicts."""
        self.given_s.append(most_s)
        begun()
        for after_s, each in self._found:
            time.sleep(after_s)
            yield each

    def time_alone(self, _job: Job, *, most_s: float, begun: Callable[[], None]) -> list[TimedCase]:
        """The times."""
        self.given_s.append(most_s)
        begun()
        for after_s, _ in self._timed:
            time.sleep(after_s)
        return [each for _, each in self._timed]


def judged(
    monkeypatch: pytest.MonkeyPatch,
    found: list[tuple[float, Verdict]],
    timed: list[tuple[float, TimedCase]] | None = None,
    *,
    cases: int = 2,
) -> tuple[Judged, Lane]:
    """What a session finds whose lane says so."""
    options = Options(
        suite="opinfo", backend="x", device="cpu", dtypes=("f32",), timing="off" if timed is None else "quick"
    )
    session = Session(options, Path("unused"))
    lane = Lane(found, timed or [])
    schema = OpSchema(name="relu.default", schema="", variant=Variant.FUNCTIONAL)
    all_cases = tuple(case(number) for number in range(cases))
    job = Job(schema=schema, kernel=KERNEL, root=None, cases=all_cases, counts={}, all_cases=all_cases)
    planned = PlannedOp(op="relu.default", schema="", cases=cases, error_cases=0, kernel=KERNEL, kernel_hash="k")
    monkeypatch.setattr(session, "_lane", lane, raising=False)
    monkeypatch.setattr(session, "_interpreted", False, raising=False)
    monkeypatch.setattr(session, "_job", lambda *_: job)
    monkeypatch.setattr(session, "_chosen", lambda *_: all_cases)
    monkeypatch.setattr(session, "_planned", lambda *_: planned)
    monkeypatch.setattr("opsmith.session.timed_part", lambda *_, **__: job)
    watch = Watch()
    result = session.judge_kernel("relu.default", KERNEL, most_s=MOST_S, watch=watch)
    assert watch.seconds == result.device_s
    return result, lane


CONDUCT = verdict(0, part=Part.CONDUCT)


@pytest.mark.slow
@pytest.mark.parametrize(
    "late",
    [
        verdict(1),
        verdict(1, Status.REFERENCE_FAILED, detail=f"eager gave {TIME_IS_OVER}"),
        verdict(9, expects_error=True),
        CONDUCT,
    ],
    ids=["a case", "its reference", "a bad call", "conduct"],
)
def test_what_is_not_judged_in_time_is_not_accepted(monkeypatch: pytest.MonkeyPatch, late: Verdict) -> None:
    """Its variants, and what else comes after that verdict, are asked no more: it was accepted without them."""
    before = [(0.0, verdict(0)), *([(0.0, verdict(1))] if late.case != verdict(1).case else [])]
    found, _ = judged(monkeypatch, [*before, (MOST_S + 0.05, late), (0.0, verdict(0, part=Part.VARIANT))])
    assert not found.accepted
    assert [(Status.TIMEOUT, TIME_IS_OVER)] == [(each.status, each.detail) for each in found.verdicts]


def test_a_mistake_that_is_found_late_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says more than that the time is over."""
    found, _ = judged(monkeypatch, [(0.0, verdict(0)), (MOST_S + 0.05, verdict(1, Status.WRONG_VALUE))])
    assert [Status.WRONG_VALUE] == [each.status for each in found.verdicts]


@pytest.mark.parametrize("late", [False, True])
def test_timing_has_what_judging_left_over(monkeypatch: pytest.MonkeyPatch, *, late: bool) -> None:
    """Times of some of the cases would favour who is slow on the others; what is dishonest stays so."""
    times = [
        TimedCase(op="relu.default", case=str(case(0).address), kernel="k", timings=()),
        TimedCase(op="relu.default", case=str(case(1).address), kernel="k", timings=(), offence="a replay"),
    ]
    found, lane = judged(
        monkeypatch,
        [(0.1, verdict(0)), (0.0, verdict(1)), (0.0, CONDUCT)],
        [(MOST_S if late else 0.0, each) for each in times],
    )
    first, second = lane.given_s
    assert second <= first - 0.1
    by_case = {each.case: each for each in found.verdicts}
    assert Status.DISHONEST is by_case[str(case(1).address)].status
    cut_off = {(each.case, one.cause, one.reason) for each in found.verdicts for one in each.undecided}
    assert ({(str(case(0).address), Cause.CUT_OFF, TIME_IS_OVER)} if late else set()) == cut_off
