"""The judge's hold on its processes: start them, talk to them, watch them, kill them."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from opsmith.core.verdict import Status
from opsmith.devices import kind_of
from opsmith.errors import MachineFailed, RefereeFailed
from opsmith.runner.machine.process_times import children_of, descendants, thread_count
from opsmith.runner.processes.memory import proportional_bytes, resident_bytes
from opsmith.runner.processes.zygote_link import ZygoteGone, ZygoteLink
from opsmith.runner.protocol.channel import Channel
from opsmith.runner.sandbox.kernel_calls import is_readable, set_readable
from opsmith.runner.sandbox.layers import Layer
from opsmith.runner.sandbox.programs import refusal
from opsmith.runner.sandbox.questions import Gate, running_program
from opsmith.runner.sandbox.reach import Reach

#: Whether JAX takes most of the device as soon as it is used.
JAX_VARIABLE = "XLA_PYTHON_CLIENT_PREALLOCATE"
#: Environment variables that a kernel's process may see; everything else stays outside.
KEPT_VARIABLES = (
    "PATH",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CC",
    "CXX",
    "NCCL_NVLS_ENABLE",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST",
    "NVSHMEM_DISABLE_NVLS",
)

#: Isolation that every machine can give its workers; for the rest see :mod:`opsmith.runner.sandbox.layers`.
EVERYWHERE = (
    "own process and session",
    "wall-clock limit",
    "resident-memory limit",
    "output limit",
    "file-size limit",
    "closed descriptors",
    "private working, home and temporary folder",
    "scrubbed environment",
    "private build caches",
    "dies with the judge, as does all that it has started",
)

#: How many hardware queues a process's CUDA context has. With one instead of eight it is made and ended three times as
#: often in a second; kernels run on one stream.
QUEUES_VARIABLE, QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS", "1"

#: What programs are called where they run; another one each time, so that no name says whose it is.
PROGRAMS = ("app", "bench", "demo", "eval", "example", "main", "model", "predict", "run", "script", "serve", "train")
IMPORT_TIMEOUT_S = 180.0
#: A fork takes milliseconds; a zygote that a worker has stopped never answers.
FORK_TIMEOUT_S = 20.0
END_TIMEOUT_S = 20.0
#: Before a zygote that is lost is replaced, and again.
RESTART_PAUSES_S = (0.2, 1.0, 5.0)
#: What passes at most from the end of a child to the news that the zygote above it has ended, of which it died.
NEWS_S = 0.5
WATCH_INTERVAL_S = 0.05
#: Processes that a worker may have started at a time: a build of a C++ extension runs a compiler, which is some
#: processes, on each processor.
MOST_STARTED = 128 + 8 * (os.cpu_count() or 1)
#: Threads of a worker and of all that it has started.
MOST_THREADS = 8 * MOST_STARTED
#: How often a tree of processes that grows is looked through for those that are not stopped yet.
MOST_LOOKS = 100
#: On an H200, 4 at a time were made at a rate of 16 a second, 16 or 64 at a time at 18.
MAX_STARTING_WORKERS = 12
#: What is kept of a child's output, from its end.
KEPT_OUTPUT_BYTES = 16_384


class Child:
    """A forked referee or worker.

    Attributes:
        channel: the typed channel to it.
        killed_for: the limit it broke, where the watch killed it.
        is_at_work: it has been sent a request, so it may run a stranger's code.
        is_trusted: its kernel may start any program.
        root: the zygote that all are below.
        gate: answers for the processes that it wants to make; None where it makes what it likes.
        folder: what is its own, removed with it.
        builds: parent of the build caches.
    """

    def __init__(
        self,
        zygote: ZygoteLink,
        pid: int,
        channel: Channel,
        output_fd: int,
        folder: Path,
        *,
        limit_bytes: int | None,
        root: ZygoteLink,
    ) -> None:
        self.zygote = zygote
        self.root = root
        self.pid = pid
        self.channel = channel
        self.output_fd = output_fd
        self.folder = folder
        self.killed_for: Status | None = None
        self.is_at_work = False
        self.is_trusted = False
        self.gate: Gate | None = None
        self.builds = folder
        self.limit_bytes = limit_bytes
        self.output_bytes = 0
        self.output_tail = b""
        self.start_bytes = resident_bytes(pid)
        self._draining = threading.Lock()

    @property
    def scratch(self) -> Path:
        """A worker's private folder, which it writes to."""
        return self.folder / "scratch"

    @property
    def kernels(self) -> Path:
        """Where a worker finds the files of its kernel."""
        return self.folder / "kernels"

    def has_spoken(self, timeout_s: float = 0.0) -> bool:
        """Whether a message waits in its channel, or its end."""
        if self.channel.sock.fileno() < 0:
            return True  # The channel was given back.
        poller = select.poll()  # select() refuses descriptors above 1023.
        poller.register(self.channel.sock, select.POLLIN)
        return bool(poller.poll(timeout_s * 1000))

    @property
    def usable(self) -> bool:
        """Whether it can be sent a request: it lives, and so does its zygote."""
        return not self.zygote.gone and self.killed_for is None and self.wait(0.0) is None

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the end; the exit status (negative for a signal), or None if it lives on."""
        return self.zygote.exit_status(self.pid, timeout_s)

    def kill(self) -> None:
        """Kill the child and its process group; its zygote kills what else it has started."""
        if self.wait(0.0) is None:
            for send in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError):
                    send(self.pid, signal.SIGKILL)

    def drain(self) -> bool:
        """Take what the child printed since the last look; False once it can print no more."""
        with self._draining:
            try:
                data = os.read(self.output_fd, 1 << 20) if self.output_fd >= 0 else b""
            except BlockingIOError:
                return True
            self.output_tail = (self.output_tail + data)[-KEPT_OUTPUT_BYTES:]
            self.output_bytes += len(data)
            return bool(data)

    def last_output(self) -> str:
        """The end of what it printed."""
        self.drain()
        return self.output_tail.decode("utf-8", "replace")

    def close(self) -> None:
        """Give back the descriptors."""
        self.channel.close()
        if self.gate is not None:
            self.gate.close()
        with self._draining:
            os.close(self.output_fd)
            self.output_fd = -1


class Processes:
    """One zygote with everything below it, and the thread that watches the children.

    Args:
        device: torch device string of the run; on the CPU Triton is interpreted.
        memory_limit_bytes: resident memory that a worker may add to what it was born with.
        output_limit_bytes: bytes a worker may print while it answers one request.
        with_compiler: import torch's compiler before anything is forked.
        with_opinfo: on the CPU, import OpInfo, too, which takes twice as long as all the rest.
        without_layers: layers of the sandbox to do without, as on a machine that lacks them.
        visible: the devices that they see, as the variable of their kind names them (``CUDA_VISIBLE_DEVICES``); None
            for those that this process sees.

    Attributes:
        visible: these devices; None if nothing says which.
        worker_limit: workers that may exist at a time, those that are ending included; it concerns
            those that are kept ready.
    """

    def __init__(
        self,
        device: str,
        *,
        memory_limit_bytes: int,
        output_limit_bytes: int,
        with_compiler: bool = False,
        with_opinfo: bool = False,
        without_layers: Iterable[Layer] = (),
        visible: str | None = None,
    ) -> None:
        self.visible = os.environ.get(kind_of(device).visible_variable or "") if visible is None else visible
        self.worker_limit = sys.maxsize
        self._since_ns = time.time_ns()
        self.scratch = Path(tempfile.mkdtemp())
        self._device = device
        self._memory_limit_bytes = memory_limit_bytes
        self._output_limit_bytes = output_limit_bytes
        self._options = [
            *(["--compiler"] if with_compiler else []),
            *(["--opinfo"] if with_opinfo else []),
            *(f"--without={layer}" for layer in without_layers),
        ]
        self._children: dict[int, Child] = {}
        self._workers: list[Child] = []
        self._selector = selectors.DefaultSelector()
        self._replacing = threading.Lock()
        self._facts: dict[str, Any] = {}
        self._closing = False

    def __enter__(self) -> Self:
        self._was_readable = is_readable()
        set_readable(readable=False)
        self._start_zygote()
        # One answers questions and takes output, which other workers wait for while the other one reads a large tree.
        self._watchers = [
            threading.Thread(target=watch, name="watch", daemon=True) for watch in (self._watch, self._watch_limits)
        ]
        for watcher in self._watchers:
            watcher.start()
        return self

    def _start_zygote(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, (self.scratch / "zygote.log").open("wb") as log:
            arguments = [str(theirs.fileno()), self._device, str(self.scratch), *self._options]
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                # No argument says what it is: the processes that are forked from it have them, too.
                [
                    sys.executable,
                    str(self._program(f"from opsmith.runner.zygote import main\n\nmain({arguments!r})\n")),
                ],
                pass_fds=[theirs.fileno()],
                env=_scrubbed_environment(self._device, self.scratch, self.visible),
                stdin=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,  # Ctrl-C at a terminal is the judge's to handle.
            )
        self._zygote = ZygoteLink(ours, self._process.pid)

    def _replace(self, lost: ZygoteLink) -> None:
        """Have another zygote in the place of one, if that one is gone and nobody has done so."""
        with self._replacing:
            if self._zygote is not lost or not lost.gone or self._closing:
                return
            # It may be silent and live; closed, it would take the scratch folder with it.
            _kill_tree(self._process.pid, lambda: descendants(self._process.pid))
            self._process.wait()
            lost.close()
            self._start_zygote()

    def _fork_from_root(
        self, role: str, config: dict[str, Any], descriptors: tuple[int, int]
    ) -> tuple[ZygoteLink, int]:
        """Fork from the zygote, or from one that takes its place; that zygote, and the child's number.

        Raises:
            MachineFailed: none is to be had.
        """
        problem: Exception | None = None
        for pause_s in (*RESTART_PAUSES_S, None):
            zygote = self._zygote
            try:
                self._wait_for_imports()
                return zygote, zygote.fork(role, config, descriptors, FORK_TIMEOUT_S)
            except (RefereeFailed, ZygoteGone) as exc:
                problem = exc
            if pause_s is not None:
                time.sleep(pause_s)
                self._replace(zygote)
        raise MachineFailed(f"this machine gives no process any more: {problem}; see to its memory and its limits")

    def is_lost(self, child: Child) -> bool:
        """Whether a child has ended because the zygote that all are below did; it is not to blame for that."""
        return child.zygote.gone and child.root.wait_gone(NEWS_S)

    def _program(self, source: str) -> Path:
        """A file of this source as any program is called, in a folder of its own."""
        path = Path(tempfile.mkdtemp(dir=self.scratch)) / f"{secrets.choice(PROGRAMS)}.py"
        path.write_text(source, encoding="utf-8")
        return path

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with self._replacing:
            self._closing = True
        self._zygote.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for watcher in self._watchers:
            watcher.join()
        self._selector.close()
        shutil.rmtree(self.scratch, ignore_errors=True)
        set_readable(readable=self._was_readable)

    @property
    def facts(self) -> dict[str, Any]:
        """What the zygote reported about the packages that it imported."""
        return self._facts or self._zygote.facts

    @property
    def interpreted(self) -> bool:
        """Whether Triton kernels run under Triton's interpreter."""
        return bool(self.facts["interpreted"])

    def wait_ready(self) -> None:
        """Wait until the zygote has imported torch, or another one that takes its place if it is killed.

        Raises:
            RefereeFailed: it ended by itself, was killed again and again or took too long; the message ends with its
                last line.
        """
        for pause_s in (*RESTART_PAUSES_S, None):
            zygote = self._zygote
            try:
                self._wait_for_imports()
            except RefereeFailed:
                if pause_s is None or not self._was_killed():
                    raise
            else:
                return
            time.sleep(pause_s)
            self._replace(zygote)

    def _was_killed(self) -> bool:
        """Whether the zygote has ended, and not by itself."""
        try:
            return self._process.wait(NEWS_S) < 0
        except subprocess.TimeoutExpired:
            return False

    def _wait_for_imports(self) -> None:
        zygote = self._zygote
        if zygote.wait_ready(IMPORT_TIMEOUT_S):
            self._facts = zygote.facts
        else:
            lines = (self.scratch / "zygote.log").read_text(errors="replace").strip().splitlines()
            raise RefereeFailed(f"the process that imports torch did not start: {lines[-1] if lines else 'no message'}")

    @property
    def sandbox(self) -> tuple[str, ...]:
        """The layers that isolate a worker here."""
        return (*EVERYWHERE, *(name for name, problem in self.facts["sandbox"].items() if problem is None))

    @property
    def sandbox_missing(self) -> dict[str, str]:
        """The layers that this machine cannot give, and why."""
        return {name: problem for name, problem in self.facts["sandbox"].items() if problem is not None}

    def start_nursery(self, reach: Reach) -> ZygoteLink:
        """A zygote for the workers of one slot; see :mod:`opsmith.runner.zygote`.

        Args:
            reach: where its workers find and may not find things.

        Raises:
            MachineFailed: no process is to be had.
        """
        return ZygoteLink(*self._fork_zygote("nursery", msgspec.to_builtins(reach), self.scratch / "zygote.log"))

    def start_bare(self, source: str, reach: Reach, *, triton: bool) -> ZygoteLink:
        """A process that runs a program in an interpreter of its own; see :mod:`opsmith.runner.bare.program`.

        Args:
            source: of the program.
            reach: where what it forks may find things.
            triton: it imports Triton, too.

        Raises:
            MachineFailed: no process is to be had.
        """
        program = self._program(source)
        environment = _plain_environment(self._device, program.parent, self.visible)
        config = {
            "program": str(program),
            "environment": environment,
            "reach": msgspec.to_builtins(reach),
            "triton": triton,
        }
        return ZygoteLink(*self._fork_zygote("bare", config, program.parent / "log"), codec=msgspec.json)

    def _fork_zygote(self, role: str, config: dict[str, Any], log: Path) -> tuple[socket.socket, int]:
        """Our end of a further zygote's socket, and its number."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs, log.open("ab") as output:
                _, pid = self._fork_from_root(role, config, (theirs.fileno(), output.fileno()))
        except BaseException:
            ours.close()
            raise
        return ours, pid

    def fork_bare(self, request: Path, zygote: ZygoteLink) -> Child:
        """Fork a process of a bare program that carries out a request.

        Args:
            request: a file in the folder that holds its private one, ``scratch``; the folder goes with the process.
            zygote: from :meth:`start_bare`.

        Raises:
            ZygoteGone: that zygote is gone.
        """
        child = self._fork("bare", {"request": str(request)}, zygote, request.parent, self._memory_limit_bytes)
        child.is_at_work = True
        return child

    def fork(self, role: str, config: dict[str, Any], nursery: ZygoteLink | None = None) -> Child:
        """Fork a ``referee``, or a ``worker`` from a nursery; ``config`` goes to its ``serve``.

        Raises:
            ZygoteGone: the nursery is gone.
            MachineFailed: no process is to be had.
        """
        folder = Path(tempfile.mkdtemp(dir=self.scratch))
        if role == "worker":
            places = {name: folder / name for name in ("scratch", "kernels")}
            for place in places.values():
                place.mkdir()
            config = {**config, **{name: str(place) for name, place in places.items()}}
        limit_bytes = self._memory_limit_bytes if role == "worker" else None
        try:
            child = self._fork(role, config, nursery, folder, limit_bytes)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        if role == "worker":
            self._workers.append(child)
        return child

    def _fork(
        self, role: str, config: dict[str, Any], zygote: ZygoteLink | None, folder: Path, limit_bytes: int | None
    ) -> Child:
        root = self._zygote
        ours, theirs = socket.socketpair()
        read_fd, write_fd = os.pipe()
        os.set_blocking(read_fd, False)
        try:
            descriptors = (theirs.fileno(), write_fd)
            if zygote is None:
                root, pid = self._fork_from_root(role, config, descriptors)
            else:
                pid = zygote.fork(role, config, descriptors, FORK_TIMEOUT_S)
        except BaseException:
            ours.close()
            os.close(read_fd)
            raise
        finally:
            theirs.close()
            os.close(write_fd)
        child = Child(zygote or root, pid, Channel(ours), read_fd, folder, limit_bytes=limit_bytes, root=root)
        self._children[pid] = child
        self._selector.register(read_fd, selectors.EVENT_READ, child)
        return child

    def guard(self, child: Child, questions: int | None, builds: Path) -> None:
        """Answer a worker's questions from now on, if it asks any.

        Args:
            child: the worker.
            questions: where they come from.
            builds: parent of the build caches.
        """
        child.builds = builds
        if questions is not None:
            child.gate = Gate(questions, self._written(builds), self._since_ns)
            self._selector.register(questions, selectors.EVENT_READ, child.gate)

    def has_memory_for_worker(self) -> bool:
        """Whether one more worker can be kept ready now.

        A driver makes contexts one after another, so a few are made at a time; the memory of one
        that was killed is free only when its process has ended.
        """
        self._workers = [worker for worker in self._workers if worker.wait(0.0) is None]
        starting = sum(not worker.is_at_work and not worker.has_spoken() for worker in self._workers)
        return len(self._workers) < self.worker_limit and starting < MAX_STARTING_WORKERS

    def started_by(self, child: Child) -> list[int]:
        """The processes that a worker has started and that live, those included whose parents have ended."""
        orphans = [pid for pid in children_of(child.zygote.pid) if pid not in self._children]
        return [*orphans, *(pid for parent in (child.pid, *orphans) for pid in descendants(parent))]

    def discard(self, child: Child) -> None:
        """Kill a child, if it still lives, and remove what it leaves."""
        child.kill()
        for descriptor in (child.output_fd, *([child.gate.descriptor] if child.gate is not None else [])):
            with contextlib.suppress(KeyError):
                self._selector.unregister(descriptor)
        child.close()
        self._children.pop(child.pid, None)
        shutil.rmtree(child.folder, ignore_errors=True)

    # ------------------------------------------------------------ the watching threads

    def _watch(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select(WATCH_INTERVAL_S):
                if isinstance(key.data, Gate):
                    self._answer(key.data)
                else:
                    self._drain(key.data)

    def _watch_limits(self) -> None:
        while not self._closing:
            for child in list(self._children.values()):
                self._check_limits(child)
            time.sleep(WATCH_INTERVAL_S)

    def _answer(self, gate: Gate) -> None:
        if not gate.answer():
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(gate.descriptor)

    def _drain(self, child: Child) -> None:
        if not child.drain():
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(child.output_fd)
            return
        if child.output_bytes > self._output_limit_bytes and child.killed_for is None:
            child.killed_for = Status.OUTPUT_LIMIT
            child.kill()

    def _check_limits(self, child: Child) -> None:
        if child.limit_bytes is None or child.killed_for is not None or not child.is_at_work:
            return
        started = self.started_by(child)
        if self._has_too_many(child, started):
            child.killed_for = Status.CRASHED
            _kill_tree(child.pid, lambda: self.started_by(child))
            child.kill()
            return
        if started and not child.is_trusted:
            self._end_other_programs(child, started)
        used = resident_bytes(child.pid) + sum(map(proportional_bytes, started))
        if used - child.start_bytes > child.limit_bytes:
            child.killed_for = Status.OUT_OF_MEMORY
            child.kill()

    def _has_too_many(self, child: Child, started: Sequence[int]) -> bool:
        """Whether a worker has more processes or threads than it may."""
        if child.gate is not None:
            child.gate.room = MOST_STARTED - len(started)
            if child.gate.is_full:
                return True
        return len(started) > MOST_STARTED or sum(map(thread_count, (child.pid, *started))) > MOST_THREADS

    def _end_other_programs(self, child: Child, started: Iterable[int]) -> None:
        """Kill programs that have loaded code of the kernel's or torch's, as a plug-in or before they began.

        On a machine where a worker cannot be kept from starting programs, kill those that it may not start, too.
        """
        own = _first_facts(child.pid)
        written = self._written(child.builds)
        for pid in started:
            program = running_program(pid)
            if program is None or _first_facts(pid) == own:
                continue  # It has ended, or is a copy of the worker.
            is_refused = child.gate is None and refusal(program, written, self._since_ns) is not None
            if is_refused or any(_is_foreign(path, written) for path in _code_files(pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _written(self, builds: Path) -> tuple[Path, Path]:
        """The folders that workers write to."""
        return self.scratch.resolve(), builds.resolve()


def _kill_tree(pid: int, started: Callable[[], Iterable[int]]) -> None:
    """Kill a process with all that it has ``started``, which goes on to start more until all of it is stopped."""
    stopped: set[int] = set()
    for _ in range(MOST_LOOKS):
        found = {pid, *started()} - stopped
        if not found:
            break
        _send_all(found, signal.SIGSTOP)
        stopped |= found
    _send_all(stopped, signal.SIGKILL)


def _send_all(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _first_facts(pid: int) -> bytes | None:
    """What the system told a program when it began, random addresses among it: forked processes share it."""
    try:
        return Path(f"/proc/{pid}/auxv").read_bytes()
    except OSError:
        return None


def _code_files(pid: int) -> set[str]:
    """The files of which a process executes code."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    fields = (line.split(maxsplit=5) for line in lines)
    return {field[5] for field in fields if len(field) == 6 and "x" in field[1]}


