"""Executor ``local``: the devices of this machine.

One device is judged on by this process. For several, each gets a process with a judge of its own: one that times looks
for its workers' replies again and again, and would keep the others from looking for theirs.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Pipe
from pathlib import Path

import msgspec

from opsmith.devices import kind_of
from opsmith.errors import BadInput
from opsmith.runner.executors.messages import (
    Done,
    LaneProblem,
    LaneReply,
    LaneRequest,
    OpenLane,
    decode_reply,
    encode,
)
from opsmith.runner.executors.remote_lane import RemoteLane
from opsmith.runner.judge.device_lane import open_here
from opsmith.runner.machine.cores import default_jobs
from opsmith.runner.protocol.call_files import SentCalls
from opsmith.runner.protocol.job import Job
from opsmith.runner.protocol.lane import Lane, LaneLost, LaneWork, Waiting
from opsmith.runner.sandbox.kernel_calls import unreadable

END_TIMEOUT_S = 30.0


class Local:
    """Makes a lane for each of the devices asked for.

    Args:
        argument: what follows ``local:``; there is nothing to say.
        devices: ``all``, how many, or names separated by commas; empty for the one that ``--device`` names.

    Raises:
        BadInput: there is an argument.
    """

    def __init__(self, argument: str = "", devices: str = "") -> None:
        if argument:
            raise BadInput(f"--executor local takes no argument, not {argument!r}; write --executor local")
        self._devices = devices

    @contextlib.contextmanager
    def lanes(self, work: LaneWork, waiting: Waiting | None = None) -> Iterator[Sequence[Lane]]:
        if not self._devices:
            with open_here(work, waiting) as lane:
                yield [lane]
            return
        devices = chosen_devices(self._devices, work.options.device)
        kind = kind_of(work.options.device)
        jobs = work.jobs or default_jobs(work.options, len(devices))
        with contextlib.ExitStack() as opened:
            opened.enter_context(unreadable())
            folder = opened.enter_context(tempfile.TemporaryDirectory(prefix="opsmith-cases-"))
            calls = opened.enter_context(contextlib.closing(SentCalls(Path(folder))))
            seen = [kind.showing(device) for device in devices]
            wires = [opened.enter_context(contextlib.closing(ProcessWire(one, jobs))) for one in seen]
            opened.callback(_end_together, wires)
            lanes = [RemoteLane(wire, calls) for wire in wires]
            ours = msgspec.structs.replace(work, jobs=jobs, withheld=(*work.withheld, folder))
            requests = [
                OpenLane(msgspec.structs.replace(ours, share=(number, len(devices)))) for number in range(len(devices))
            ]
            with ThreadPoolExecutor(len(lanes)) as pool:
                list(pool.map(RemoteLane.open, lanes, requests))
            yield lanes


class ProcessWire:
    """A lane's process on this machine, with a connection for each of its slots.

    Args:
        seen: what its environment has besides: which device it sees.
        slots: ops judged at a time.
    """

    def __init__(self, seen: Mapping[str, str], slots: int) -> None:
        pairs = [Pipe() for _ in range(slots)]
        self._ours = [ours for ours, _ in pairs]
        theirs = [end for _, end in pairs]
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [
                *(sys.executable, "-P", "-m", "opsmith.runner.executors.lane_process"),
                *(str(end.fileno()) for end in theirs),
            ],
            pass_fds=[end.fileno() for end in theirs],
            env={**os.environ, **seen},
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C at a terminal is the run's to handle.
        )
        for end in theirs:
            end.close()

    @property
    def pid(self) -> int:
        """The lane's process."""
        return self._process.pid

    def ask(self, slot: int, request: LaneRequest) -> Iterator[LaneReply]:
        """See :meth:`opsmith.runner.executors.remote_lane.Wire.ask`."""
        try:
            self._ours[slot].send_bytes(encode(request))
            while True:
                reply = decode_reply(self._ours[slot].recv_bytes())
                yield reply
                if isinstance(reply, (Done, LaneProblem)):
                    return
        except (OSError, EOFError) as exc:
            raise LaneLost(f"the judge's process of a device ended ({exc})") from exc

    def bring(self, jobs: Sequence[Job]) -> list[Job]:
        """The process reads the run's own copies."""
        return list(jobs)

    def hang_up(self) -> None:
        """Let the process end."""
        for end in self._ours:
            end.close()

    def close(self) -> None:
        """Let the process end, and see that it does."""
        self.hang_up()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _end_together(wires: Sequence[ProcessWire]) -> None:
    """A lane whose contexts end takes a second and more, and one does not wait for the other."""
    for wire in wires:
        wire.hang_up()


def chosen_devices(asked: str, device: str) -> list[str | None]:
    """The devices that ``--devices`` means, as the variable of their kind names them; None for a share of the CPU.

    Args:
        asked: ``all``, a number, or names separated by commas.
        device: the torch device string of the run, without a number.

    Raises:
        BadInput: there are no such devices.
    """
    kind, _, number = device.partition(":")
    if number:
        raise BadInput(f"--device {device} names one device and --devices others; write --device {kind} --devices ...")
    names = [name.strip() for name in asked.split(",")]
    if kind == "cpu":
        return [None] * _cpu_lanes(names, asked)
    variable, there = kind_of(kind).visible_variable, kind_of(kind).visible()
    if variable is None:
        raise BadInput(f"--devices {asked}: no variable shows a process one {kind} device of several; leave it out")
    if kind != "cuda" and not there:
        raise BadInput(f"--devices {asked}: nothing lists the {kind} devices; do so yourself, as in {variable}=0,1")
    if asked == "all" or asked.isdecimal():
        wanted = len(there) if asked == "all" else int(asked)
        if not 0 < wanted <= len(there):
            raise BadInput(f"--devices {asked}: this machine has {len(there)} of them")
        return list(there[:wanted])
    known = {f"{kind}:{index}": visible for index, visible in enumerate(there)}
    if len(set(names)) < len(names) or not known.keys() >= set(names):
        raise BadInput(f"--devices {asked}: name each device once; there is: {', '.join(known) or 'none'}")
    return [known[name] for name in names]


def _cpu_lanes(names: Sequence[str], asked: str) -> int:
    if asked.isdecimal() and int(asked):
        return int(asked)
    if asked != "all" and set(names) != {"cpu"}:
        raise BadInput(f"--devices {asked} with --device cpu: write how many judges are to share the CPU, as a number")
    return len(names)
