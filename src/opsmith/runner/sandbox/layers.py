"""The layers of the sandbox: put on one after another, each tried out before anybody relies on it."""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import msgspec

from opsmith.runner.sandbox import landlock, seccomp
from opsmith.runner.sandbox.kernel_calls import forgo_privileges, set_readable
from opsmith.runner.sandbox.landlock import EVERYTHING, READ, USE_DEVICE, PathRule
from opsmith.runner.sandbox.namespaces import (
    SHARED_BY_RANKS_MIB,
    SHARED_MEMORY,
    SHARED_MIB,
    leave_network,
    make_read_only,
    raise_loopback,
)
from opsmith.runner.sandbox.questions import Gate
from opsmith.runner.sandbox.reach import Reach, private, readable


class Layer(enum.StrEnum):
    """What a machine may or may not be able to do for the judge."""

    MEMORY = "unreadable memory of judge, referees and zygotes"
    NETWORK = "user, network and IPC namespaces"
    READ_ONLY = "read-only file system"
    PRIVILEGES = "no privileges"
    FILES = "file rules"
    SIGNALS = "signals to its own processes only"
    SYSTEM_CALLS = "system-call filter"
    PROGRAMS = "starts compilers only, and nothing in timed blocks"


class Sandbox:
    """The sandbox of workers, put on in three steps by three processes, each born from the one before.

    Args:
        found: what :func:`probe` found; the layers that hold are put on.
    """

    def __init__(self, found: Mapping[str, str | None]) -> None:
        self._active = {Layer(name) for name, problem in found.items() if problem is None}

    def enter(self, reach: Reach) -> None:
        """For a nursery, before it forks: what its workers are born with.

        Args:
            reach: where things lie.
        """
        Path(reach.builds).mkdir(parents=True, exist_ok=True)  # The first run ever, and soon read-only.
        self._reach = reach
        self._readable = readable(reach)
        if Layer.NETWORK in self._active:
            set_readable(readable=True)  # Else the files that describe the user namespace are root's.
            leave_network()
            if reach.for_ranks:
                raise_loopback()
        if Layer.READ_ONLY in self._active:
            shared_mib = SHARED_BY_RANKS_MIB if reach.for_ranks else SHARED_MIB
            make_read_only([reach.scratch, reach.builds], shared_mib=shared_mib)
        if Layer.PRIVILEGES in self._active:
            forgo_privileges()
        if {Layer.SYSTEM_CALLS, Layer.PROGRAMS} & self._active:
            seccomp.compiled()  # Once, and not in each worker.
        set_readable(readable=False)

    def confine(self, scratch: str, kernels: str, rendezvous: str = "") -> int | None:
        """For a worker, before it has a second thread or runs anything of a stranger's.

        Until it loads a kernel nobody else may look into it either: it may be the next kernel's. A rank may connect
        with the others until then.

        Args:
            scratch: the folder that it may write to.
            kernels: the folder with the files of its kernel.
            rendezvous: of a rank, the folder where it meets the others; empty for a worker that runs kernels alone.

        Returns:
            the descriptor of the questions that the judge is to answer, see :mod:`.questions`; None without that layer.
        """
        self._private = (scratch, kernels)
        self._rendezvous = rendezvous
        self._is_narrow = False
        if Layer.FILES in self._active:
            self._restrict(self._reach.builds, connects=bool(rendezvous))
        if Layer.SYSTEM_CALLS in self._active:
            seccomp.refuse_system_calls(connects=bool(rendezvous))
        questions = seccomp.ask_about_processes() if Layer.PROGRAMS in self._active else None
        set_readable(readable=False)
        return questions

    def described(self) -> dict[str, Any]:
        """For a program that has not this module, in a nursery: what it needs to confine itself as a worker is."""
        limits_files = Layer.FILES in self._active
        rules = [*self._readable] if limits_files else []
        if Layer.READ_ONLY in self._active:
            rules.append(PathRule(SHARED_MEMORY, EVERYTHING))
        number, filters = seccomp.described() if Layer.SYSTEM_CALLS in self._active else (0, [])
        return {
            "landlock": landlock.described() if limits_files else None,
            "readable": [[*rule] for rule in rules],
            "own": READ | USE_DEVICE,
            "seccomp": number,
            "filters": filters,
        }

    def narrow(self, builds: Path | None) -> None:
        """For a worker, before it loads a kernel: of the build caches only this one remains, if any.

        A device's driver may have started threads by now. Where Landlock cannot reach them they
        keep access to all build caches.
        """
        if self._is_narrow:
            return  # A process may have few sets of rules.
        self._is_narrow = True
        if Layer.FILES in self._active and (self._reach.one_kernel or self._rendezvous):
            kept = builds if self._reach.one_kernel else Path(self._reach.builds)
            self._restrict("" if kept is None else str(kept))
        if Layer.SYSTEM_CALLS in self._active:
            seccomp.refuse_to_kernels()
        # From here on the judge has to see how much memory is used by what a kernel starts.
        set_readable(readable=True)

    def _restrict(self, builds: str, *, connects: bool = False) -> None:
        rules = [*self._readable, *private(*self._private, builds, self._rendezvous)]
        if Layer.READ_ONLY in self._active:
            rules.append(PathRule(SHARED_MEMORY, EVERYTHING))  # A nursery's own by then.
        landlock.restrict(rules, connects=connects)


