"""Processors: which of them share hardware, how they are divided, and how many ops they judge at a time."""

from __future__ import annotations

import functools
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from opsmith.core.run import Options
from opsmith.suites.traits import traits_of

#: Where Linux says it.
TOPOLOGY = "/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"
#: Another one after each start of the machine, and the same in all of its containers.
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

#: Passes through an empty loop, some 50 us, and how often they are timed on a processor to see how fast it is.
PASSES, LOOPS = 3_000, 5

#: On an H200 with 16 cores the suite was enumerated in 18.7 s by 10 referees and in 15.7 s by 14.
MAX_DEVICE_JOBS = 14


def siblings_of(core: int) -> set[int]:
    """The logical processors that share a core's hardware, itself included, as far as the system says."""
    try:
        listed = Path(TOPOLOGY.format(core=core)).read_text()
    except OSError:
        return {core}
    ranges = [part.partition("-") for part in listed.strip().split(",")]
    return {core}.union(*[range(int(first), int(last or first) + 1) for first, _, last in ranges])


def share_of_cores(number: int, of: int) -> set[int]:
    """The processors of one of several that divide those of this process; no two share a core's hardware.

    All of them where there are fewer cores than sharers.
    """
    allowed = os.sched_getaffinity(0)
    cores = sorted({tuple(sorted(siblings_of(core) & allowed)) for core in allowed})
    if len(cores) < of:
        return allowed
    mine = cores[number * len(cores) // of : (number + 1) * len(cores) // of]
    return {processor for core in mine for processor in core}


def quickest(processors: Iterable[int]) -> int:
    """Of these the one that runs Python fastest just now; this thread tries them, and goes back to where it may run.

    On a shared machine one can be half as fast as the next, for as long as somebody else uses what they share.
    """
    allowed = os.sched_getaffinity(0)
    try:
        return min(processors, key=_loop_s)
    finally:
        os.sched_setaffinity(0, allowed)


def _loop_s(processor: int) -> float:
    os.sched_setaffinity(0, {processor})
    times = []
    for _ in range(LOOPS):
        start = time.perf_counter()
        for _ in range(PASSES):
            pass
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def jobs_on(cpus: int, options: Options) -> int:
    """One op a processor; on a device no more than judge faster there, since all share it and its memory.

    Several ranks share a processor each, and on devices they take all of them.
    """
    traits = traits_of(options.suite)
    if traits.tasks.on_ranks:
        return max(1, cpus // max(options.selection.ranks, default=2)) if options.device.startswith("cpu") else 1
    if options.device.startswith("cpu"):
        return cpus
    return min(traits.device_jobs or MAX_DEVICE_JOBS, cpus, most_asked(options))


def most_asked(options: Options) -> int:
    """At most how many tasks the options name; as good as infinitely many where they name none one by one."""
    problems = options.selection.problems
    if options.case is not None or (problems is not None and problems.endswith(".py")):
        return 1
    is_exact = options.ops and all("." in op and not set(op) & set("*?[") for op in options.ops)
    return len(options.ops) if is_exact else sys.maxsize


def default_jobs(options: Options, sharers: int = 1) -> int:
    """Ops judged at a time on a device of this machine, if ``sharers`` lanes divide its processors."""
    return jobs_on(max(1, len(os.sched_getaffinity(0)) // sharers), options)


def timing_jobs(device: str) -> int:
    """Problems built and compiled at a time, while one is timed at a time: on a CPU that is what is timed."""
    return 1 if device.startswith("cpu") else min(MAX_DEVICE_JOBS, len(os.sched_getaffinity(0)))


@functools.cache
def machine_id() -> str:
    """What tells this machine from all others that are running."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return platform.node()
