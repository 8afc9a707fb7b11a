"""When a case is timed again, and what its measurements say together; the lanes are stand-ins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pytest
from tests.unit.runner.fleet_stand_ins import StandInLane, job

from opsmith.core.run import Options, TimedCase
from opsmith.core.timing import Cause, Label, Timing, Undecided
from opsmith.evaluation.timing.statistics import MOST_PROCESSES, Estimate, precisions_of, timing_of
from opsmith.runner.fleet.fleet import Fleet
from opsmith.runner.protocol.job import Job

OPTIONS = Options(suite="opinfo", backend="test", device="cuda", dtypes=("f32",), timing="quick")
QUICK_E = precisions_of("quick", "KE")["E"]
#: Logarithms: far from where claims begin, near it on this side and on that.
FAR, SHORT_OF_IT, BEYOND_IT = 0.5, 0.10, 0.13
TOO_SHORT = Undecided(quantity="E", cause=Cause.TOO_SHORT, reason="too short to be measured")


def found(centre: float) -> Timing:
    """What one measurement says, of E."""
    estimated = Estimate(centre=centre, low=centre - 0.01, high=centre + 0.01)
    return timing_of(
        [1.0] * 10,
        [1.0] * 10,
        estimated,
        precision=QUICK_E,
        noise=0.0,
        calls_per_block=4,
        quantity="E",
        discarded=0,
    )


class TimingLane(StandInLane):
    """Times cases as it is told to, measurement by measurement.

    Args:
        says: of each op, what its measurements find: a logarithm, that nothing can be said, or the case as it is.
    """

    def __init__(self, number: int, says: Mapping[str, Sequence[float | Undecided | TimedCase]]) -> None:
        super().__init__(number)
        self._says = says
        self.measurements: list[tuple[str, int]] = []

    def time(self, family: Sequence[Job]) -> Iterator[TimedCase]:
        """In the order in which they are asked for."""
        for each in family:
            self.measurements.append((each.schema.name, each.measurement))
            for timed in super().time([each]):
                says = self._says[each.schema.name][each.measurement]
                if isinstance(says, Undecided):
                    yield msgspec.structs.replace(timed, undecided=(says,))
                elif isinstance(says, float):
                    yield msgspec.structs.replace(timed, timings=(found(says),), load_s=float(each.measurement))
                else:
                    yield msgspec.structs.replace(timed, problem=says.problem, offence=says.offence)


def timed(lane: TimingLane, *ops: str) -> dict[str, TimedCase]:
    """What becomes of these ops, of one case each, each told once."""
    cases = list(Fleet([lane], OPTIONS).time([job(op, 1) for op in ops]))
    assert Counter(ops) == Counter(case.op for case in cases)
    return {case.op: case for case in cases}


def test_what_is_in_doubt_is_timed_again_when_all_others_have_been() -> None:
    """And what is not, once."""
    lane = TimingLane(0, {"near": [SHORT_OF_IT, SHORT_OF_IT, SHORT_OF_IT], "far": [FAR], "other": [0.0]})
    cases = timed(lane, "near", "far", "other")
    assert [("near", 0), ("far", 0), ("other", 0), ("near", 1), ("near", 2)] == lane.measurements
    assert {"near": 3, "far": 1, "other": 1} == {op: case.timings[0].processes for op, case in cases.items()}
    assert MOST_PROCESSES == 3


@pytest.mark.parametrize(
    ("measurements", "label"),
    [
        ([BEYOND_IT, SHORT_OF_IT, BEYOND_IT], Label.FASTER),
        ([BEYOND_IT, SHORT_OF_IT, SHORT_OF_IT], Label.SAME),
        ([BEYOND_IT, 0.2], Label.FASTER),
        ([SHORT_OF_IT, 0.0], Label.SAME),
    ],
)
def test_a_label_is_what_most_measurements_say(measurements: list[float], label: Label) -> None:
    """Two that agree, and whose mean is far from where claims begin, are enough."""
    lane = TimingLane(0, {"op": measurements})
    [timing] = timed(lane, "op")["op"].timings
    assert label is timing.label
    assert len(measurements) == len(lane.measurements) == timing.processes
    assert 10 * len(measurements) == timing.blocks


def test_a_run_that_is_taken_up_again_knows_of_its_measurements() -> None:
    """What was found before counts, and what was not measured at all comes first."""
    says = {"twice": [SHORT_OF_IT, SHORT_OF_IT, 0.0], "once": [SHORT_OF_IT, 0.0], "new": [FAR], "other": [FAR]}
    jobs = [job(op, 1) for op in ("twice", "once", "new")]
    measurements: list[TimedCase] = []
    list(Fleet([TimingLane(0, says)], OPTIONS).time(jobs[:2], note=measurements.append))
    assert Counter({"twice": 2, "once": 1}) == Counter(timed.op for timed in measurements)
    lane = TimingLane(0, says)
    told = list(Fleet([lane], OPTIONS).time(jobs, earlier=measurements))
    assert [("new", 0), ("once", 1), ("twice", 2)] == lane.measurements
    assert {"twice": 3, "once": 2, "new": 1} == {case.op: case.timings[0].processes for case in told}


def test_what_the_first_visit_took_to_load_is_what_loading_takes() -> None:
    """At the next one everything has been compiled."""
    assert timed(TimingLane(0, {"op": [SHORT_OF_IT, 0.0]}), "op")["op"].load_s == 0.0


def test_what_any_visit_finds_against_a_kernel_counts() -> None:
    """And ends its measurements."""
    offence = TimedCase(op="", case="", kernel="", timings=(), offence="it cheats")
    lane = TimingLane(0, {"op": [SHORT_OF_IT, offence]})
    case = timed(lane, "op")["op"]
    assert ("it cheats", ()) == (case.offence, case.timings)
    assert [("op", 0), ("op", 1)] == lane.measurements


def test_a_visit_that_measures_nothing_leaves_what_was_found() -> None:
    """The device may lack memory then; another one would not say more."""
    problem = TimedCase(op="", case="", kernel="", timings=(), problem="out of memory")
    lane = TimingLane(0, {"op": [SHORT_OF_IT, problem]})
    case = timed(lane, "op")["op"]
    assert (None, found(SHORT_OF_IT)) == (case.problem, *case.timings)[:2]
    assert [("op", 0), ("op", 1)] == lane.measurements


@pytest.mark.parametrize(
    ("measurements", "processes"),
    [
        ([TOO_SHORT, FAR, FAR], 2),
        ([TOO_SHORT, TOO_SHORT, FAR], None),
        ([TOO_SHORT, FAR, TOO_SHORT], None),
        ([BEYOND_IT, TOO_SHORT, TOO_SHORT], None),
        ([BEYOND_IT, TOO_SHORT, BEYOND_IT], 2),
    ],
)
def test_what_could_not_be_measured_once_is_asked_again(
    measurements: Sequence[float | Undecided], processes: int | None
) -> None:
    """Nothing is said of what most measurements say nothing of."""
    lane = TimingLane(0, {"op": measurements})
    case = timed(lane, "op")["op"]
    assert MOST_PROCESSES == len(lane.measurements)
    if processes is None:
        assert ((), (TOO_SHORT,)) == (case.timings, case.undecided)
    else:
        assert ([processes], ()) == ([timing.processes for timing in case.timings], case.undecided)