# ---------------------------------------------------------------- trying out


class _Step(NamedTuple):
    """How a layer is put on, and an attempt that must fail from then on, with the error that says why."""

    layer: Layer
    put_on: Callable[[], None]
    attempt: Callable[[], object]
    expected: tuple[int, ...]


_LEFT_OUT = "left out on request"


def probe(folder: Path, left_out: Container[str] = ()) -> dict[str, str | None]:
    """Put the layers on a child of this process and try to get around each.

    One that does not hold is put on nobody. What another one stops was perhaps stopped by it, so those that follow are
    tried out again without it, in another child.

    Args:
        folder: may be written to.
        left_out: layers that are not wanted.

    Returns:
        layer -> None where it holds, else one line that says why it does not.
    """
    found: dict[str, str | None] = {layer: _LEFT_OUT for layer in Layer if layer in left_out}
    while True:
        told = _tried_out(folder, found)
        if told is None:
            return dict.fromkeys(map(str, Layer), "it could not be tried out: the process that did so died")
        failed = next((layer for layer, problem in told.items() if problem is not None), None)
        if failed is None:
            break
        found[failed] = told[failed]
    found |= told
    if Layer.PROGRAMS not in found:
        found[Layer.PROGRAMS] = _try_programs(confined=found[Layer.NETWORK] is None)
    return {str(layer): found[layer] for layer in Layer}


