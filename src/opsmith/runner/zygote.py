"""The zygote: a process that imports torch and triton, runs nothing, and forks the others.

It never makes a tensor, so it has no thread pool and no device context; a child forked from it is
ready in milliseconds instead of the seconds that the imports take. (A child forked from a process
that has run a parallel region hangs in its own first one.)

It is started with ``FD DEVICE SCRATCH [--compiler] [--opinfo] [--without=LAYER ...]`` and a SEQPACKET socket to the
judge. One packet in is a :class:`~opsmith.runner.protocol.fork_messages.Fork` with two descriptors (the child's channel
and its output pipe); packets out are ``Ready``, ``Forked`` and ``Exited``. It outlives a judge that is killed just long
enough to end every process below it and to remove the folder SCRATCH.

A zygote also forks further zygotes: one *nursery* for the workers of each slot. What a worker
starts and leaves behind becomes the nursery's child and is killed when the worker ends; a worker
that kills its parent takes along its own slot's nursery and nobody else's worker.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import platform
import select
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from opsmith.core.judging import JUDGING_VARIABLE
from opsmith.devices import kind_of
from opsmith.runner.protocol.channel import Channel
from opsmith.runner.protocol.fork_messages import MAX_PACKET_BYTES, Exited, Fork, Forked, NotForked, Ready
from opsmith.runner.sandbox.kernel_calls import adopt_orphans, die_with_parent, set_readable
from opsmith.runner.sandbox.layers import Sandbox, probe
from opsmith.runner.sandbox.reach import Reach

#: Before a fork is tried again that the system refuses, and again: others may be about to end.
FORK_PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6)

#: Where a bare program finds the layers of its sandbox.
LAYERS = 4


def main(arguments: Sequence[str]) -> None:
    """Import, report ready, then fork on request until the judge goes away.

    Args:
        arguments: what it is started with; no child has them among its own.
    """
    descriptor, device, scratch, *options = arguments
    control = socket.socket(fileno=int(descriptor))
    os.environ[JUDGING_VARIABLE] = "1"  # Here, for what a process is started with stays in /proc for good.
    _end_with_folder(Path(scratch))
    # A signal that can be waited for: there are children to end first.
    die_with_parent(signal.SIGTERM)
    set_readable(readable=False)
    gc.disable()  # Imports make a million objects that stay: looking through them took a quarter of the time.
    # Processes of kernels write no bytecode. What is imported here is opsmith's, torch's and Triton's: where nobody has
    # compiled it, as after `uv pip install`, compiling it took 7 s of each start.
    sys.dont_write_bytecode = False
    facts = _import_everything(
        device,
        Path(scratch),
        with_compiler="--compiler" in options,
        with_opinfo="--opinfo" in options,
    )
    sys.dont_write_bytecode = True
    gc.freeze()  # Children never touch the pages of what was imported, so they stay shared.
    gc.enable()
    left_out = {argument.partition("=")[2] for argument in options if argument.startswith("--without=")}
    layers = probe(Path(scratch), left_out)
    with contextlib.suppress(ConnectionError):  # The judge is gone, which ends the serving, too.
        control.send(msgspec.msgpack.encode(Ready({**facts, "sandbox": layers})))
    serve(control, Sandbox(layers))
    shutil.rmtree(scratch, ignore_errors=True)


def _end_with_folder(scratch: Path) -> None:
    """At SIGTERM end, and remove the folder that the judge made; so until requests are served."""
    own = os.getpid()

    def end(*_: object) -> None:
        if os.getpid() == own:
            shutil.rmtree(scratch, ignore_errors=True)
        os._exit(1)

    signal.signal(signal.SIGTERM, end)


def _import_everything(device: str, scratch: Path, *, with_compiler: bool, with_opinfo: bool) -> dict[str, Any]:
    from opsmith.runner.child.interpreted_bfloat16 import mend_bfloat16
    from opsmith.runner.child.triton_start import DriverModule, make_interpreter_quick, make_keys_quick

    kind = kind_of(device)
    driver_module = DriverModule(scratch / "driver") if kind.nvidia_driver else None

    import torch
    import torch._dynamo  # Dispatch modes and torch.manual_seed import it when they are first used: 1.2 s.

    import opsmith.runner.referee.server
    import opsmith.runner.worker.server  # noqa: F401
    from opsmith.runner.child.versions import versions

    kind.register()
    if with_opinfo and kind.survives_fork:
        # With a GPU OpInfo's import asks the CUDA runtime for the device's capability, after which no
        # forked child may use CUDA: there each referee that enumerates imports it for itself.
        import torch.testing._internal.common_methods_invocations

    if with_compiler:
        # As slow to import as the rest of torch: for those only who need it.
        import torch._inductor.config  # noqa: F401

    facts = {
        "python": platform.python_version(),
        **versions(),
        "autoload": os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD"),
        "interpreted": os.environ.get("TRITON_INTERPRET") == "1",
    }
    if facts["triton"] is not None and facts["interpreted"]:
        make_interpreter_quick()
        mend_bfloat16()
    elif facts["triton"] is not None:
        make_keys_quick()

    from opsmith.evaluation.integrity.supervision import premises

    premises()
    if driver_module is not None:
        driver_module.keep()
    return facts


def serve(control: socket.socket, sandbox: Sandbox) -> None:
    """Fork on request until the judge goes away, then end every process below this one."""
    adopt_orphans()
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    poller = select.poll()
    poller.register(control, select.POLLIN)
    poller.register(wake_read, select.POLLIN)
    forked: set[int] = set()
    with contextlib.suppress(ConnectionError):  # The judge is gone.
        while True:
            ready = {descriptor for descriptor, _ in poller.poll()}
            if wake_read in ready:
                if signal.SIGTERM in os.read(wake_read, 4096):
                    break
                _reap(control, forked)
            if control.fileno() in ready:
                packet, descriptors, _, _ = socket.recv_fds(control, MAX_PACKET_BYTES, 2)
                if not packet:
                    break
                pid = _fork(control, msgspec.msgpack.decode(packet, type=Fork), descriptors, sandbox)
                if pid is not None:
                    forked.add(pid)
    _end_children()


def _reap(control: socket.socket, forked: set[int]) -> None:
    """Reap what has ended, kill what it left behind, then tell the judge of the children that it asked for."""
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0] != 0:
            ended[found[0]] = found[1]
    asked = forked & ended.keys()
    forked -= asked
    _kill_all(_children() - forked)
    for pid in asked:
        control.send(msgspec.msgpack.encode(Exited(pid, os.waitstatus_to_exitcode(ended[pid]))))


def _end_children() -> None:
    """Kill children, and what becomes a child by their death, until there is none."""
    with contextlib.suppress(ChildProcessError):
        while True:
            _kill_all(_children())
            os.waitpid(-1, 0)


def _children() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def _kill_all(pids: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _forked_pid() -> int:
    """What ``os.fork`` returns.

    Raises:
        OSError: the system refuses it again and again.
    """
    for pause_s in FORK_PAUSES_S:
        try:
            return os.fork()
        except OSError:
            time.sleep(pause_s)
    return os.fork()


def _fork(control: socket.socket, request: Fork, descriptors: list[int], sandbox: Sandbox) -> int | None:
    """Fork a child and tell the judge; its number, or None where there is none."""
    try:
        pid = _forked_pid()
    except OSError as exc:
        for descriptor in descriptors:
            os.close(descriptor)
        control.send(msgspec.msgpack.encode(NotForked(str(exc.strerror))))
        return None
    if pid == 0:
        try:
            channel_fd, output_fd = descriptors
            _become(request, channel_fd, output_fd, sandbox)
        except BaseException:  # noqa: BLE001 - a forked child never returns into the zygote's loop
            traceback.print_exc()
        finally:
            os._exit(70)
    for descriptor in descriptors:
        os.close(descriptor)
    control.send(msgspec.msgpack.encode(Forked(pid)))
    return pid


def _become(request: Fork, channel_fd: int, output_fd: int, sandbox: Sandbox) -> None:
    """Turn the forked child into a nursery, a referee, a worker or a bare program; ends with the process."""
    os.setsid()
    die_with_parent(signal.SIGKILL)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (output_fd, 1), (output_fd, 2)):
        os.dup2(source, target)
    # The channel moves to 3, then nothing above it is inherited.
    os.dup2(channel_fd, 3)
    os.closerange(4, os.sysconf("SC_OPEN_MAX"))
    judge = socket.socket(fileno=3)
    if request.role == "nursery":
        sandbox.enter(msgspec.convert(request.config, Reach))
        serve(judge, sandbox)
    elif request.role == "bare":
        _leave_for(sandbox, **request.config)
    elif request.role == "referee":
        from opsmith.runner.referee.server import serve as serve_referee

        sys.dont_write_bytecode = False  # It imports suites, and OpInfo where there is a GPU.
        serve_referee(Channel(judge), **request.config)
    else:
        from opsmith.runner.worker.server import serve as serve_worker

        set_readable(readable=True)  # Until it is confined its own files in /proc have to be its own.
        serve_worker(Channel(judge), **request.config, sandbox=sandbox)
    os._exit(0)


def _leave_for(
    sandbox: Sandbox, *, program: str, environment: dict[str, str], reach: dict[str, Any], triton: bool
) -> None:
    """Go on as an interpreter of its own that runs ``program``, in the place where workers are; see :mod:`.bare`."""
    sandbox.enter(msgspec.convert(reach, Reach))
    layers = os.memfd_create("layers", 0)
    os.write(layers, json.dumps({**sandbox.described(), "triton": triton}).encode())
    os.lseek(layers, 0, os.SEEK_SET)
    assert layers == LAYERS, "nothing above the control socket is open"
    os.execve(sys.executable, [sys.executable, program], environment)  # noqa: S606 - no shell is wanted
