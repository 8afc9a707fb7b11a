"""The lane of a device that this process judges on: slots that share it, each a referee and a worker."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import Self

from opsmith.core.cache import build_folder
from opsmith.core.case import CaseRef
from opsmith.core.evidence import Evidence
from opsmith.core.op import TaskKind
from opsmith.core.run import TimedCase
from opsmith.core.storage import check_room, is_about_storage, storage_problem, wait_for_room
from opsmith.core.timing import Clock
from opsmith.core.verdict import Verdict
from opsmith.devices import kind_of
from opsmith.errors import BadInput, NoDeviceMemory, ProcessLost, RefereeFailed
from opsmith.runner.judge.admission import Admission
from opsmith.runner.judge.lane_timing import LaneTimer
from opsmith.runner.judge.losses import (
    MOST_LOSSES,
    again,
    given_up,
    not_timed,
    rest_to_judge,
    rest_to_time,
    through_losses,
)
from opsmith.runner.judge.slot import Slot
from opsmith.runner.machine.cores import default_jobs, machine_id
from opsmith.runner.machine.device_lock import DeviceLock, default_folder
from opsmith.runner.machine.device_room import SHARE, DeviceRoom, needed_bytes
from opsmith.runner.machine.environment import describe_environment, device_memory, workers_that_fit
from opsmith.runner.machine.gpus import OWN_DEVICES, can_do_without, files_of_others, first_device
from opsmith.runner.processes.bare_link import MOST_ON_DEVICE, BareLink
from opsmith.runner.processes.candidate import Candidate
from opsmith.runner.processes.children import Processes
from opsmith.runner.processes.failures import RefereeDied, RefereeHung
from opsmith.runner.processes.rank_group import RankGroup
from opsmith.runner.processes.referee_link import RefereeLink
from opsmith.runner.processes.starting import start_processes
from opsmith.runner.processes.worker_link import START_PAUSES_S, WorkerLink
from opsmith.runner.protocol.call_files import Spool
from opsmith.runner.protocol.job import Job
from opsmith.runner.protocol.lane import EntryAsked, LaneFacts, LaneWork, Waiting
from opsmith.runner.protocol.out_of_memory import is_oom
from opsmith.runner.protocol.referee_messages import DeviceOpened, Enumerate, Enumerated, ListOps, OpenDevice, OpsListed
from opsmith.runner.protocol.worker_messages import Discover, Discovered, Raised
from opsmith.suites.traits import traits_of

#: How often workers are forked while the referees still import the suite.
STOCKING_INTERVAL_S = 0.02
#: Workers that a slot has ready when the first kernel is judged: on an H200 as many contexts are made until then.
MAX_WORKERS_AHEAD = 10
#: Before an entry is asked again whose inputs found no memory, and again.
SAMPLING_PAUSES_S = (0.5, 1.0, 2.0)


class DeviceLane:
    """A :class:`~opsmith.runner.protocol.lane.Lane` in this process; a context manager.

    Args:
        processes: the zygote and its children.
        work: what it is opened for.
        waiting: told, from another thread, when another run has the device and for how long that takes by now.
    """

    def __init__(self, processes: Processes, work: LaneWork, *, waiting: Waiting | None = None) -> None:
        spool_folder = processes.scratch / "spool"
        spool_folder.mkdir()
        self._work = work
        self._processes = processes
        self._waiting = waiting
        self.spool = Spool(spool_folder)
        options = work.options
        self._kind = kind_of(options.device)
        others = files_of_others(processes.visible) if self._kind.nvidia_driver else frozenset()
        self._hidden = others if can_do_without(others) else frozenset()
        builds = build_folder()
        slots = work.jobs or default_jobs(options)
        spares = 1
        if not options.device.startswith("cpu"):
            processes.worker_limit = worker_limit(work, slots, processes.visible)
            spares = workers_ahead(work, slots, processes.worker_limit)
        self._make_referee = partial(
            RefereeLink,
            processes,
            spool_folder,
            device=options.device,
            builds=builds,
            threads=1,
            limits=work.limits,
            selection=options.selection,
            ops=options.ops,
        )
        make_link = partial(
            WorkerLink,
            processes,
            builds=builds,
            threads=1,
            limits=work.limits,
            withheld=(*map(Path, work.withheld), builds.parent),
            hidden=self._hidden,
            started_in=Path.cwd() if ":" in options.backend else None,
            one_kernel=options.isolation == "kernel",
        )
        reach = make_link(device=options.device, spares=0).reach
        self._bare = BareLink(processes, reach, device=options.device, limits=work.limits) if work.again else None
        self._make_discoverer = partial(make_link, device=options.device, spares=0)
        tasks = traits_of(options.suite).tasks
        if tasks.on_ranks:
            make_candidate: Callable[[], Candidate] = partial(
                RankGroup,
                processes,
                options.device,
                partial(make_link, spares=0),
                in_groups=tasks is TaskKind.PARALLEL,
            )
        else:
            make_candidate = partial(make_link, device=options.device, spares=spares)
        self._make_candidate = make_candidate
        self._admission = Admission()
        self._slots = [
            Slot(self._make_referee(), make_candidate(), self.spool, options, work.seed, self._admission, self._bare)
            for _ in range(slots)
        ]
        self._idle: queue.SimpleQueue[Slot] = queue.SimpleQueue()
        for slot in self._slots:
            self._admission.join(slot)
            self._idle.put(slot)
        self._timing = threading.Lock()
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Start the referees and the workers that are kept ready.

        Raises:
            BadInput: the device cannot be used.
        """
        self._open.callback(self.spool.close)
        self._open.callback(self.pause)
        try:
            self._open_device()
        except BaseException:
            self._open.close()
            raise
        self._stock_up()
        if self._bare is not None:
            self._bare.start()  # It imports torch while the cases are enumerated.
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._open.close()

    def _open_device(self) -> None:
        options = self._work.options
        # Contexts are made one after another: those of the referees, which are needed first, come first.
        for slot in self._slots:
            slot.referee.send(OpenDevice(options.suite))
        for slot in self._slots:
            opened = self._opened(slot)
            if opened.problem is not None:
                raise BadInput(f"device {options.device} cannot be used: {opened.problem}")
            most = max(options.selection.ranks, default=1)
            if options.device.startswith("cuda") and opened.count < most:
                raise BadInput(f"--ranks {most} needs as many GPUs; this machine has {opened.count}")
            self._device_name, self._identity = opened.name, opened.identity
        lock = self._admission.lock = DeviceLock(default_folder(), self._identity, waiting=self._waiting)
        self._timer = LaneTimer(
            self._work, self._slots, self._make_referee, self._make_candidate, lock=lock, identity=self._identity
        )
        self._open.callback(self._timer.close)

    def _opened(self, slot: Slot) -> DeviceOpened:
        """What a slot's referee says of the device; another one is started while the device has no memory for it.

        Raises:
            NoDeviceMemory: it has none, for long.
        """
        for pause_s in (*START_PAUSES_S, None):
            try:
                opened = slot.referee.receive(DeviceOpened)
                problem = opened.problem or ""
            except (RefereeDied, RefereeFailed) as death:
                if not is_oom(str(death)):
                    raise
                problem = str(death)
            if not is_oom(problem):
                break
            slot.referee.close()
            if pause_s is None:
                raise NoDeviceMemory(self._work.options.device)
            time.sleep(pause_s)
            slot.referee.send(OpenDevice(self._work.options.suite))
        assert isinstance(opened, DeviceOpened)
        return opened

    @cached_property
    def facts(self) -> LaneFacts:
        processes = self._processes
        return LaneFacts(
            environment=describe_environment(
                processes.facts, device=self._work.options.device, device_name=self._device_name
            ),
            identity=self._identity,
            host=platform.node(),
            machine=machine_id(),
            slots=len(self._slots),
            interpreted=processes.interpreted,
            sandbox=(*processes.sandbox, *([OWN_DEVICES] if self._hidden else [])),
            sandbox_missing=processes.sandbox_missing,
        )

    def _stock_up(self) -> None:
        for slot in self._slots:
            with contextlib.suppress(ProcessLost):  # What judges starts another one.
                slot.worker.prepare()

    def pause(self) -> None:
        for slot in self._slots:
            slot.close()
        if self._bare is not None:
            self._bare.close()

    def list_ops(self) -> OpsListed:
        return again(self._list_ops)

    def _list_ops(self) -> OpsListed:
        referee = self._slots[0].referee
        referee.send(ListOps(self._work.options.suite, self._work.options.dtypes))
        while not referee.has_answered(STOCKING_INTERVAL_S):
            self._stock_up()  # The referees still import the suite.
        listed = referee.receive(OpsListed)
        assert isinstance(listed, OpsListed)
        return listed

    def discover(self, target: str, ops: Sequence[str]) -> Discovered | Raised:
        return again(lambda: self._discover(target, ops))

    def _discover(self, target: str, ops: Sequence[str]) -> Discovered | Raised:
        worker = self._make_discoverer()
        reply = worker.ask(Discover(target, tuple(ops)), (Discovered, Raised), timeout_s=180.0)
        worker.close()
        assert isinstance(reply, (Discovered, Raised))
        return reply

    def enumerate(self, slot: int, asked: EntryAsked) -> Enumerated:
        options, chosen = self._work.options, self._slots[slot]
        request = Enumerate(
            options.suite,
            asked.entry,
            asked.dtype,
            options.device,
            self._work.seed,
            asked.ops,
            options.case,
            again=self._work.again,
            afresh=asked.afresh,
            tolerance=options.tolerance,
        )
        enumerated, device_failed = again(lambda: self._enumerated(chosen, request))
        if device_failed:  # Perhaps not by the entry's doing: a case that is left out here is missing in the run.
            chosen.referee.close()
            enumerated, _ = again(lambda: self._enumerated(chosen, request))
        for pause_s in SAMPLING_PAUSES_S:
            if not any(map(is_oom, enumerated.skipped.values())):
                break
            chosen.referee.close()
            time.sleep(pause_s)  # Others use the device, too.
            enumerated, _ = again(lambda: self._enumerated(chosen, request))
        with contextlib.suppress(ProcessLost):  # What judges starts another one.
            chosen.worker.prepare()
        return enumerated

    def _enumerated(self, slot: Slot, request: Enumerate) -> tuple[Enumerated, bool]:
        """The cases of an entry, and whether the referee or its device context failed on the way."""
        try:
            with self._admission.beside_others(0, slot.give_memory_back):
                found = slot.referee.ask(request, Enumerated)
        except (RefereeDied, RefereeFailed) as death:
            if is_about_storage(str(death)):  # Else a case would be left out that another run has.
                wait_for_room([self.spool.folder])
                slot.referee.close()
                raise ProcessLost(str(death).partition("\n")[0]) from death
            where = f"{request.suite}:{request.entry}:{request.dtype}"
            reason = str(death).partition("\n")[0]
            crashed = isinstance(death, RefereeDied) and not isinstance(death, RefereeHung)
            return Enumerated((), {}, (), {where: reason}), crashed
        assert isinstance(found, Enumerated)
        return found, any(failure in why for failure in self._kind.failures for why in found.skipped.values())

    def judge(self, slot: int, family: Sequence[Job], to_come: float) -> Iterator[Verdict]:
        chosen = self._slots[slot]
        with chosen.in_use:
            yield from through_losses(
                family,
                lambda left: self._judge(chosen, left, to_come),
                rest=rest_to_judge,
                give_up=given_up,
                mend=chosen.close,
            )

    def end_slot(self, slot: int) -> None:
        chosen = self._slots[slot]
        with chosen.in_use:
            chosen.close()  # The others may go on for long, and its processes hold memory of the device.

    def _judge(self, slot: Slot, family: Sequence[Job], to_come: float) -> Iterator[Verdict]:
        slot.worker.expect(int(to_come))
        for job in family:
            yield from slot.judge(job)
        slot.end_family()

    def read(self, case: CaseRef) -> bytes:
        """The serialized call of a case."""
        return self.spool.read(case)

    def judge_alone(
        self, job: Job, *, most_s: float = math.inf, begun: Callable[[], None] = lambda: None
    ) -> Generator[Verdict]:
        """Judge one job on the next slot that is free; may be called from several threads.

        Args:
            job: what is judged.
            most_s: seconds after which nobody is waited for any more: what is asked then has timed out.
            begun: is called once the slot is free.
        """
        with self._taken(most_s, begun) as slot, contextlib.ExitStack() as stack:
            stack.callback(slot.end_family)
            yield from through_losses(
                [job],
                partial(self._judge_prepared, slot),
                rest=rest_to_judge,
                give_up=given_up,
                mend=slot.close,
            )

    @contextlib.contextmanager
    def _taken(self, most_s: float, begun: Callable[[], None]) -> Iterator[Slot]:
        """The next slot that is free, for at most so many seconds."""
        slot = self._idle.get()
        slot.in_use.acquire()
        begun()
        try:
            slot.finish_by(time.monotonic() + most_s)
            yield slot
        finally:
            slot.finish_by(math.inf)
            slot.in_use.release()
            self._idle.put(slot)

    def _judge_prepared(self, slot: Slot, jobs: Sequence[Job]) -> Iterator[Verdict]:
        slot.worker.prepare()
        for job in jobs:
            yield from slot.judge(job)

    def look_alone(
        self, job: Job, case: str, *, is_wrong: bool, most_s: float, begun: Callable[[], None] = lambda: None
    ) -> Evidence:
        """Look at a kernel on the next slot that is free; see :meth:`~opsmith.runner.judge.slot.Slot.look`.

        Args:
            job: of the kernel.
            case: address of one of its cases or variants.
            is_wrong: look where its result is off, not what it spends its time on.
            most_s: seconds after which nobody is waited for any more.
            begun: is called once the slot is free.
        """
        with self._taken(most_s, begun) as slot:
            slot.worker.prepare()
            return slot.look(job, case, is_wrong=is_wrong)

    def time_alone(
        self, job: Job, *, most_s: float = math.inf, begun: Callable[[], None] = lambda: None
    ) -> list[TimedCase]:
        """Time one job once no thread judges; judging goes on afterwards.

        Args:
            job: what is timed.
            most_s: seconds after which no further case is timed, and nobody waited for.
            begun: is called once no thread judges and the clock is set up.
        """
        with self._timing:
            spares = [slot.worker.wanted_spares for slot in self._slots]
            for _ in self._slots:
                self._idle.get()
            slot = self._slots[0]
            try:
                self._timer.set_up([job])
                begun()
                deadline = time.monotonic() + most_s
                slot.finish_by(deadline)
                timed = []
                for case in self.time([job]):
                    timed.append(case)
                    if time.monotonic() >= deadline:
                        break
                return timed
            finally:
                slot.finish_by(math.inf)
                slot.end_family()  # Timing that ended early has not.
                for each, wanted in zip(self._slots, spares, strict=True):
                    each.worker.wanted_spares = wanted
                    self._idle.put(each)

    def time(self, family: Sequence[Job]) -> Iterator[TimedCase]:
        return through_losses(
            family,
            self._timer.time,
            rest=rest_to_time,
            give_up=partial(not_timed, problem=f"the judge's processes were lost over it {MOST_LOSSES} times"),
            mend=self.pause,
        )

    @property
    def clock(self) -> Clock | None:
        """How it was set up, once something was timed."""
        return self._timer.clock


