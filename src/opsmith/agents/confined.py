"""The program that becomes an agent: confines itself, and starts the agent's command.

Run as ``python -m opsmith.agents.confined SPEC``; it imports no torch. The agent gets a user, process, network, IPC and
mount namespace of its own. It sees its own processes only, can write to its workspace and its home only, and reads what
is installed, but none of the judge's files. Its network is the loopback device, on which a port leads to the proxy.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from pathlib import Path
from typing import NoReturn

import msgspec

from opsmith.agents.egress import pump
from opsmith.runner.sandbox.kernel_calls import forgo_privileges, mount_proc, unshare
from opsmith.runner.sandbox.landlock import EVERYTHING, READ, USE_DEVICE, PathRule, limits_files, restrict
from opsmith.runner.sandbox.namespaces import SHARED_MEMORY, leave_network, make_read_only, raise_loopback
from opsmith.runner.sandbox.reach import Reach, readable

#: Status of a program that could not be confined; its standard error says why.
UNCONFINED = 125
_NEW_PROCESSES = 0x20000000
#: What clients of HTTPS and terminals need beyond what workers do.
_NETWORK_FILES = (
    "ssl",
    "pki",
    "ca-certificates",
    "hosts",
    "resolv.conf",
    "host.conf",
    "gai.conf",
    "protocols",
    "services",
)
_TERMINALS = ("tty", "ptmx", "pts")
_DEVICES_OF_THE_JUDGE = ("/dev/nvidia", "/dev/dri", "/dev/kfd")


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be started.

    Attributes:
        command: the program and its arguments.
        workspace: it may write to, and starts in.
        home: it may write to as well.
        tools: folder with the judge's tool; it may read.
        readable: further files and folders that it may read.
        withheld: folders that it must not read.
        environment: its whole environment.
        proxy: Unix socket of the proxy; empty where it may reach no host.
    """

    command: tuple[str, ...]
    workspace: str
    home: str
    tools: str
    readable: tuple[str, ...]
    withheld: tuple[str, ...]
    environment: dict[str, str]
    proxy: str


def main(text: str) -> int:
    """Confine this process, run the command, and return its status."""
    spec = msgspec.json.decode(text, type=Spec)
    if not limits_files():
        return _unconfined("this kernel's Landlock has no file rules, so the agent could read the judge's files")
    rules = _rules(spec)
    try:
        leave_network()
        raise_loopback()
        unshare(_NEW_PROCESSES)
    except OSError as exc:
        return _unconfined(f"there are no user namespaces here ({exc.strerror}), so the agent could reach any host")
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        _first_process(spec, rules)
    finally:
        os._exit(UNCONFINED)


def _unconfined(why: str) -> int:
    sys.stderr.write(f"opsmith: the agent cannot be confined: {why}\n")
    return UNCONFINED


def _rules(spec: Spec) -> list[PathRule]:
    reach = Reach(scratch=spec.workspace, builds=spec.home, withheld=spec.withheld, home=spec.environment["HOME"])
    rules = [rule for rule in readable(reach) if not rule.path.startswith(_DEVICES_OF_THE_JUDGE)]
    rules += [PathRule(f"/etc/{name}", READ) for name in _NETWORK_FILES]
    rules += [PathRule(f"/dev/{name}", USE_DEVICE) for name in _TERMINALS]
    rules += [PathRule(path, READ) for path in (*spec.readable, spec.tools)]
    rules += [PathRule(folder, EVERYTHING) for folder in (spec.workspace, spec.home, SHARED_MEMORY)]
    return rules


def _first_process(spec: Spec, rules: list[PathRule]) -> NoReturn:
    """Be the first process of the namespace: when it ends, whatever the agent left behind ends with it."""
    try:
        make_read_only([spec.workspace, spec.home])
        own_processes_only = _sees_own_processes_only()
        forgo_privileges()
        own = [PathRule("/proc", READ)] if own_processes_only else []
        restrict([*rules, *own], connects=True)
    except OSError as exc:
        os._exit(_unconfined(str(exc)))
    environment, listener = dict(spec.environment), None
    if spec.proxy:
        listener = socket.create_server(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        environment |= dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), address)
    agent = os.fork()
    if agent == 0:
        os.chdir(spec.workspace)
        with contextlib.suppress(OSError):
            os.execvpe(spec.command[0], spec.command, environment)  # noqa: S606 - the user's own program
        sys.stderr.write(f"opsmith: {spec.command[0]} cannot be run\n")
        os._exit(127)
    if listener is not None:
        threading.Thread(target=_forward, args=(listener, spec.proxy), daemon=True).start()
    while True:
        pid, status = os.wait()
        if pid == agent:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _sees_own_processes_only() -> bool:
    """Mount a ``/proc`` of the new namespace; where that is not allowed the agent gets none."""
    try:
        mount_proc()
    except OSError:
        return False
    return True


def _forward(listener: socket.socket, proxy: str) -> None:
    """Carry each connection to the proxy outside."""
    while True:
        client, _ = listener.accept()
        outside = socket.socket(socket.AF_UNIX)
        try:
            outside.connect(proxy)
        except OSError:
            client.close()
            continue
        for one, other in ((client, outside), (outside, client)):
            threading.Thread(target=pump, args=(one, other), daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).read_text(encoding="utf-8")))
