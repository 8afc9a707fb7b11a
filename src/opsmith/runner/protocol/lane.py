"""Lanes: where a run's work is done, one lane a device, and the executors that make them.

This is the contract between a run and the machines that it uses. :class:`~opsmith.runner.fleet.fleet.Fleet` divides the
work; a lane does what it is given, on its device, with its own referees and workers::

    class Mine:
        def __init__(self, argument: str, devices: str) -> None: ...

        @contextlib.contextmanager
        def lanes(self, work: LaneWork, waiting: Waiting | None = None) -> Iterator[Sequence[Lane]]: ...

    [project.entry-points."opsmith.executors"]
    mine = "my_package:Mine"
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from opsmith.core.environment import Environment
from opsmith.core.run import Options, TimedCase
from opsmith.core.timing import Clock
from opsmith.core.verdict import Verdict
from opsmith.errors import InternalError
from opsmith.runner.protocol.job import Job
from opsmith.runner.protocol.limits import Limits
from opsmith.runner.protocol.referee_messages import Enumerated, OpsListed
from opsmith.runner.protocol.worker_messages import Discovered, Raised

#: Told, from another thread, for how many seconds somebody has waited.
Waiting = Callable[[float], None]


class LaneLost(InternalError):
    """A lane ended in the middle of its work: its process was killed, or its machine is gone."""


class LaneWork(msgspec.Struct, frozen=True, kw_only=True):
    """What a lane has to know of a run to serve it.

    Attributes:
        options: of the run.
        seed: of the run; cases and random states follow from it.
        jobs: ops judged at a time on each device; None for what the device deserves.
        limits: time limits.
        withheld: folders that no worker may read.
        kernels: workers are kept ready for at most so many, of which each slot has one in any case; None if nobody
            knows how many there are.
        again: cases get other values to be called with again.
        with_compiler: kernels use torch's compiler.
        share: (number, of): which of how many lanes that divide a machine's processors among them.
    """

    options: Options
    seed: int
    jobs: int | None = 1
    limits: Limits = Limits()
    withheld: tuple[str, ...] = ()
    kernels: int | None = None
    again: bool = False
    with_compiler: bool = False
    share: tuple[int, int] = (0, 1)


class LaneFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a lane says of itself when it is open.

    Attributes:
        environment: versions and hardware.
        identity: what tells the device from others on its machine.
        host: the machine's name.
        machine: what tells it from all others, whatever it is called.
        slots: ops judged at a time.
        interpreted: Triton kernels run under Triton's interpreter.
        sandbox: layers that isolate its workers.
        sandbox_missing: those that its machine cannot give -> why.
    """

    environment: Environment
    identity: str
    host: str
    machine: str
    slots: int
    interpreted: bool
    sandbox: tuple[str, ...]
    sandbox_missing: dict[str, str] = {}


class EntryAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A suite entry that is to be turned into cases.

    Attributes:
        entry: its name.
        dtype: the dtype asked of it.
        ops: overloads wanted, or None for all.
        afresh: record what was recorded before, too: it went to somebody who is gone.
    """

    entry: str
    dtype: str
    ops: tuple[str, ...] | None
    afresh: bool = False


class Lane(Protocol):
    """One device. Its slots are numbered from 0; each is used by one thread at a time, different ones by several.

    Every method raises :class:`LaneLost` when nothing more is to be had from the lane.
    """

    @property
    def clock(self) -> Clock | None:
        """How it was set up, once something was timed."""
        ...

    @property
    def facts(self) -> LaneFacts:
        """What it says of itself."""
        ...

    def list_ops(self) -> OpsListed:
        """Every ATen overload's schema and the suite's entries."""
        ...

    def discover(self, target: str, ops: Sequence[str]) -> Discovered | Raised:
        """Ask a stranger's backend, in a worker, which of ``ops`` it answers."""
        ...

    def enumerate(self, slot: int, asked: EntryAsked) -> Enumerated:
        """Turn one suite entry into cases, which are good for every lane of the executor.

        An entry that kills the referee is asked once more of a new one, and then skipped with that reason.
        """
        ...

    def judge(self, slot: int, family: Sequence[Job], to_come: float) -> Iterator[Verdict]:
        """Judge jobs that the same kernel answers; ``to_come``: so many families follow on this slot, on average."""
        ...

    def end_slot(self, slot: int) -> None:
        """End the processes of a slot that no family is left for; one that is given back later starts others."""
        ...

    def time(self, family: Sequence[Job]) -> Iterator[TimedCase]:
        """Time jobs that the same kernel answers, while nobody else uses the device; nothing is judged meanwhile."""
        ...

    def pause(self) -> None:
        """End the processes that are kept ready, so that another lane of the same device can time."""
        ...


class Executor(Protocol):
    """Makes lanes; made with what follows the colon in ``--executor NAME:ARGUMENT``, and with ``--devices``."""

    def lanes(self, work: LaneWork, waiting: Waiting | None = None) -> AbstractContextManager[Sequence[Lane]]:
        """Open one lane a device and close them in the end.

        Args:
            work: the run.
            waiting: told, from another thread, when another run has a device and for how long that takes by now.

        Raises:
            BadInput: a device cannot be used, or there are not as many as were asked for.
        """
        ...