def workers_ahead(work: LaneWork, slots: int, limit: int) -> int:
    """How many workers each slot has ready when the first kernel is judged.

    Args:
        work: what the lane is opened for.
        slots: of the lane.
        limit: workers that may exist at a time.
    """
    if work.options.isolation == "backend":
        return 1  # It goes on to the next kernel.
    wanted = limit if work.kernels is None else min(work.kernels, limit)
    return min(max(1, wanted // slots), MAX_WORKERS_AHEAD)


def worker_limit(work: LaneWork, slots: int, visible: str | None) -> int:
    """How many workers may exist at a time on a device, those that wait included.

    Args:
        work: what the lane is opened for.
        slots: of the lane.
        visible: the devices that workers see, as ``CUDA_VISIBLE_DEVICES`` names them.
    """
    return max(slots, workers_that_fit(work.options.device, visible, work.share[1]))


@contextlib.contextmanager
def _in_room(work: LaneWork, visible: str | None, waiting: Waiting | None) -> Iterator[None]:
    """Within it the device has room for the lane's processes, beside those of all other judges."""
    device = device_memory(work.options.device, os.environ.get("CUDA_VISIBLE_DEVICES") if visible is None else visible)
    if device is None:
        yield
        return
    identity, size_bytes = device
    slots = work.jobs or default_jobs(work.options)
    limit = slots if work.kernels == 0 else worker_limit(work, slots, visible)
    ahead = slots * workers_ahead(work, slots, limit)
    # A control pair of the clock has a referee of its own where there is one slot.
    bare = (min(slots, MOST_ON_DEVICE) if work.again else 0) + (work.options.timing != "off" and slots == 1)
    room = DeviceRoom(default_folder(), identity, capacity_bytes=int(SHARE * size_bytes), waiting=waiting)
    with room.taken(needed_bytes(slots, ahead - slots, bare=bare)):
        yield


def _make_build_folder() -> None:
    folder = build_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_room([folder])
    except OSError as exc:
        reason = storage_problem(exc) or f"{folder} cannot be written: {exc.strerror}"
        raise BadInput(f"{reason}; or set XDG_CACHE_HOME to another folder of yours") from exc


@contextlib.contextmanager
def open_here(work: LaneWork, waiting: Waiting | None = None) -> Iterator[DeviceLane]:
    """Start the processes of a device and its lane, in this process.

    Raises:
        BadInput: the device cannot be used.
        RefereeFailed: the trusted processes do not start.
    """
    options = work.options
    _make_build_folder()
    for_ranks = traits_of(options.suite).tasks.on_ranks
    visible = None if for_ranks else first_device(options.device)
    with (
        _in_room(work, visible, waiting),
        start_processes(
            options.device, suite=options.suite, with_compiler=work.with_compiler, visible=visible
        ) as processes,
    ):
        processes.wait_ready()
        with DeviceLane(processes, work, waiting=waiting) as lane:
            yield lane