def _is_foreign(path: str, written: Iterable[Path]) -> bool:
    """Whether no compiler has a reason to execute that file."""
    return Path(path).name.startswith("libtorch") or any(Path(path).is_relative_to(folder) for folder in written)


def _scrubbed_environment(device: str, scratch: Path, visible: str | None) -> dict[str, str]:
    kind = kind_of(device)
    kept = {name: os.environ[name] for name in (*KEPT_VARIABLES, *kind.kept_variables) if name in os.environ}
    kept |= kind.showing(visible)
    return kept | {
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        # Counting devices through the CUDA runtime would spoil CUDA for every forked child.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        QUEUES_VARIABLE: QUEUES,
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "PYTHONDONTWRITEBYTECODE": "1",
        # A pool of compiling processes would run beside the clock; and no worker may start Python to see whether what
        # it has compiled for this processor can be loaded.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_VEC_ISA_OK": "1",
        # OpInfo makes some samples in the order of a set of strings: with one hash seed their addresses mean the same
        # in every process.
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        # A kernel's threads share a core while it is timed: one that looks for work there keeps the others from theirs.
        "OMP_WAIT_POLICY": "PASSIVE",
        "KMP_BLOCKTIME": "0",
        "PYTHONWARNINGS": "ignore",
        # JAX would take three quarters of the device when it is first used, in each worker.
        JAX_VARIABLE: "false",
        **dict(kind.variables),
    }


def _plain_environment(device: str, folder: Path, visible: str | None) -> dict[str, str]:
    """What a program finds that runs on this machine, whoever started it."""
    scrubbed = _scrubbed_environment(device, folder, visible)
    kind = kind_of(device)
    of_kind = {kind.visible_variable, *kind.kept_variables, *dict(kind.variables)}
    named = {*KEPT_VARIABLES, *of_kind, "HOME", "TMPDIR", JAX_VARIABLE}
    return {name: value for name, value in scrubbed.items() if name in named}