def _tried_out(folder: Path, without: Container[str]) -> dict[str, str | None] | None:
    """What a child finds of each layer but some, up to the first that does not hold; None if it dies."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write_end, msgspec.msgpack.encode(_try_out(folder, without)))
        except BaseException:  # noqa: BLE001 - a forked child never returns into its parent's code
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(write_end)
    with open(read_end, "rb") as stream:  # noqa: PTH123 - a descriptor, not a path
        told = stream.read()
    os.waitpid(pid, 0)
    return msgspec.msgpack.decode(told, type=dict[str, str | None]) if told else None


def _try_out(folder: Path, without: Container[str]) -> dict[str, str | None]:
    inside, outside = folder / "inside", folder / "outside"
    inside.mkdir(exist_ok=True)  # Another zygote has tried, which is gone.
    outside.write_text("not to be read")
    found: dict[str, str | None] = {}
    for step in _steps(inside, outside):
        if step.layer not in without:
            found[step.layer] = _try(step)
            if found[step.layer] is not None:
                break
    return found


def _steps(inside: Path, outside: Path) -> list[_Step]:
    # Python may import from a folder above, which is given without what is withheld.
    reach = Reach(scratch=str(inside), builds=str(inside), withheld=(str(outside),), home="/nonexistent")
    allowed = [*readable(reach), *private(str(inside), str(inside), str(inside))]
    parent = os.getppid()

    def enter_user_namespace() -> None:
        set_readable(readable=True)
        leave_network()

    def limit_files() -> None:
        if not landlock.limits_files():
            raise OSError(errno.ENOSYS, f"this kernel's Landlock has ABI {landlock.abi()}; 2 is needed (Linux 5.19)")
        landlock.restrict(allowed)

    def limit_signals() -> None:
        if not landlock.limits_signals():
            raise OSError(errno.ENOSYS, f"this kernel's Landlock has ABI {landlock.abi()}; 6 is needed (Linux 6.12)")

    def filter_calls() -> None:
        seccomp.refuse_system_calls()
        seccomp.refuse_to_kernels()

    def nothing() -> None: ...

    denied = (errno.EACCES, errno.EPERM)
    return [
        _Step(Layer.NETWORK, enter_user_namespace, _look_for_network, (errno.ENETDOWN,)),
        _Step(Layer.READ_ONLY, lambda: make_read_only([str(inside)]), lambda: outside.chmod(0o600), (errno.EROFS,)),
        _Step(Layer.PRIVILEGES, forgo_privileges, lambda: os.chroot(inside), (errno.EPERM,)),
        _Step(Layer.FILES, limit_files, outside.read_text, (errno.EACCES,)),
        _Step(Layer.SIGNALS, limit_signals, lambda: os.kill(parent, 0), (errno.EPERM,)),
        _Step(Layer.SYSTEM_CALLS, filter_calls, lambda: socket.socket(socket.AF_UNIX), (errno.EPERM,)),
        _Step(Layer.MEMORY, nothing, Path(f"/proc/{parent}/mem").open, denied),
    ]


def _look_for_network() -> None:
    lines = Path("/proc/self/net/dev").read_text(encoding="utf-8").splitlines()[2:]
    if {line.partition(":")[0].strip() for line in lines} <= {"lo"}:
        raise OSError(errno.ENETDOWN, "there is only the loopback device, which is down")


def _try(step: _Step) -> str | None:
    try:
        step.put_on()
    except OSError as exc:
        return str(exc.strerror)
    try:
        step.attempt()
    except OSError as exc:
        return None if exc.errno in step.expected else f"unexpected: {exc.strerror}"
    return "it was put on, and what it should stop went through"


def _try_programs(*, confined: bool) -> str | None:
    """Have a child try to start Python, which this process refuses as a judge does.

    Args:
        confined: workers are in a user namespace of their own.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pid = os.fork()
        if pid == 0:
            _start_python(theirs, confined=confined)
        theirs.close()
        told, descriptors, _, _ = socket.recv_fds(ours, 1024, 1)
        if descriptors:
            gate = Gate(descriptors[0], (), time.time_ns())
            gate.answer()
            gate.close()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if not descriptors:
        return told.decode(errors="replace")
    return None if status == errno.EACCES else "it was put on, and what it should stop went through"


def _start_python(told: socket.socket, *, confined: bool) -> NoReturn:
    """Put the layer on and try; the process ends with the error that it meets."""
    try:
        set_readable(readable=True)
        if confined:
            leave_network()
        forgo_privileges()
        questions = seccomp.ask_about_processes()
        socket.send_fds(told, [b"\0"], [questions])
        os.close(questions)
        os.execv(sys.executable, [sys.executable, "-c", ""])  # noqa: S606 - it is to be refused
    except OSError as exc:
        with contextlib.suppress(OSError):
            told.send(str(exc.strerror).encode())
        os._exit(exc.errno or 255)
    finally:
        os._exit(255)
