"""The zygote: a process that imports torch and triton, runs nothing, and forks the others.

It never makes a tensor, so it has no thread pool and no device context; a child forked from it is
ready in milliseconds instead of the seconds that the imports take. (A child forked from a process
that has run a parallel region hangs in its own first one.)

Started as ``python -m opsmith.runner.zygote FD`` with a SEQPACKET socket to the judge: one packet
in is a :class:`~opsmith.runner.protocol.Fork` with two descriptors (the child's channel and its
output pipe); packets out are ``Ready``, ``Forked`` and ``Exited``.
"""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import select
import signal
import socket
import sys
import traceback
from typing import Any

import msgspec

from opsmith.runner.protocol import Channel, Exited, Fork, Forked, Ready

MAX_PACKET_BYTES = 1 << 16

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Import, report ready, then fork on request until the judge goes away."""
    control = socket.socket(fileno=int(sys.argv[1]))
    die_with_parent()
    facts = _import_everything()
    gc.collect()
    gc.freeze()  # Children never touch the pages of what was imported, so they stay shared.
    control.send(msgspec.msgpack.encode(Ready(facts)))
    _serve(control)


def _import_everything() -> dict[str, Any]:
    import torch
    import torch._inductor.config
    import torch.testing._internal.common_methods_invocations

    import opsmith.runner.referee
    import opsmith.runner.worker  # noqa: F401

    facts = {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "triton": None,
        "cuda": torch.version.cuda,
        "autoload": os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD"),
        "interpreted": os.environ.get("TRITON_INTERPRET") == "1",
    }
    try:
        import triton
    except ImportError:
        return facts
    return {**facts, "triton": triton.__version__}


def _serve(control: socket.socket) -> None:
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    poller = select.poll()
    poller.register(control, select.POLLIN)
    poller.register(wake_read, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poller.poll()}
        if wake_read in ready:
            os.read(wake_read, 4096)
            _report_exits(control)
        if control.fileno() in ready:
            packet, descriptors, _, _ = socket.recv_fds(control, MAX_PACKET_BYTES, 2)
            if not packet:
                return  # The judge is gone; children follow through their parent-death signal.
            _fork(control, msgspec.msgpack.decode(packet, type=Fork), descriptors)


def _report_exits(control: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        control.send(msgspec.msgpack.encode(Exited(pid, os.waitstatus_to_exitcode(status))))


def _fork(control: socket.socket, request: Fork, descriptors: list[int]) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            _become(request, *descriptors)
        except BaseException:  # noqa: BLE001 - a forked child never returns into the zygote's loop
            traceback.print_exc()
        finally:
            os._exit(70)
    for descriptor in descriptors:
        os.close(descriptor)
    control.send(msgspec.msgpack.encode(Forked(pid)))


def _become(request: Fork, channel_fd: int, output_fd: int) -> None:
    """Turn the forked child into a referee or a worker; ends with the process."""
    os.setsid()
    die_with_parent()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (output_fd, 1), (output_fd, 2)):
        os.dup2(source, target)
    # The channel moves to 3, then nothing above it is inherited.
    os.dup2(channel_fd, 3)
    os.closerange(4, os.sysconf("SC_OPEN_MAX"))
    channel = Channel(socket.socket(fileno=3))
    if request.role == "referee":
        from opsmith.runner import referee

        referee.serve(channel, **request.config)
    else:
        from opsmith.runner import worker

        worker.serve(channel, **request.config)
    os._exit(0)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies (Linux's PR_SET_PDEATHSIG)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
