"""The near end of a lane that another process serves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

import msgspec

from opsmith.core.run import TimedCase
from opsmith.core.timing import Clock
from opsmith.core.verdict import Verdict
from opsmith.runner.executors.messages import (
    CaseTimed,
    DiscoverOps,
    Done,
    EndSlot,
    EntryEnumerated,
    EnumerateEntry,
    JudgeFamily,
    LaneOpened,
    LaneProblem,
    LaneReply,
    LaneRequest,
    ListLaneOps,
    OpenLane,
    PauseLane,
    TimeFamily,
    VerdictsFound,
    error_of,
    pack_family,
)
from opsmith.runner.protocol.call_files import SentCalls
from opsmith.runner.protocol.job import Job
from opsmith.runner.protocol.lane import EntryAsked, LaneFacts
from opsmith.runner.protocol.referee_messages import Enumerated, OpsListed
from opsmith.runner.protocol.worker_messages import Discovered, Raised

Reply = TypeVar("Reply", bound=msgspec.Struct)


class Wire(Protocol):
    """Carries messages to a :class:`~opsmith.runner.executors.lane_host.LaneHost`."""

    def ask(self, slot: int, request: LaneRequest) -> Iterator[LaneReply]:
        """Send a request, and yield the replies up to the last one.

        Raises:
            LaneLost: there is nobody at the other end, or not any more.
        """
        ...

    def bring(self, jobs: Sequence[Job]) -> list[Job]:
        """See that the other end has the files of these jobs' kernels; the jobs as they are told to it."""
        ...


class RemoteLane:
    """A :class:`~opsmith.runner.protocol.lane.Lane` at the other end of a wire.

    Args:
        wire: to it.
        calls: where the serialized calls of all cases are kept.
    """

    def __init__(self, wire: Wire, calls: SentCalls) -> None:
        self.clock: Clock | None = None
        self._wire = wire
        self._calls = calls

    def open(self, request: OpenLane) -> None:
        """Have it started.

        Raises:
            BadInput: its device cannot be used.
            LaneLost: it did not start.
        """
        self._facts = self._ask(0, request, LaneOpened).facts

    @property
    def facts(self) -> LaneFacts:
        return self._facts

    def list_ops(self) -> OpsListed:
        return self._ask(0, ListLaneOps(), OpsListed)

    def discover(self, target: str, ops: Sequence[str]) -> Discovered | Raised:
        [reply] = self._replies(0, DiscoverOps(target, tuple(ops)))
        assert isinstance(reply, (Discovered, Raised))
        return reply

    def enumerate(self, slot: int, asked: EntryAsked) -> Enumerated:
        reply = self._ask(slot, EnumerateEntry(asked), EntryEnumerated)
        cases = self._calls.add(reply.enumerated.cases, reply.calls)
        return msgspec.structs.replace(reply.enumerated, cases=cases)

    def judge(self, slot: int, family: Sequence[Job], to_come: float) -> Iterator[Verdict]:
        request = JudgeFamily(pack_family(self._wire.bring(family), self._calls), to_come)
        for reply in self._replies(slot, request):
            assert isinstance(reply, VerdictsFound)
            yield from reply.verdicts

    def end_slot(self, slot: int) -> None:
        for _ in self._replies(slot, EndSlot()):
            pass

    def time(self, family: Sequence[Job]) -> Iterator[TimedCase]:
        for reply in self._replies(0, TimeFamily(pack_family(self._wire.bring(family), self._calls))):
            assert isinstance(reply, CaseTimed)
            self.clock = reply.clock
            yield reply.timed

    def pause(self) -> None:
        for _ in self._replies(0, PauseLane()):
            pass

    def _ask(self, slot: int, request: LaneRequest, kind: type[Reply]) -> Reply:
        [reply] = self._replies(slot, request)
        assert isinstance(reply, kind)
        return reply

    def _replies(self, slot: int, request: LaneRequest) -> Iterator[LaneReply]:
        for reply in self._wire.ask(slot, request):
            if isinstance(reply, LaneProblem):
                raise error_of(reply)
            if isinstance(reply, Done):
                return
            yield reply
