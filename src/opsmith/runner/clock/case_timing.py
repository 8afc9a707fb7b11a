"""Timing the cases of a job on a slot's two processes, several at a time, and judging what the timed calls returned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from opsmith.core.case import CaseRef, StoredOutcome, SummarisedOutcome
from opsmith.core.kernel import Loader
from opsmith.core.op import TaskKind
from opsmith.core.run import Options, TimedCase
from opsmith.core.seeds import derive_seed
from opsmith.core.timing import Cause, Timing, Undecided, Work
from opsmith.core.verdict import Status, one_line
from opsmith.errors import RefereeFailed
from opsmith.evaluation.roofline.limits import Plausibility
from opsmith.evaluation.timing.statistics import are_settled, combined_of
from opsmith.runner.clock.device_limits import DeviceLimits
from opsmith.runner.clock.stopwatch import ClockSettings, Found, PairedClock, Place
from opsmith.runner.clock.timed_pairs import Dishonest, Pair, TooShort
from opsmith.runner.clock.timed_processes import RefereeSide, WorkerSide
from opsmith.runner.machine.process_memory import foreign_memory
from opsmith.runner.processes.failures import RefereeDied, WorkerFailed
from opsmith.runner.processes.referee_link import RefereeLink
from opsmith.runner.processes.worker_link import WorkerLink
from opsmith.runner.protocol.call_files import Spool
from opsmith.runner.protocol.job import Job
from opsmith.runner.protocol.referee_messages import Compared, CompareTimed
from opsmith.runner.protocol.timing_messages import ShowTimed
from opsmith.runner.protocol.worker_messages import OUT_OF_PROTOCOL, Answered, Inspect, Inspected, Raised

#: Cases that a device times together, and the bytes of their arguments, unless one alone has more.
MOST_TOGETHER = 16
MOST_TOGETHER_BYTES = 1 << 30
#: Further results that are looked at where a kernel is faster than the device was ever seen to be.
SECOND_LOOKS = 3
_STAND_IN_DECODER = msgspec.msgpack.Decoder(StoredOutcome | SummarisedOutcome)


class Look(NamedTuple):
    """What the candidate returned somewhere."""

    place: Place
    outcome: msgspec.Raw


class CaseTimer:
    """Times the cases of one job.

    Args:
        referee: of the slot.
        worker: of the slot; None where ranks are timed.
        spool: of all referees.
        job: whose cases these are.
        options: of the run.
        seed: of the run.
        settings: of the run's clock.
        limits: what the device can reach.
    """

    def __init__(
        self,
        referee: RefereeLink,
        worker: WorkerLink | None,
        spool: Spool,
        job: Job,
        *,
        options: Options,
        seed: int,
        settings: ClockSettings,
        limits: DeviceLimits,
    ) -> None:
        self._referee = referee
        self._process = worker
        self._spool = spool
        self._options = options
        self._seed = seed
        self._job = job
        self._settings = settings
        self._limits = limits
        # One case of each kernel is held against the judge's clock, whatever it shows.
        checked = derive_seed(seed, "cross-check", job.kernel.content_hash) % len(job.cases)
        self._cross_checked = job.cases[checked]
        self._looks: list[Look] = []
        self._offences: dict[int, str] = {}

    def time(self) -> Iterator[TimedCase]:
        """Time all cases, each group of them together."""
        for cases in _groups(self._job.cases, MOST_TOGETHER if "K" in self._settings.quantities else 1):
            yield from self._time_together(cases)

    def _time_together(self, cases: Sequence[CaseRef]) -> Iterator[TimedCase]:
        """If a process fails on the way, cases that are not known to be its cause are timed one by one."""
        self._looks, self._offences = [], {}
        clock = self._clock(cases)
        problem = ""
        try:
            timed = self._timed(cases, clock)
        except Dishonest as exc:
            self._offences.setdefault(clock.asked, str(exc))
        except (WorkerFailed, RefereeDied, RefereeFailed) as exc:
            problem = str(exc)
        else:
            yield from timed
            return
        offences = self._offences
        if len(cases) > 1:
            self._restart()
        for number, case in enumerate(cases):
            if number in offences:
                yield msgspec.structs.replace(self._untimed(case), offence=one_line(offences[number]))
            elif len(cases) > 1:
                yield from self._time_together([case])
            else:
                yield msgspec.structs.replace(self._untimed(case), problem=one_line(problem))

    def _untimed(self, case: CaseRef) -> TimedCase:
        job = self._job
        return TimedCase(op=job.schema.name, case=str(case.address), kernel=job.kernel.content_hash, timings=())

    def _clock(self, cases: Sequence[CaseRef]) -> PairedClock:
        return PairedClock(
            RefereeSide(self._referee),
            WorkerSide(self._worker, trusted=self._job.kernel.loader is Loader.ATEN),
            [self._spool.read(case) for case in cases],
            settings=self._settings,
            seed=derive_seed(self._seed, "timing", self._job.measurement, *[case.content_hash for case in cases]),
            look=self._look,
        )

    @property
    def _worker(self) -> WorkerLink:
        assert self._process is not None
        return self._process

    def _take_load_s(self) -> float | None:
        return self._worker.take_load_s()

    def _load(self) -> None:
        job = self._job
        problem = self._worker.load(job.kernel, job.root, job.schema, job.policy)
        if problem is not None:
            raise WorkerFailed(Status.LOAD_FAILED, problem.message, ())

    def _restart(self) -> None:
        """End both processes: the next request goes to new ones."""
        self._referee.close()
        self._worker.close()

    def _timed(self, cases: Sequence[CaseRef], clock: PairedClock) -> list[TimedCase]:
        """Each case with its times, or with what is held against the kernel.

        Raises:
            Dishonest: something is held against it that ends its process.
            WorkerFailed, RefereeDied, RefereeFailed: one of the processes failed.
        """
        self._load()
        clock.prepare()
        load_s = self._take_load_s()
        cross_checked = [number for number, case in enumerate(cases) if case is self._cross_checked]
        found = {quantity: clock.time(quantity, cross_checked=cross_checked) for quantity in self._settings.quantities}
        by_pair = [self._told(clock, pair, [of_all[pair.number] for of_all in found.values()]) for pair in clock.pairs]
        self._inspect_worker()
        self._judge_looks()
        if self._settings.quantities == "E":
            by_pair = [
                [self._in_fresh_processes(cases[number], one) for one in told] for number, told in enumerate(by_pair)
            ]
        timed = []
        for pair, told in zip(clock.pairs, by_pair, strict=True):
            ours, theirs = pair.reference_prepared, pair.candidate_prepared
            untimed, offence = self._untimed(cases[pair.number]), self._offences.get(pair.number)
            if offence is not None:
                timed.append(msgspec.structs.replace(untimed, offence=one_line(offence)))
                continue
            timed.append(
                msgspec.structs.replace(
                    untimed,
                    timings=tuple([one for one in told if isinstance(one, Timing)]),
                    undecided=tuple([one for one in told if isinstance(one, Undecided)]),
                    problem=next((str(problem) for problem in pair.problems.values()), None),
                    work=ours.work,
                    values=ours.values,
                    load_s=load_s if pair.number == 0 else None,
                    first_call_s=theirs.first_call_s,
                    reference_first_call_s=ours.first_call_s,
                    peak_bytes=theirs.peak_bytes,
                    reference_peak_bytes=ours.peak_bytes,
                )
            )
        return timed

    def _told(self, clock: PairedClock, pair: Pair, found: Sequence[Found]) -> list[Timing | Undecided]:
        """What there is to say of one pair, when it was held against what the device can reach."""
        told: list[Timing | Undecided] = []
        for one in found:
            if isinstance(one, Dishonest):
                self._offences.setdefault(pair.number, str(one))
            elif isinstance(one, TooShort):
                self._hold_at_most_against_limits(pair, one)
                told.append(one.undecided)
            elif isinstance(one, Timing):
                work = pair.reference_prepared.work
                told.append(one if work is None else self._against_limits(clock, pair, one, work))
        return told

    def _hold_at_most_against_limits(self, pair: Pair, found: TooShort) -> None:
        """Blocks too short to be measured may be so for the device as well: if the candidate's alone are, it lies."""
        work = pair.reference_prepared.work
        if work is None or found.quantity == "E":
            return
        reference, candidate = (self._limits.judge(us, work, calls=found.calls) for us in found.at_most_us)
        if candidate.plausibility is Plausibility.IMPOSSIBLE is not reference.plausibility:
            self._offences.setdefault(pair.number, f"faster than the device can be: {candidate.evidence}")

    def _against_limits(self, clock: PairedClock, pair: Pair, timing: Timing, work: Work) -> Timing | Undecided:
        is_all = self._settings.quantities == "E"
        if timing.quantity == "E" and not is_all:
            return timing  # The host's share only makes it longer: K has said what there is to say.
        calls = timing.calls_per_block
        if excess := self._limits.wrong_clock(timing, work):
            reason = f"not a measurement: the reference itself is faster than the device can be, it {excess}"
            return Undecided(quantity=timing.quantity, cause=Cause.BEYOND_DEVICE, reason=one_line(reason))
        timing = msgspec.structs.replace(timing, percent_of_floor=self._limits.percent_of_floor(timing, work))
        if is_all:
            return timing
        plausibility, evidence = self._limits.judge(timing.candidate_us, work, calls=calls)
        if plausibility is Plausibility.IMPOSSIBLE:
            self._offences.setdefault(pair.number, f"faster than the device can be: {evidence}")
        suspect = plausibility is Plausibility.SUSPECT
        if suspect:
            clock.look_again(pair, SECOND_LOOKS)
        return msgspec.structs.replace(timing, suspect=suspect)

    def _in_fresh_processes(self, case: CaseRef, first: Timing | Undecided) -> Timing | Undecided:
        """Time again in new pairs of processes until they agree, or until there were enough of them."""
        told = [first]
        while not are_settled(told):
            self._restart()
            self._load()
            clock = self._clock([case])
            clock.prepare()
            found = clock.time(first.quantity)
            told += self._told(clock, clock.pairs[0], found)  # E is never doubted, and was measured before.
            self._judge_looks()
        return combined_of(told, self._settings.precisions[first.quantity])

    def _look(self, places: Sequence[Place]) -> None:
        """Keep what was returned for later, when the clock no longer runs; or judge it now, if it does not last.

        Of a large result only a summary is shown at first, and the next block writes over the rest. All are shown
        before one is judged: a device takes a millisecond to change from one process to another. What lies in a file
        is judged at once, as the worker removes it when it shows the next one: a large result of which a part lies on
        the host has no summary.
        """
        summarised = []
        for place in places:
            look = Look(place, self._shown(place, in_full=False))
            stand_in = _stand_in(look.outcome)
            if stand_in is None:
                self._looks.append(look)
            elif isinstance(stand_in, StoredOutcome):
                self._hold_against(look, self._compared(look))
            else:
                summarised.append(look)
        for look in summarised:
            found = self._compared(look)
            if found.unclear:
                found = self._compared(look._replace(outcome=self._shown(look.place, in_full=True)))
            self._hold_against(look, found)

    def _inspect_worker(self) -> None:
        """Ask once what the kernel has replaced, of all calls and blocks together: it takes as long as several."""
        if self._job.policy is None:
            return
        inspected = self._worker.ask(Inspect(), (Inspected,))
        assert isinstance(inspected, Inspected)
        if inspected.changes:
            raise Dishonest(f"tampered with its process while it was timed: {inspected.changes[0]}")

    def _judge_looks(self) -> None:
        looks, self._looks = self._looks, []
        for look in looks:
            self._hold_against(look, self._compared(look))

    def _hold_against(self, look: Look, found: Compared) -> None:
        if found.unclear:
            raise WorkerFailed(Status.CRASHED, OUT_OF_PROTOCOL, ())
        for case in found.cases.values():
            if case.status is not Status.PASSED:
                offence = f"a timed call did not return the answer: {case.status}, {case.detail}"
                self._offences.setdefault(look.place.pair, offence)

    def _shown(self, place: Place, *, in_full: bool) -> msgspec.Raw:
        """What the candidate's last block of a call returned."""
        shown = self._worker.ask(ShowTimed(place.slot, in_full, place.pair), (Answered, Raised))
        if isinstance(shown, Raised):
            raise WorkerFailed(Status.ERROR, f"raised when a timed result was looked at: {shown.message}", ())
        if len(shown.replies) != 1 or isinstance(shown.replies[0], Raised) or len(shown.replies[0].outcomes) != 1:
            raise WorkerFailed(Status.CRASHED, OUT_OF_PROTOCOL, ())
        foreign = shown.foreign or foreign_memory(self._worker.pid, shown.spans)
        if foreign is not None:
            offence = (
                f"a timed result or argument lies in memory that its process does not own, or may not write: {foreign}"
            )
            self._offences.setdefault(place.pair, offence)
        [reply] = shown.replies
        [outcome] = reply.outcomes
        assert isinstance(outcome, msgspec.Raw)
        return outcome

    def _compared(self, look: Look) -> Compared:
        compared = self._referee.ask(self._compare_request(look), Compared)
        assert isinstance(compared, Compared)
        return compared

    def _compare_request(self, look: Look) -> CompareTimed:
        # The oracle needs a module's state, which is no argument of the timed call.
        tolerance = "kernelbench" if self._job.schema.kind is TaskKind.MODULE else self._options.tolerance
        folder = "" if self._process is None else str(self._process.folder)
        pair, slot, round_number = look.place
        return CompareTimed(slot, round_number, look.outcome, tolerance, self._options.layout, folder, pair)


def _groups(cases: Sequence[CaseRef], most: int) -> Iterator[list[CaseRef]]:
    """The cases in their order, some together."""
    group: list[CaseRef] = []
    for case in cases:
        size_bytes = sum(other.size_bytes for other in group) + case.size_bytes
        if group and (len(group) == most or size_bytes > MOST_TOGETHER_BYTES):
            yield group
            group = []
        group.append(case)
    if group:
        yield group


def _stand_in(message: msgspec.Raw) -> StoredOutcome | SummarisedOutcome | None:
    """What stands for an outcome in a message; None if it is, as far as it goes, the outcome itself."""
    try:
        found: StoredOutcome | SummarisedOutcome = _STAND_IN_DECODER.decode(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found
