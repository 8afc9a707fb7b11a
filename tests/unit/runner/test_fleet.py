"""How a fleet divides work among lanes, and what it makes of their loss; the lanes are stand-ins."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.runner.fleet_stand_ins import StandInLane, facts, job

from opsmith.core.run import Options, TimedCase
from opsmith.core.verdict import Status, Verdict
from opsmith.errors import BadInput
from opsmith.runner.fleet.fleet import Fleet
from opsmith.runner.judge.losses import MOST_LOSSES
from opsmith.runner.judge.verdicts import make_verdict
from opsmith.runner.protocol.job import Job
from opsmith.runner.protocol.lane import LaneLost
from opsmith.runner.protocol.referee_messages import OpsListed

OPTIONS = Options(suite="opinfo", backend="test", device="cuda", dtypes=("f32",), timing="quick")
WAIT_S = 10.0


def asked_of(jobs: Sequence[Job]) -> Counter[tuple[str, str]]:
    """What there has to be a verdict on, once."""
    return Counter(
        (job.schema.name, case)
        for job in jobs
        for case in (
            *(str(case.address) for case in job.cases),
            *([f"conduct:{job.schema.name}"] if job.policy else []),
        )
    )


def told(verdicts: Sequence[Verdict] | Sequence[TimedCase]) -> Counter[tuple[str, str]]:
    """What there are verdicts on."""
    return Counter((verdict.op, verdict.case) for verdict in verdicts)


def test_the_longest_family_is_taken_first() -> None:
    """So that no lane is left with it when the others have nothing more to do."""
    lane = StandInLane(0)
    list(Fleet([lane], OPTIONS).judge([job("short", 1), job("long", 9), job("middle", 4)]))
    assert ["long", "middle", "short"] == [family[0].schema.name for family in lane.done]


def test_all_slots_of_all_lanes_work_at_the_same_time() -> None:
    """Nobody goes on before everybody has a family."""
    together = threading.Barrier(3, timeout=WAIT_S)
    lanes = [StandInLane(0, slots=2), StandInLane(1)]
    for lane in lanes:
        lane.before_result = together.wait
    jobs = [job(f"op{number}", 1) for number in range(3)]
    assert asked_of(jobs) == told(list(Fleet(lanes, OPTIONS).judge(jobs)))


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=8),
    lives=st.lists(st.integers(0, 12), max_size=2),
    slots=st.integers(1, 3),
    watched=st.booleans(),
)
def test_whatever_is_lost_everything_is_judged_once(
    sizes: list[int], lives: list[int], slots: int, *, watched: bool
) -> None:
    """Lanes end anywhere; what they have told stays, and what is missing is judged by those that are left."""
    jobs = [job(f"op{number}", size, watched=watched) for number, size in enumerate(sizes)]
    lanes = [StandInLane(number, lives=left, slots=slots) for number, left in enumerate(lives)]
    verdicts = list(Fleet([*lanes, StandInLane(9)], OPTIONS).judge(jobs))
    assert asked_of(jobs) == told(verdicts)
    assert {Status.PASSED} == {verdict.status for verdict in verdicts}


def test_what_was_found_before_a_loss_counts_for_the_limits() -> None:
    """The lane that goes on knows of it, as a run does that is taken up again."""
    lanes = [StandInLane(0, lives=2), StandInLane(1, lives=3)]
    verdicts = list(Fleet(lanes, OPTIONS).judge([job("op", 5)]))
    [[[rest]]] = [lane.done for lane in lanes if lane.done[0][0].earlier]
    assert tuple(verdicts[: 5 - len(rest.cases)]) == rest.earlier
    assert 5 == len(rest.all_cases)


def test_a_run_whose_lanes_are_all_lost_says_how_it_goes_on() -> None:
    """What was found before is told before."""
    verdicts = Fleet([StandInLane(0, lives=2)], OPTIONS).judge([job("op", 5)])
    assert ["opinfo:op:f32:sample:0:0", "opinfo:op:f32:sample:1:0"] == [next(verdicts).case, next(verdicts).case]
    with pytest.raises(LaneLost, match="all 1 devices of the run were lost; continue it with --resume"):
        next(verdicts)


def test_a_family_that_lanes_are_lost_over_is_given_up() -> None:
    """It costs its kernel's verdicts, not the run."""
    lanes = [StandInLane(number) for number in range(MOST_LOSSES + 2)]

    def judge(lane: StandInLane) -> Callable[[int, Sequence[Job], float], Iterator[Verdict]]:
        def poisoned(slot: int, family: Sequence[Job], to_come: float) -> Iterator[Verdict]:
            for each in family:
                for number, case in enumerate(each.cases):
                    if each.schema.name == "poison" and number == 1:
                        raise LaneLost("killed")
                    yield make_verdict(each, case, Status.PASSED)

        return poisoned

    for lane in lanes:
        lane.judge = judge(lane)  # type: ignore[assignment, method-assign]
    jobs = [job("poison", 6), job("good", 3)]
    fleet = Fleet(lanes, OPTIONS)
    verdicts = list(fleet.judge(jobs))
    assert asked_of(jobs) == told(verdicts)
    statuses = Counter((verdict.op, verdict.status) for verdict in verdicts)
    # Each lane that took it judged the first case that was left.
    assert {
        ("poison", Status.PASSED): MOST_LOSSES,
        ("poison", Status.NOT_RUN): 6 - MOST_LOSSES,
        ("good", Status.PASSED): 3,
    } == statuses
    assert MOST_LOSSES == sum(device.lost for device in fleet.used_devices())


