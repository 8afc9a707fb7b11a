"""How many device contexts a machine makes and ends in a second, by devices, makers and what a maker sees.

::

    python -m benchmarks.executors.contexts -o contexts.json
    python -m benchmarks.executors.contexts --device cpu --seconds 1 --makers 1,2 -o contexts-cpu.json

Each kernel is judged in a process of its own, whose context on the device is made before it and ends with it. A maker
forks a process that makes one as a worker does, kills it, and goes on to the next. Several makers share a device,
which another process uses all the time, as a judge's referees do. ``own`` makers cannot open the files of other
devices than theirs.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import datetime as dt
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch

from opsmith.runner.devices import make_waiting_context
from opsmith.runner.environment import describe_environment
from opsmith.runner.executors.local import visible_devices
from opsmith.runner.own_devices import VISIBLE, files_of_others, hide, known_devices
from opsmith.runner.versions import versions


class Life(NamedTuple):
    """Milliseconds of a process: until the driver is ready, from there to its context, and from its kill to its end."""

    driver_ms: float
    context_ms: float
    end_ms: float


def make_context(device: str, uuid: str | None, hidden: Collection[str]) -> tuple[float, float]:
    """Milliseconds until the driver is ready, and from there until the context is."""
    if uuid is not None:
        os.environ[VISIBLE] = uuid
    if hidden:
        hide(hidden)
    start = time.perf_counter()
    if device == "cuda":
        ctypes.CDLL("libcuda.so.1").cuInit(0)
    ready = time.perf_counter()
    make_waiting_context(torch.device(device))
    return (ready - start) * 1e3, (time.perf_counter() - ready) * 1e3


def forked(work: Callable[[int], None]) -> tuple[int, int]:
    """The process that does this work, given where it tells what it found, and where that is read."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        with contextlib.suppress(BaseException):
            os.close(read_end)
            work(write_end)
            status = 0
        os._exit(status)
    os.close(write_end)
    return pid, read_end


def live(write_end: int, device: str, uuid: str | None, hidden: Collection[str]) -> None:
    """Make a context, tell how long it took, and wait to be killed."""
    os.write(write_end, msgspec.msgpack.encode(make_context(device, uuid, hidden)))
    signal.pause()


def one_life(device: str, uuid: str | None, hidden: Collection[str]) -> Life:
    """Of a process that is killed once its context is there.

    Raises:
        RuntimeError: it could not make one.
    """
    pid, read_end = forked(partial(live, device=device, uuid=uuid, hidden=hidden))
    told = os.read(read_end, 1 << 12)
    os.close(read_end)
    start = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    if not told:
        raise RuntimeError("a context could not be made")
    return Life(*msgspec.msgpack.decode(told, type=tuple[float, float]), (time.perf_counter() - start) * 1e3)


def lives_of(device: str, uuid: str | None, hidden: Collection[str], until: float) -> Iterator[Life]:
    """One after another, until a time of the monotonic clock."""
    while time.monotonic() < until:
        yield one_life(device, uuid, hidden)


def measured(device: str, uuids: list[str | None], makers: int, seconds: float, *, own: bool = False) -> dict[str, Any]:
    """The rate with so many makers a device, and what a life takes in the median; ``own``: they see no other one."""
    holders = [forked(partial(live, device=device, uuid=uuid, hidden=())) for uuid in uuids]
    for _, read_end in holders:
        os.read(read_end, 1 << 12)
    began = time.monotonic()

    def make(write_end: int, uuid: str | None) -> None:
        found = tuple(lives_of(device, uuid, files_of_others(uuid) if own else (), began + seconds))
        with open(write_end, "wb") as stream:
            stream.write(msgspec.msgpack.encode(found))

    running = [forked(partial(make, uuid=uuid)) for uuid in uuids for _ in range(makers)]
    lives: list[Life] = []
    failed = 0
    for pid, read_end in running:
        with open(read_end, "rb") as stream:  # noqa: PTH123 - a descriptor
            told = stream.read()
        failed += os.waitpid(pid, 0)[1] != 0
        lives += msgspec.msgpack.decode(told, type=list[Life]) if told else []
    took_s = time.monotonic() - began
    for pid, _ in holders:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    medians = [round(statistics.median(times), 1) for times in zip(*lives, strict=True)] if lives else []
    return {
        "devices": len(uuids),
        "makers a device": makers,
        "lives": len(lives),
        "lives_per_s": round(len(lives) / took_s, 2),
        "median_ms": dict(zip(Life._fields, medians, strict=False)),
        "makers that failed": failed,
    }


def main() -> int:
    """Measure each combination, print a line for each and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--makers", default="1,4,12", help="on each device, comma-separated")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each combination")
    parser.add_argument("-o", "--out", type=Path, required=True)
    arguments = parser.parse_args()
    uuids: list[str | None] = [*visible_devices()] if arguments.device == "cuda" else [None]
    known = known_devices() if arguments.device == "cuda" else {}
    rows = []
    for sees in ("all", "own") if len(known) > 1 else ("all",):
        for count in sorted({1, 2, len(uuids)} & {*range(1, len(uuids) + 1)}):
            for makers in map(int, arguments.makers.split(",")):
                row = measured(arguments.device, uuids[:count], makers, arguments.seconds, own=sees == "own")
                rows.append({"sees": sees, **row})
                print(json.dumps(rows[-1]), flush=True)
    models = ", ".join(sorted({device.model for device in known.values()}))
    environment = describe_environment(versions(), device=arguments.device, device_name=models)
    record = {
        "asked": {"device": arguments.device, "makers": arguments.makers, "seconds": arguments.seconds},
        "utc": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "environment": msgspec.to_builtins(environment),
        "visible": len(uuids),
        "rows": rows,
    }
    arguments.out.write_text(json.dumps(record, indent=2) + "\n")
    return int(any(row["makers that failed"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
