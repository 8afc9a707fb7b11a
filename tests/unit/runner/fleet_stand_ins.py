"""Lanes that judge nothing, and jobs for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from opsmith.core.case import CaseAddress, CaseRef
from opsmith.core.environment import Environment
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import OpSchema, Variant
from opsmith.core.run import TimedCase
from opsmith.core.timing import Clock
from opsmith.core.verdict import Part, Status, Verdict
from opsmith.runner.judge.verdicts import make_verdict
from opsmith.runner.protocol.job import Job
from opsmith.runner.protocol.lane import EntryAsked, LaneFacts, LaneLost
from opsmith.runner.protocol.referee_messages import Enumerated, OpsListed
from opsmith.runner.protocol.worker_messages import Discovered


def facts(device: int, *, slots: int = 1, torch: str = "2.13.0") -> LaneFacts:
    """Of a lane on a device of its own."""
    environment = Environment(
        opsmith="1",
        python="3.11",
        torch=torch,
        triton=None,
        platform="Linux",
        cpu="a CPU",
        cpu_count=4,
        memory_gib=1.0,
        device="cuda",
        device_name="a GPU",
    )
    return LaneFacts(
        environment=environment,
        identity=f"GPU-{device}",
        host="here",
        machine="here",
        slots=slots,
        interpreted=False,
        sandbox=(),
    )


class StandInLane:
    """Passes every case, and is lost when it has given so many results.

    Attributes:
        done: what it was given, in order.
        asked: the entries that it was asked for.
        ended: the slots that were.
        paused: whether it was.
    """

    def __init__(self, number: int, *, lives: float = float("inf"), slots: int = 1, device: int | None = None) -> None:
        self.clock: Clock | None = None
        self.facts = facts(number if device is None else device, slots=slots)
        self.done: list[list[Job]] = []
        self.asked: list[EntryAsked] = []
        self.ended: list[int] = []
        self.paused = False
        self.before_result: Callable[[], object] = lambda: None
        self._lives = lives
        self._lock = threading.Lock()

    def _live_on(self) -> None:
        self.before_result()
        with self._lock:
            self._lives -= 1
            if self._lives < 0:
                raise LaneLost("killed")

    def list_ops(self) -> OpsListed:
        self._live_on()
        return OpsListed((), ())

    def discover(self, target: str, ops: Sequence[str]) -> Discovered:
        raise NotImplementedError

    def enumerate(self, slot: int, asked: EntryAsked) -> Enumerated:
        self.asked.append(asked)
        self._live_on()
        return Enumerated((), {asked.entry: 1}, (), {})

    def judge(self, slot: int, family: Sequence[Job], to_come: float) -> Iterator[Verdict]:
        self.done.append(list(family))
        for job in family:
            for each in job.cases:
                self._live_on()
                yield make_verdict(job, each, Status.PASSED)
            if job.policy is not None:
                self._live_on()
                yield Verdict(
                    op=job.schema.name,
                    case=f"conduct:{job.schema.name}",
                    content_hash="",
                    dtype="",
                    kernel=job.kernel.content_hash,
                    status=Status.PASSED,
                    part=Part.CONDUCT,
                )

    def end_slot(self, slot: int) -> None:
        self.ended.append(slot)

    def time(self, family: Sequence[Job]) -> Iterator[TimedCase]:
        for job in family:
            for each in job.cases:
                self._live_on()
                yield TimedCase(op=job.schema.name, case=str(each.address), kernel=job.kernel.content_hash, timings=())

    def pause(self) -> None:
        self.paused = True


def job(op: str, cases: int, *, watched: bool = False) -> Job:
    """An op with so many cases, and a kernel of its own."""
    refs = tuple(
        CaseRef(
            address=CaseAddress("opinfo", op, "f32", "sample", number, 0),
            op=op,
            signature=f"{op} {number}",
            content_hash=f"{op} {number}",
            size_bytes=4,
            spool=0,
            offset=0,
            length=1,
        )
        for number in range(cases)
    )
    return Job(
        schema=OpSchema(name=op, schema=f"aten::{op}(Tensor self) -> Tensor", variant=Variant.FUNCTIONAL, tags=()),
        kernel=Kernel(task=op, backend="test", loader=Loader.FILE, entry=f"{op}.py:{op}", root=f"/{op}"),
        root=None,
        cases=refs,
        counts={},
        all_cases=refs,
        policy="native" if watched else None,
        integrity=watched,
    )