@pytest.mark.parametrize("sizes", [{"long": 9, "other": 1, "another": 1}, {"other": 9, "another": 9, "long": 1}])
def test_a_slot_that_no_family_is_left_for_is_ended_while_others_judge(sizes: dict[str, int]) -> None:
    """However many waited when it took its last one: their processes hold memory that the others may need."""
    lane = StandInLane(0, slots=2)
    judged = lane.judge

    def judge(slot: int, family: Sequence[Job], to_come: float) -> Iterator[Verdict]:
        if family[0].schema.name == "long":
            deadline = time.monotonic() + 10
            while not lane.ended and time.monotonic() < deadline:
                time.sleep(0.001)
            assert [1 - slot] == lane.ended
        yield from judged(slot, family, to_come)

    lane.judge = judge  # type: ignore[method-assign]
    list(Fleet([lane], OPTIONS).judge([job(op, size) for op, size in sizes.items()]))
    assert [0, 1] == sorted(lane.ended)


def test_entries_of_a_lost_lane_are_enumerated_afresh() -> None:
    """Its referees have left out what an earlier entry had, and that is gone with them."""
    lanes = [StandInLane(0, lives=3), StandInLane(1)]
    entries = [(f"entry{number}", "f32") for number in range(20)]
    found = dict(Fleet(lanes, OPTIONS).enumerate(entries, None))
    assert {number: {entry: 1} for number, (entry, _) in enumerate(entries)} == {
        number: enumerated.counts for number, enumerated in found.items()
    }
    lost = [asked.entry for asked in lanes[0].asked][3:]
    assert lost == [asked.entry for asked in lanes[1].asked if asked.afresh]


def test_a_question_to_anybody_goes_to_who_is_left() -> None:
    """Schemas are the same everywhere."""
    fleet = Fleet([StandInLane(0, lives=0), StandInLane(1)], OPTIONS)
    assert OpsListed((), ()) == fleet.list_ops()
    assert [True, False] == [device.lost for device in fleet.used_devices()]


def test_lanes_of_one_device_do_not_time_beside_each_other() -> None:
    """One of them times, the others let go of the device; a lane of another device times as well."""
    lanes = [StandInLane(0, device=7), StandInLane(1, device=7), StandInLane(2, device=8)]
    both = threading.Barrier(2, timeout=WAIT_S)
    for lane in lanes:
        lane.before_result = both.wait
    jobs = [job("one", 2), job("other", 2)]
    timed = list(Fleet(lanes, OPTIONS, first=3).time(jobs))
    assert asked_of(jobs) == told(timed)
    assert {3, 5} == {case.device for case in timed}
    assert [False, True, False] == [lane.paused for lane in lanes]


def test_timing_goes_on_where_a_lane_is_lost() -> None:
    """Even where the lane that times is the only one of its device that did."""
    lanes = [StandInLane(0, lives=3, device=7), StandInLane(1, device=7)]
    jobs = [job("one", 2), job("other", 4)]
    timed = list(Fleet(lanes, OPTIONS).time(jobs))
    assert asked_of(jobs) == told(timed)
    assert {0: 3, 1: 3} == Counter(case.device for case in timed)


def test_lanes_that_differ_are_refused() -> None:
    """A verdict must not depend on where it was found."""
    other = StandInLane(1)
    other.facts = facts(1, torch="2.12.0")
    with pytest.raises(BadInput, match=r"torch is 2\.13\.0 on here, 2\.12\.0 on here; choose some with --devices"):
        Fleet([StandInLane(0), other], OPTIONS)


def test_an_error_of_a_lane_ends_the_run_with_it() -> None:
    """It is raised where the verdicts are taken."""
    lane = StandInLane(0, slots=2)

    def fail() -> None:
        raise RuntimeError("a bug")

    lane.before_result = fail
    with pytest.raises(RuntimeError, match="a bug"):
        list(Fleet([lane], OPTIONS).judge([job("op", 3), job("other", 3)]))
