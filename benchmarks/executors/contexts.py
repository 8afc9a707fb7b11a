"""How many device contexts a machine makes and ends in a second, by devices, makers and what a maker sees.

::

    python -m benchmarks.executors.contexts -o contexts.json
    python -m benchmarks.executors.contexts --device cpu --seconds 1 --makers 1,2 -o contexts-cpu.json

Each kernel is judged in a process of its own, whose context on the device is made before it and ends with it. A maker
forks a process that makes one as a worker does, kills it, and goes on to the next. Several makers share a device,
which another process uses all the time, as a judge's referees do. ``own`` makers cannot open the files of other
devices than theirs. A context has one hardware queue, as a worker's; ``--queues 1,8`` compares that with the driver's
default.
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
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch

from opsmith.devices import kind_of
from opsmith.runner.child.contexts import make_waiting_context
from opsmith.runner.child.versions import versions
from opsmith.runner.machine.environment import describe_environment
from opsmith.runner.machine.gpus import files_of_others, hide, known_devices
from opsmith.runner.processes.children import QUEUES, QUEUES_VARIABLE


class Life(NamedTuple):
    """Milliseconds of a process: until the driver is ready, from there to its context, and from its kill to its end."""

    driver_ms: float
    context_ms: float
    end_ms: float


class Maker(NamedTuple):
    """What makes contexts: on which device, with how many hardware queues, and kept from which files.

    ``uuid`` is None on a CPU, where no context is made.
    """

    device: str
    queues: str
    uuid: str | None
    hidden: Collection[str] = ()

    def make_context(self) -> tuple[float, float]:
        """Milliseconds until the driver is ready, and from there until the context is."""
        os.environ[QUEUES_VARIABLE] = self.queues
        if self.uuid is not None:
            os.environ |= kind_of("cuda").showing(self.uuid)
        if self.hidden:
            hide(self.hidden)
        start = time.perf_counter()
        if self.device == "cuda":
            ctypes.CDLL("libcuda.so.1").cuInit(0)
        ready = time.perf_counter()
        make_waiting_context(torch.device(self.device))
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


def live(write_end: int, maker: Maker) -> None:
    """Make a context, tell how long it took, and wait to be killed."""
    os.write(write_end, msgspec.msgpack.encode(maker.make_context()))
    signal.pause()


def one_life(maker: Maker) -> Life:
    """Of a process that is killed once its context is there.

    Raises:
        RuntimeError: it could not make one.
    """
    pid, read_end = forked(partial(live, maker=maker))
    told = os.read(read_end, 1 << 12)
    os.close(read_end)
    start = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    if not told:
        raise RuntimeError("a context could not be made")
    return Life(*msgspec.msgpack.decode(told, type=tuple[float, float]), (time.perf_counter() - start) * 1e3)


def lives_of(maker: Maker, until: float) -> Iterator[Life]:
    """One after another, until a time of the monotonic clock."""
    while time.monotonic() < until:
        yield one_life(maker)


def measured(makers: Sequence[Maker], number: int, seconds: float) -> dict[str, Any]:
    """The rate with so many of each of these makers, and what a life takes in the median."""
    holders = [forked(partial(live, maker=maker._replace(hidden=()))) for maker in makers]
    for _, read_end in holders:
        os.read(read_end, 1 << 12)
    began = time.monotonic()

    def make(write_end: int, maker: Maker) -> None:
        found = tuple(lives_of(maker, began + seconds))
        with open(write_end, "wb") as stream:
            stream.write(msgspec.msgpack.encode(found))

    running = [forked(partial(make, maker=maker)) for maker in makers for _ in range(number)]
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
        "devices": len(makers),
        "makers a device": number,
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
    parser.add_argument("--queues", default=QUEUES, help="hardware queues of a context, comma-separated")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each combination")
    parser.add_argument("-o", "--out", type=Path, required=True)
    arguments = parser.parse_args()
    uuids: list[str | None] = [*kind_of("cuda").visible()] if arguments.device == "cuda" else [None]
    known = known_devices() if arguments.device == "cuda" else {}
    rows = []
    for queues, sees in product(arguments.queues.split(","), ("all", "own") if len(known) > 1 else ("all",)):
        for count in sorted({1, 2, len(uuids)} & {*range(1, len(uuids) + 1)}):
            hidden = [files_of_others(uuid) if sees == "own" else () for uuid in uuids[:count]]
            makers = [Maker(arguments.device, queues, *of_one) for of_one in zip(uuids, hidden, strict=False)]
            for number in map(int, arguments.makers.split(",")):
                row = measured(makers, number, arguments.seconds)
                rows.append({"queues": int(queues), "sees": sees, **row})
                print(json.dumps(rows[-1]), flush=True)
    models = ", ".join(sorted({device.model for device in known.values()}))
    environment = describe_environment(versions(), device=arguments.device, device_name=models)
    record = {
        "asked": {name: getattr(arguments, name) for name in ("device", "makers", "queues", "seconds")},
        "utc": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "environment": msgspec.to_builtins(environment),
        "visible": len(uuids),
        "rows": rows,
    }
    arguments.out.write_text(json.dumps(record, indent=2) + "\n")
    return int(any(row["makers that failed"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
