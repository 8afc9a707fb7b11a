"""A fleet: the lanes of a run, and how its work is divided among them.

Slots take pieces from one queue: entries of the suite in its order, families of jobs the longest first, and to time
one family a device at a time. Each piece is one lane's from beginning to end, so a timed pair never has its sides on
two devices. Of a lane that is lost, what it had is done by another one, without what it had told already: a result
that was passed on is never made again.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from opsmith.core.run import Options, TimedCase, UsedDevice
from opsmith.core.verdict import Verdict
from opsmith.errors import BadInput
from opsmith.evaluation.timing.statistics import precisions_under
from opsmith.runner.clock.remeasurement import Remeasurements
from opsmith.runner.fleet.durations import Durations
from opsmith.runner.fleet.work_queue import Piece, WorkQueue
from opsmith.runner.judge.losses import MOST_LOSSES, not_timed, rest_to_judge, rest_to_time
from opsmith.runner.judge.verdicts import not_run
from opsmith.runner.protocol.job import Job, families
from opsmith.runner.protocol.lane import EntryAsked, Lane, LaneFacts, LaneLost
from opsmith.runner.protocol.referee_messages import Enumerated, OpsListed
from opsmith.runner.protocol.worker_messages import Discovered, Raised

#: Marks the end of a slot's work in the queue of results.
_DONE = object()

Answer = TypeVar("Answer")


class _Kind(NamedTuple):
    """A kind of work.

    Attributes:
        do: does one item on a slot of a lane; told how many wait to be taken.
        rest: what is left of an item of which there are these results; None if nothing is.
        give_up: the results of an item that lanes are lost over.
        idle: called for a slot of a lane when no item waits to be taken.
    """

    do: Callable[[Lane, int, Any, int], Iterator[Any]]
    rest: Callable[[Any, Sequence[Any]], Any]
    give_up: Callable[[Any], Iterator[Any]]
    idle: Callable[[Lane, int], None] = lambda _lane, _slot: None


class _NoMore(Exception):
    """The lane of a slot is lost."""


class Fleet:
    """Divides the work of a run; see the module's docstring.

    Args:
        lanes: open ones, at least one.
        options: of the run.
        first: number of the first lane among the run's devices; those before it served an earlier start of the run.
        durations: what was judged before took so long; by default nothing is known, and a family counts by its cases.

    Raises:
        BadInput: the lanes cannot serve one run together.
    """

    def __init__(
        self, lanes: Sequence[Lane], options: Options, *, first: int = 0, durations: Durations | None = None
    ) -> None:
        self.options = options
        self._durations = durations or Durations()
        self._first = first
        self._lanes = list(lanes)
        self._lost: set[int] = set()
        _check_alike([lane.facts for lane in lanes] if len(lanes) > 1 else [])

    @property
    def facts(self) -> LaneFacts:
        """Of the first lane; in what a run depends on, the others are like it."""
        return self._lanes[0].facts

    def used_devices(self) -> tuple[UsedDevice, ...]:
        """The devices of all lanes, for the record."""
        return tuple(
            [
                UsedDevice(
                    name=lane.facts.environment.device_name,
                    identity=lane.facts.identity,
                    host=lane.facts.host,
                    jobs=lane.facts.slots,
                    lost=number in self._lost,
                    clock=lane.clock,
                )
                for number, lane in enumerate(self._lanes)
            ]
        )

    def list_ops(self) -> OpsListed:
        """See :meth:`~opsmith.runner.protocol.lane.Lane.list_ops`."""
        return self._on_any(lambda lane: lane.list_ops())

    def discover(self, target: str, ops: Sequence[str]) -> Discovered | Raised:
        """See :meth:`~opsmith.runner.protocol.lane.Lane.discover`."""
        return self._on_any(lambda lane: lane.discover(target, ops))

    def _on_any(self, ask: Callable[[Lane], Answer]) -> Answer:
        for number, lane in enumerate(self._lanes):
            try:
                if number not in self._lost:
                    return ask(lane)
            except LaneLost:
                self._lost.add(number)
        raise self._nobody_left()

    def enumerate(
        self, entries: Sequence[tuple[str, str]], ops: Sequence[str] | None
    ) -> Iterator[tuple[int, Enumerated]]:
        """Turn suite entries into cases, each exactly once.

        Yields:
            (index of the entry, its cases), in the order in which they are ready. Every referee
            sees its entries in ascending order, so the first entry that holds a signature records it.
        """
        wanted = None if ops is None else tuple(ops)
        asked = [EntryAsked(entry=entry, dtype=dtype, ops=wanted) for entry, dtype in entries]

        def work(lane: Lane, slot: int, item: tuple[int, EntryAsked], _left: int) -> Iterator[tuple[int, Enumerated]]:
            yield item[0], lane.enumerate(slot, item[1])

        def rest(item: tuple[int, EntryAsked], _found: Sequence[Any]) -> tuple[int, EntryAsked]:
            # Another referee may have left out what the lost one had recorded.
            return item[0], msgspec.structs.replace(item[1], afresh=True)

        def give_up(item: tuple[int, EntryAsked]) -> Iterator[tuple[int, Enumerated]]:
            address = f"{self.options.suite}:{item[1].entry}:{item[1].dtype}"
            yield item[0], Enumerated((), {}, (), {address: f"{MOST_LOSSES} devices were lost over it"})

        for _, found in self._run(list(enumerate(asked)), _Kind(work, rest, give_up)):
            yield found

    def judge(self, jobs: Sequence[Job]) -> Generator[Verdict]:
        """Judge jobs, the longest first, and yield verdicts as they are found, each once."""
        slots = sum(lane.facts.slots for lane in self._lanes)

        def work(lane: Lane, slot: int, family: list[Job], left: int) -> Iterator[Verdict]:
            began = time.monotonic()
            yield from lane.judge(slot, family, left / slots)
            self._durations.note(family, time.monotonic() - began)

        def end_slot(lane: Lane, slot: int) -> None:
            lane.end_slot(slot)

        def give_up(family: list[Job]) -> Iterator[Verdict]:
            for job in family:
                yield from not_run(job, job.cases, "took the device's judge with it")

        todo = self._durations.longest_first(families(jobs))
        try:
            for _, verdict in self._run(todo, _Kind(work, rest_to_judge, give_up, end_slot)):
                yield verdict
        finally:
            self._durations.save()

    def time(
        self,
        jobs: Sequence[Job],
        *,
        earlier: Iterable[TimedCase] = (),
        note: Callable[[TimedCase], None] | None = None,
    ) -> Iterator[TimedCase]:
        """Time jobs, the longest first, one family a device at a time, and yield each timed case once.

        Cases whose labels are in doubt come last: they are timed again when all others have been
        (:mod:`opsmith.runner.clock.remeasurement`).
        Where there are several lanes, a case names the one that it was timed on first by its number.

        Args:
            jobs: what is to be timed.
            earlier: what was found before of cases that were to be timed again, in the order in which it was.
            note: told what is found of such a case, to be ``earlier`` if the run is killed and taken up again.
        """
        if not jobs:
            return
        timing = self._timing_slots()
        for number, lane in enumerate(self._lanes):
            if number not in timing and number not in self._lost:
                lane.pause()

        def work(lane: Lane, _seat: int, family: list[Job], _left: int) -> Iterator[TimedCase]:
            return lane.time(family)

        def give_up(family: list[Job]) -> Iterator[TimedCase]:
            return not_timed(family, f"{MOST_LOSSES} devices were lost over it")

        alone = len(self._lanes) == 1 and not self._first
        remeasurements, everything = (
            Remeasurements(precisions_under(self.options), earlier=earlier, note=note),
            families(jobs),
        )
        while todo := remeasurements.due(everything):
            for number, timed in self._run(todo, _Kind(work, rest_to_time, give_up), self._timing_slots):
                device = None if alone else self._first + number
                whole = remeasurements.add(msgspec.structs.replace(timed, device=device))
                if whole is not None:
                    yield whole

    def _all_slots(self) -> dict[int, int]:
        return {n: lane.facts.slots for n, lane in enumerate(self._lanes) if n not in self._lost}

    def _timing_slots(self) -> dict[int, int]:
        """Of the lanes that share a device the first: only one times at a time, and the others would wait."""
        first: dict[tuple[str, str], int] = {}
        for number, lane in enumerate(self._lanes):
            if number not in self._lost:
                first.setdefault((lane.facts.machine, lane.facts.identity), number)
        return dict.fromkeys(first.values(), 1)

    def _run(
        self, items: Sequence[Any], kind: _Kind, slots: Callable[[], dict[int, int]] | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Do all items, and yield (number of the lane, result).

        Args:
            items: the pieces of work.
            kind: what is done with each.
            slots: lane -> how many of its slots take part; by default all slots of all lanes.
        """
        todo = WorkQueue(items)
        results: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def take_slot(number: int, slot: int) -> None:
            try:
                while (piece := self._next(number, slot, kind, todo)) is not None:
                    for result in self._serve(number, slot, piece, kind, todo):
                        results.put((number, result))
            except _NoMore:
                pass
            except BaseException as exc:  # noqa: BLE001 - handed to the caller's thread, which raises it
                results.put(exc)
            finally:
                results.put(_DONE)

        try:
            while len(todo):
                taken = [(n, slot) for n, count in (slots or self._all_slots)().items() for slot in range(count)]
                if not taken:
                    raise self._nobody_left()
                for place in taken:
                    threading.Thread(target=take_slot, args=place, daemon=True).start()
                yield from _collect(results, len(taken))
        finally:
            todo.stop()

    def _next(self, number: int, slot: int, kind: _Kind, todo: WorkQueue[Any]) -> Piece[Any] | None:
        """The next piece for a slot, which is told first if it has to wait for one or has had its last."""
        if not len(todo) and number not in self._lost:
            try:
                kind.idle(self._lanes[number], slot)
            except LaneLost as loss:
                self._lost.add(number)
                raise _NoMore from loss
        return todo.take()

    def _serve(self, number: int, slot: int, piece: Piece[Any], kind: _Kind, todo: WorkQueue[Any]) -> Iterator[Any]:
        """Do a piece, and yield its results; when the lane is lost, see that somebody else does the rest."""
        if number in self._lost:  # Another slot of it has noticed while this one waited.
            todo.put_back(piece)
            raise _NoMore
        found: list[Any] = []
        doing = kind.do(self._lanes[number], slot, piece.item, len(todo))
        try:
            for result in doing if piece.losses < MOST_LOSSES else kind.give_up(piece.item):
                found.append(result)
                yield result
                if todo.stopped:
                    return
        except LaneLost as loss:
            self._lost.add(number)
            left = kind.rest(piece.item, found)
            if left is None:
                todo.finish()
            else:
                todo.put_back(Piece(left, piece.losses + 1))
            raise _NoMore from loss
        todo.finish()

    def _nobody_left(self) -> LaneLost:
        return LaneLost(f"all {len(self._lanes)} devices of the run were lost; continue it with --resume")


def _collect(results: queue.SimpleQueue[Any], slots: int) -> Iterator[Any]:
    running = slots
    while running:
        result = results.get()
        if result is _DONE:
            running -= 1
        elif isinstance(result, BaseException):
            raise result
        else:
            yield result


def _check_alike(facts: Sequence[LaneFacts]) -> None:
    """A verdict must not depend on the lane that it was found on."""
    for name in ("opsmith", "torch", "triton", "device_name"):
        seen = {getattr(lane.environment, name): lane.host for lane in facts}
        if len(seen) > 1:
            what = ", ".join(f"{value} on {host}" for value, host in seen.items())
            raise BadInput(f"the devices of a run must be alike, and {name} is {what}; choose some with --devices")
