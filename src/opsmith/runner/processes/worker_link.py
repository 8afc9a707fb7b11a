"""Typed conversations with a referee and a worker, and what their deaths mean."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import msgspec

from opsmith.core.case import CaseRef
from opsmith.core.conduct import Held
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import OpSchema
from opsmith.core.verdict import Status
from opsmith.errors import NoDeviceMemory, ProcessLost, ProtocolError
from opsmith.runner.machine.process_times import descendants, is_stopped, process_us, runs
from opsmith.runner.processes.children import Child, Processes
from opsmith.runner.processes.failures import (
    LIMIT_DETAILS,
    REAP_TIMEOUT_S,
    TIME_IS_OVER,
    WorkerFailed,
    describe_end,
)
from opsmith.runner.processes.nursery import Nursery
from opsmith.runner.processes.zygote_link import ZygoteGone
from opsmith.runner.protocol.call_files import Spool
from opsmith.runner.protocol.channel import MAX_REPLY_BYTES
from opsmith.runner.protocol.limits import Limits
from opsmith.runner.protocol.out_of_memory import is_oom
from opsmith.runner.protocol.rank import RankInfo
from opsmith.runner.protocol.timing_messages import (
    GiveMemoryBack,
    MemoryGivenBack,
    TimeBlock,
    answer_spin_s,
    waits_awake,
)
from opsmith.runner.protocol.worker_messages import LentCall, Loaded, LoadKernel, Noticed, Raised, Started, WorkerReply
from opsmith.runner.sandbox.reach import Reach

#: How long a worker may take to make its device context, with many made at once.
START_TIMEOUT_S = 120.0
#: Before a worker for which the device had no memory is started again, and again.
START_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)
#: What an interpreted kernel takes follows from the number of its programs, not from how good it is: an honest softmax
#: in small blocks took more than 20 s where others had the processor, too.
INTERPRETED_CALL = 3
#: What a worker gets to give memory back, which takes a driver milliseconds.
GIVE_BACK_TIMEOUT_S = 5.0
#: How long is waited until processes that were told to stop have stopped.
STOPPING_S = 0.05
#: Workers of a slot that wait while its kernels are judged; those that were made before that are used up.
MAX_WAITING_WORKERS = 2
MAX_EVIDENCE_LINES = 12
#: Notices of one request, and bytes of one of them.
MAX_NOTICES = 100
MAX_NOTICE_BYTES = 64 << 10
#: A serialized call up to this size travels to its worker in the message itself.
LENT_BYTES = 4 << 20


def is_cache_of(name: str, kernel: Kernel) -> bool:
    """Whether a worker's word for its kernel's build cache names one of those that the kernel may have."""
    own, _, number = name.partition("-")
    return own == kernel.build_name and (not number or number.isdecimal())


def _left_s(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.0)


def _error_line(output: str) -> str:
    """The last line that names an error, or else the last one."""
    lines = output.strip().splitlines()
    return next((line for line in reversed(lines) if "rror: " in line), lines[-1] if lines else "")


@dataclass
class _Asked:
    """A request whose reply is waited for.

    Attributes:
        child: that was asked.
        started: when, of the monotonic clock.
        limit_s: so long at most.
        may_build: it gets more time if it starts programs.
        deadline: until when, of the monotonic clock.
    """

    child: Child
    started: float
    limit_s: float
    may_build: bool
    deadline: float = field(init=False)

    def __post_init__(self) -> None:
        self.deadline = self.started + self.limit_s


class WorkerLink:
    """A worker, with the next ones already forked so that a death costs no waiting.

    On a device each that waits takes some 420 MiB of what the cases need: once kernels are judged there are few, and
    none where kernels share one worker.

    Args:
        processes: forks them.
        device: torch device string that kernels run on.
        builds: parent folder of the per-kernel build caches.
        threads: CPU threads of a worker.
        spares: workers that are kept ready until kernels are judged; ``wanted_spares`` changes it.
        limits: time limits.
        withheld: folders that no worker may read; what the processes share is among them in any case.
        hidden: files of devices that no worker may use.
        started_in: where the command was started, if kernels are imported from there.
        one_kernel: no worker loads a second kernel, so the next one needs another worker.
        rank_info: which rank it is, of several that run a kernel together; None where it runs one alone.
        nursery: of another rank, whose network and shared memory are this one's, too; None for one of its own.

    Attributes:
        reach: where its workers may find things.
        nursery: what its workers are forked from; ended where one of them may have harmed it.
        waits_awake: whether the judge does, for the reply to a block.
        wall_us: microseconds from the last request to its reply.
        ran_stopped_us: processor time that something of it got while it was stopped before the last request.
        build_cache: name of the folder in which the worker that loaded a kernel last builds, among the build caches.
    """

    def __init__(
        self,
        processes: Processes,
        *,
        device: str,
        builds: Path,
        threads: int,
        spares: int,
        limits: Limits,
        withheld: Sequence[Path] = (),
        hidden: Collection[str] = (),
        started_in: Path | None = None,
        one_kernel: bool = True,
        rank_info: RankInfo | None = None,
        nursery: Nursery | None = None,
    ) -> None:
        self._processes = processes
        self.reach = Reach(
            scratch=str(processes.scratch),
            builds=str(builds),
            withheld=tuple(map(str, withheld)),
            hidden=tuple(hidden),
            home=str(Path.home()),
            started_in=str(started_in) if started_in else None,
            one_kernel=one_kernel,
            for_ranks=rank_info is not None,
        )
        self._config: dict[str, Any] = {"device": device, "builds": str(builds), "threads": threads}
        if rank_info is not None:
            self._config["rank_info"] = msgspec.to_builtins(rank_info)
        self._limits = limits
        self._one_kernel = one_kernel
        self.waits_awake = waits_awake(device)
        self.wall_us = 0.0
        self.nursery = nursery or Nursery(processes, self.reach)
        self._child: Child | None = None
        self._spares: deque[Child] = deque()
        self.wanted_spares = spares
        self._loaded: Kernel | None = None
        self.load_changes: tuple[str, ...] = ()
        self.build_cache: str | None = None
        self._load_s: float | None = None
        self.notices: tuple[Noticed, ...] = ()
        self._lent: list[Path] = []
        self._stopped: dict[int, float] = {}
        self._have_stopped = False
        self.ran_stopped_us = 0.0
        self._finish_by = math.inf
        self._asked: _Asked | None = None

    def finish_by(self, deadline: float) -> None:
        """Wait for no answer beyond a moment of the monotonic clock."""
        self._finish_by = deadline

    def prepare(self) -> None:
        """Fork workers that are kept ready, as many as there is room for now; end those that are too many."""
        self._keep_spares(self.wanted_spares)
        while len(self._spares) < self.wanted_spares and self._processes.has_memory_for_worker():
            self._fork_spare()

    def expect(self, kernels: int) -> None:
        """Have a worker ready for the next kernel, and none that no further one would need.

        Args:
            kernels: so many follow the next one.
        """
        self.wanted_spares = min(self.wanted_spares, kernels)
        self._keep_spares(self.wanted_spares + (not self.is_running))
        if not self._spares and not self.is_running and self._processes.has_memory_for_worker():
            self._fork_spare()

    def _keep_spares(self, most: int) -> None:
        """End the workers that wait, but so many."""
        while len(self._spares) > most:
            self._processes.discard(self._spares.pop())

    def _fork_spare(self) -> None:
        self._spares.append(self.nursery.fork(self._config))

    def resize(self, ranks: int | None) -> None:
        """A worker is one process."""
        assert ranks is None, "a worker runs no case of several ranks"

    def timed_worker(self) -> Self:
        """It can be timed."""
        return self

    @property
    def folder(self) -> Path:
        """The private folder of the worker that answered last."""
        assert self._child is not None
        return self._child.scratch

    def outcome_folders(self) -> tuple[str, tuple[str, ...]]:
        """Where large outcomes lie: in the folder of the worker; there are no ranks."""
        return str(self.folder), ()

    def _lend(self, root: Path) -> Path:
        """Copy a kernel's files to where its worker finds them: the run directory is out of its reach."""
        copy = self._started().kernels / root.name
        if not copy.exists():
            shutil.copytree(root, copy)
        return copy

    def call_to_send(self, case: CaseRef, spool: Spool) -> bytes | LentCall:
        """A serialized call as the next request carries it: a large one as a file, since messages are copied often."""
        if case.length <= LENT_BYTES:
            return spool.read(case)
        return self.lend_call(partial(spool.copy, case))

    def lend_call(self, copy: Callable[[Path], None]) -> LentCall:
        """Have a serialized call written to a file that the worker can read until it has answered the next request.

        Args:
            copy: writes it to a path that is not there yet.
        """
        path = self._started().kernels / f"call-{len(self._lent)}"
        self._lent.append(path)
        copy(path)
        return LentCall(str(path))

    def _take_calls_back(self) -> None:
        for path in self._lent:
            path.unlink(missing_ok=True)
        self._lent.clear()

    @property
    def is_running(self) -> bool:
        """Whether there is a worker, which the first kernel starts."""
        return self._child is not None

    @property
    def pid(self) -> int:
        """The process of the worker that answered last."""
        assert self._child is not None
        return self._child.pid

    def started(self) -> list[int]:
        """The processes that it has started and that live."""
        assert self._child is not None
        return self._processes.started_by(self._child)

    def stop(self) -> None:
        """Stop the worker and all that it has started; its next request lets it go on. To be repeated before blocks.

        No process can refuse to be stopped (``SIGSTOP``), and none is left so: killing ends one that is stopped, and
        its parent kills it if the judge is gone.
        """
        if self._child is None:
            return
        if not self._stopped:
            self._send_stop(self._child.pid)
        # What sleeps needs a processor for a moment to notice; from then on it gets none.
        if not self._have_stopped and all(map(is_stopped, self._stopped)):
            self._stopped = {pid: process_us(pid) for pid in self._stopped}
            self._have_stopped = True

    def _send_stop(self, worker: int) -> None:
        """Tell all to stop; what runs just now is waited for."""
        self._have_stopped = False
        found, is_awake = [worker], False
        while found:  # Until no process is found that the others have started before they were stopped.
            for pid in found:
                is_awake = is_awake or runs(pid)
                self._stopped[pid] = 0.0
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            found = [pid for pid in self.started() if pid not in self._stopped]
        deadline = time.monotonic() + STOPPING_S
        while is_awake and time.monotonic() < deadline:
            is_awake = not all(map(is_stopped, self._stopped))
            time.sleep(0)

    def _go_on(self) -> float:
        """Let it go on; microseconds of processor time that something of it got after all had stopped."""
        stopped, self._stopped = self._stopped, {}
        ran_us = 0.0
        if self._have_stopped:
            ran_us = sum(max(process_us(pid) - before_us, 0.0) for pid, before_us in stopped.items())
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        return ran_us

    def load(self, kernel: Kernel, root: Path | None, schema: OpSchema, policy: str | None = None) -> Raised | None:
        """Make sure that ``kernel`` is loaded; what it raised if it does not load.

        ``load_changes`` says then what of Python, torch or opsmith it replaced by that.

        Raises:
            WorkerFailed: the worker died or hung while loading.
        """
        if self._child is not None and self._loaded == kernel:
            return None
        request = LoadKernel(kernel, str(self._lend(root)) if root else None, schema, policy)
        child = self._started()
        child.is_trusted = policy is None
        if child.gate is not None:
            child.gate.is_trusted = child.is_trusted
        start = time.monotonic()
        reply = self.ask(request, (Loaded, Raised), timeout_s=self._limits.load_s)
        if isinstance(reply, Raised):
            return reply
        self._loaded = kernel
        self._load_s = time.monotonic() - start
        self.build_cache = reply.build_cache if is_cache_of(reply.build_cache, kernel) else None
        self.load_changes = (*reply.changes, *(notice.line for notice in self.notices))
        return None

    def take_load_s(self) -> float | None:
        """Seconds that loading took since this was asked last; None: it was loaded already."""
        load_s, self._load_s = self._load_s, None
        return load_s

    def ask(
        self, request: msgspec.Struct, reply_types: tuple[type[Any], ...], *, timeout_s: float | None = None
    ) -> Any:
        """Send a request and wait for its reply.

        Raises:
            WorkerFailed: the process died, hung, broke a limit or spoke out of protocol.
            ProcessLost: it did not start, or what it was forked from is gone.
        """
        try:
            self.send(request, timeout_s=timeout_s)
            reply = None
            while reply is None:
                reply = self.receive(reply_types)
            return reply
        finally:
            self._take_calls_back()

    def send(self, request: msgspec.Struct, *, timeout_s: float | None = None) -> None:
        """Send a request, whose reply :meth:`receive` waits for.

        Raises:
            WorkerFailed, ProcessLost: as of :meth:`ask`.
        """
        child = self._started()
        self.ran_stopped_us = self._go_on() if self._stopped else 0.0
        child.output_bytes = 0
        if child.gate is not None:
            child.gate.is_open = not isinstance(request, TimeBlock)
        child.channel.spin_s = answer_spin_s(request) if self.waits_awake else 0.0
        self.notices = ()
        started = time.monotonic()
        limit_s = min(timeout_s or self._call_limit_s, max(self._finish_by - started, 0.0))
        asked = self._asked = _Asked(child, started, limit_s, may_build=not isinstance(request, TimeBlock))
        with self._what_failed(asked):
            while child.channel.has_unread():
                unasked = child.channel.receive(WorkerReply, limit_s, most_bytes=MAX_NOTICE_BYTES)
                if not isinstance(unasked, Noticed):
                    raise ProtocolError("it spoke before it was asked")
                self._take_notice(unasked)
            child.channel.send(request, limit_s)

    def receive(self, reply_types: tuple[type[Any], ...]) -> Any | None:
        """Wait for the next message: the reply, or None if it was a notice.

        Raises:
            WorkerFailed, ProcessLost: as of :meth:`ask`.
        """
        asked = self._asked
        assert asked is not None
        channel = asked.child.channel
        with self._what_failed(asked):
            if asked.may_build and not channel.is_answered(_left_s(asked.deadline)):
                self.is_overdue()
            reply = channel.receive(WorkerReply, _left_s(asked.deadline), most_bytes=MAX_REPLY_BYTES)
            if isinstance(reply, Noticed):
                self._take_notice(reply)
                return None
            self.wall_us = channel.wall_us
            if not isinstance(reply, reply_types):
                raise ProtocolError(f"the worker answered with {type(reply).__name__}")
        if isinstance(reply, Raised) and reply.kind == "device":
            self.retire()
        return reply

    @property
    def deadline(self) -> float:
        """Until when the reply to the last request is waited for, of the monotonic clock."""
        assert self._asked is not None
        return self._asked.deadline

    def is_overdue(self) -> bool:
        """Whether the time for the reply is over.

        What starts programs compiles, and gets more: of C++ a first call may, like a file that is loaded.
        """
        asked = self._asked
        assert asked is not None
        if time.monotonic() < asked.deadline:
            return False
        if asked.may_build and descendants(asked.child.pid):
            asked.limit_s = max(asked.limit_s, self._limits.load_s)
            asked.deadline = min(asked.started + asked.limit_s, self._finish_by)
        asked.may_build = False
        return time.monotonic() >= asked.deadline

    @contextlib.contextmanager
    def _what_failed(self, asked: _Asked) -> Iterator[None]:
        """Say of what goes wrong within what became of the worker, and end it."""
        child = asked.child
        try:
            yield
        except TimeoutError as exc:
            over = time.monotonic() >= self._finish_by
            detail = TIME_IS_OVER if over else f"no answer within {asked.limit_s:g} s"
            raise self._failed(child, Status.TIMEOUT, detail) from exc
        except (OSError, EOFError) as exc:
            raise self._failed(child, Status.CRASHED, describe_end(child, exc)) from exc
        except ProtocolError as exc:
            raise self._failed(child, Status.CRASHED, f"the worker's reply is not of the protocol: {exc}") from exc

    def fileno(self) -> int:
        """What can be read from when the worker has something to say."""
        assert self._asked is not None
        return self._asked.child.channel.sock.fileno()

    @property
    def sent_s(self) -> float:
        """When the last request went out, by ``time.perf_counter``."""
        assert self._asked is not None
        return self._asked.child.channel.sent_s

    @property
    def _call_limit_s(self) -> float:
        is_triton = self._loaded is not None and self._loaded.dsl == "triton"
        return self._limits.call_s * (INTERPRETED_CALL if is_triton and self._processes.interpreted else 1)

    def _take_notice(self, notice: Noticed) -> None:
        if len(self.notices) >= MAX_NOTICES:
            raise ProtocolError("it has more to tell than anybody reads")
        self.notices = (*self.notices, notice)

    def _started(self) -> Child:
        """The current worker, which is started if there is none."""
        if self._child is None:
            self._start()
        assert self._child is not None
        return self._child

    def _start(self) -> None:
        if any(not spare.usable for spare in self._spares):
            self._end_nursery()
        if not self._spares:
            self._fork_spare()
        child = self._child = self._spares.popleft()
        for pause_s in (*START_PAUSES_S, None):
            try:
                questions = child.channel.receive_descriptor(START_TIMEOUT_S)
                self._processes.guard(child, questions, Path(self._config["builds"]))
                child.channel.receive(Started, START_TIMEOUT_S)
                break
            except (OSError, EOFError) as exc:
                output = child.last_output()
                self.retire()
                if pause_s is None and is_oom(output):
                    raise NoDeviceMemory(self._config["device"], "a worker") from exc
                if pause_s is None or not is_oom(output):
                    raise ProcessLost(f"a worker did not start: {_error_line(output) or exc}") from exc
                # Others use the device, too: another judge's workers, or its own that have not ended yet.
                time.sleep(pause_s)
                self._fork_spare()
                child = self._child = self._spares.pop()
        child.is_at_work = True
        most = max(MAX_WAITING_WORKERS, len(self._spares)) if self._one_kernel else 0
        self.wanted_spares = min(self.wanted_spares, most)
        self.prepare()

    def _failed(self, child: Child, status: Status, detail: str) -> WorkerFailed | ProcessLost:
        # What waits for a process that is gone with the zygote may be silent instead of ending.
        ended = status in (Status.CRASHED, Status.TIMEOUT) and child.killed_for is None
        if ended and self._processes.is_lost(child):
            self.retire()
            return ZygoteGone()
        if child.killed_for is not None:
            status = child.killed_for
            detail = LIMIT_DETAILS[status]
        evidence = tuple(child.last_output().strip().splitlines()[-MAX_EVIDENCE_LINES:])
        self.retire()
        told = tuple([Held(notice.line, notice.offence) for notice in self.notices])
        return WorkerFailed(status, detail, evidence, told)

    def give_memory_back(self) -> None:
        """Give the device what is kept for the next call, and end the workers that wait."""
        self._keep_spares(0)
        if self._child is not None:
            with contextlib.suppress(WorkerFailed):  # It is gone, and holds nothing.
                self.ask(GiveMemoryBack(), (MemoryGivenBack, Raised), timeout_s=GIVE_BACK_TIMEOUT_S)

    def retire(self) -> None:
        """End the current worker; the next request goes to a fresh one, which this one cannot harm."""
        child, self._child = self._child, None
        self._stopped = {}
        trusted = self._loaded is not None and self._loaded.loader is Loader.ATEN
        self._loaded = None
        if child is None:
            return
        self._processes.discard(child)
        # A nursery that reports the end was not killed or stopped by it, or it could not report.
        if not trusted and child.wait(REAP_TIMEOUT_S) is None:
            self._end_nursery()

    def kill(self) -> None:
        """Kill the current worker; who waits for its reply is told that it died. For another thread than that one."""
        child = self._child
        if child is not None:
            child.kill()

    def close(self) -> None:
        self.retire()
        self._end_nursery()

    def _end_nursery(self) -> None:
        self._keep_spares(0)
        self.nursery.end()
