"""What the clock says of pairs whose difference is known.

    python -m benchmarks.clock.pairs --device cuda --pairs 300 --plant 0 --timing quick -o aa.json
    python -m benchmarks.clock.pairs --device cuda --pairs 300 --plant 5 --timing quick -o planted-5.json

Both sides of a pair are the same kernel in two processes that are made anew every few pairs, over sizes
from 8 elements to 1 GB. With ``--plant P`` the second side takes P percent longer: on a GPU K because
each of its blocks of threads waits, E because the host waits as well. How long a kernel has to wait for
that is tried out beforehand, for each order of magnitude, in one process.
"""

from __future__ import annotations

import argparse
import datetime as dt
import math
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from benchmarks.clock import kernels

from opsmith.backends.file import KernelFile
from opsmith.core.environment import Environment
from opsmith.core.fresh_values import Redraw, Variation
from opsmith.core.op import OpSchema, Variant
from opsmith.core.run import write_atomically
from opsmith.core.seeds import derive_seed
from opsmith.core.task import Task
from opsmith.core.timing import Clock, Label, Timing, Undecided
from opsmith.evaluation.timing.statistics import PRECISIONS, are_settled, combined_of, precisions_of
from opsmith.runner.clock.clock_setup import ControlCall, set_up_clock
from opsmith.runner.clock.stopwatch import ClockSettings, PairedClock, never_throttled
from opsmith.runner.clock.timed_pairs import TooShort
from opsmith.runner.clock.timed_processes import WorkerSide
from opsmith.runner.machine.device_lock import DeviceLock, default_folder
from opsmith.runner.machine.environment import describe_environment
from opsmith.runner.machine.throttling import ThrottleWatch
from opsmith.runner.processes.children import Processes
from opsmith.runner.processes.referee_link import RefereeLink
from opsmith.runner.processes.starting import start_processes
from opsmith.runner.processes.worker_link import WorkerLink
from opsmith.runner.protocol.limits import Limits
from opsmith.runner.protocol.referee_messages import DeviceOpened, OpenDevice
from opsmith.runner.protocol.timing_messages import BLOCK_US, PrepareTiming, TimeBlock

SCHEMA = OpSchema(
    name="mul.Scalar", schema="aten::mul.Scalar(Tensor self, Scalar other) -> Tensor", variant=Variant.FUNCTIONAL
)
#: Elements of the smallest and the largest argument: 32 bytes and 1 GB; on a CPU 16 MB.
SMALLEST, LARGEST, LARGEST_CPU = 8, 1 << 28, 1 << 22
#: All sets of a side's inputs and results together.
MOST_BYTES, MOST_BYTES_CPU = 8 << 30, 512 << 20
#: Pairs between two changes of both processes.
PAIRS_A_PROCESS = 15
#: Cycles a microsecond of an H200's multiprocessor under load.
CYCLES_A_US = 1980
#: How often it is tried out what is to be planted, each time with twice so many blocks.
PLANTINGS, PLANTED_BLOCKS = 4, 25


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """One timed pair: how large, what was planted in percent, and what was found.

    Attributes:
        timing: None where nothing could be said.
        undecided: why.
    """

    elements: int
    quantity: str
    planted_percent: float
    timing: Timing | None
    undecided: Undecided | None = None

    @property
    def label(self) -> Label:
        return Label.UNDECIDED if self.timing is None else self.timing.label


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is committed."""

    command: tuple[str, ...]
    environment: Environment
    clock: Clock
    made_utc: str
    timing: str
    planted_percent: float
    labels: dict[str, dict[str, int]]
    pairs: tuple[Pair, ...]


class Sides(NamedTuple):
    """Two workers with the same kernel."""

    one: WorkerLink
    other: WorkerLink

    def close(self) -> None:
        self.one.close()
        self.other.close()


def main() -> None:
    """Time the pairs, print a table, write the record."""
    options = _options()
    with tempfile.TemporaryDirectory() as folder, start_processes(options.device) as processes:
        processes.wait_ready()
        backend = kernels.write(Path(folder), options.device)
        bench = Bench(options, processes, backend, Path(folder))
        pairs = []
        for pair in bench.pairs():
            pairs.append(pair)
            if len(pairs) % 50 == 0:
                print(f"{len(pairs)} timed", file=sys.stderr)
        labels = {q: dict(Counter(str(p.label) for p in pairs if p.quantity == q)) for q in bench.quantities}
        record = Record(
            command=("python", "-m", "benchmarks.clock.pairs", *sys.argv[1:]),
            environment=bench.environment,
            clock=bench.clock,
            made_utc=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            timing=options.timing,
            planted_percent=options.plant,
            labels=labels,
            pairs=tuple(pairs),
        )
        bench.close()
    write_atomically(options.out, msgspec.json.format(msgspec.json.encode(record), indent=1))
    _print(record)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--plant", type=float, default=0.0, help="percent by which the second side is slower")
    parser.add_argument("--timing", choices=sorted(PRECISIONS), default="quick")
    parser.add_argument("--quantities", default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--budget-s", type=float, default=math.inf, help="no further pair after so many seconds")
    parser.add_argument("-o", "--out", type=Path, required=True)
    return parser.parse_args()


class Bench:
    """The processes, the clock's settings, and what a call takes without a delay."""

    def __init__(self, options: argparse.Namespace, processes: Processes, backend: KernelFile, folder: Path) -> None:
        self._options = options
        self._processes = processes
        self._on_cpu = options.device.startswith("cpu")
        all_quantities = "E" if self._on_cpu else "KE"
        self.quantities = options.quantities or all_quantities
        kernel = backend.kernel_for(Task(name=SCHEMA.name, op=SCHEMA, suite="clock"))
        assert kernel is not None
        self._kernel = kernel
        self._builds = folder / "builds"
        self._referee, self._control = self._make_referee(), self._make_referee()
        opened = self._referee.ask(OpenDevice(), DeviceOpened)
        # Before the clock keeps this process to a part of the cores.
        self.environment = describe_environment(processes.facts, device=options.device, device_name=opened.name)
        watch = None if self._on_cpu else ThrottleWatch.open(opened.identity)
        settings = ClockSettings(
            precisions=precisions_of(options.timing, all_quantities),
            quantities=all_quantities,
            cores=tuple(sorted(os.sched_getaffinity(0))),
            throttled=never_throttled if watch is None else watch.throttled,
        )
        self._lost: dict[int, float] = {}
        self._lock = DeviceLock(default_folder(), opened.identity)
        with self._lock.exclusive():
            self.clock = set_up_clock(
                self._referee,
                self._control,
                settings,
                folder=str(folder / "ceilings"),
                seed=options.seed,
                throttling=None if watch is None else "NVML",
            )
        self._settings = msgspec.structs.replace(settings, noise=self.clock.noise, graphs=self.clock.graphs)

    def _make_referee(self) -> RefereeLink:
        return RefereeLink(
            self._processes,
            self._processes.scratch,
            device=self._options.device,
            builds=self._builds,
            threads=1,
            limits=Limits(),
        )

    def close(self) -> None:
        self._referee.close()
        self._control.close()

    def pairs(self) -> Iterator[Pair]:
        """The timed pairs."""
        largest = LARGEST_CPU if self._on_cpu else LARGEST
        steps = self._options.pairs - 1
        sides: Sides | None = None
        deadline = time.monotonic() + self._options.budget_s
        for number in range(self._options.pairs):
            if time.monotonic() > deadline:
                break
            if number % PAIRS_A_PROCESS == 0:
                if sides is not None:
                    sides.close()
                sides = self._sides()
            assert sides is not None
            # Sizes far from each other follow each other, so that every process sees all.
            place = number * 37 % self._options.pairs if self._options.pairs % 37 else number
            elements = round(SMALLEST * (largest / SMALLEST) ** (place / max(steps, 1)))
            for quantity in self.quantities:
                yield self._pair(sides, elements, quantity, number)
        if sides is not None:
            sides.close()

    def _sides(self) -> Sides:
        def worker() -> WorkerLink:
            link = WorkerLink(
                self._processes,
                device=self._options.device,
                builds=self._builds,
                threads=1,
                spares=0,
                limits=Limits(),
            )
            problem = link.load(self._kernel, Path(self._kernel.root or "."), SCHEMA)
            assert problem is None, problem
            return link

        return Sides(worker(), worker())

    def _pair(self, sides: Sides, elements: int, quantity: str, number: int) -> Pair:
        planted = self._options.plant
        scalar = self._delay(sides, elements, quantity) if planted else 0
        runs = [self._time(sides, elements, scalar, quantity, number)]
        while self._on_cpu and not are_settled(runs):
            fresh = self._sides()
            runs.append(self._time(fresh, elements, scalar, quantity, number))
            fresh.close()
        found = combined_of(runs, self._settings.precisions[quantity])
        timing, undecided = (found, None) if isinstance(found, Timing) else (None, found)
        return Pair(elements=elements, quantity=quantity, planted_percent=planted, timing=timing, undecided=undecided)

    def _delay(self, sides: Sides, elements: int, quantity: str) -> int:
        """The scalar that makes a call of this size so much longer as is planted."""
        base = self._time(sides, elements, 0, quantity, elements, full=False)
        if isinstance(base, Undecided):
            return 0  # Too short to be measured, with or without a delay that is a share of it.
        base_us = base.reference_us
        longer_us = base_us * self._options.plant / 100
        if quantity == "E":
            return kernels.delay(host_ns=max(1, round(longer_us * 1e3)))
        lost_us = self._lost_us(sides.other, elements, base_us, longer_us)
        return kernels.delay(cycles=max(0, round((longer_us + lost_us) * CYCLES_A_US)))

    def _lost_us(self, link: WorkerLink, elements: int, base_us: float, longer_us: float) -> float:
        """What a kernel of about this size has to wait in addition, so that it takes so much longer.

        Some of its wait it would have waited anyway, for its turn to be launched and for memory.
        """
        size = round(math.log2(elements))
        if size not in self._lost:
            lost_us = 0.0
            calls = max(1, min(round(BLOCK_US["K"] / base_us), self._slots(elements)))
            for number in range(1, PLANTINGS + 1):
                delay = kernels.delay(cycles=max(0, round((longer_us + lost_us) * CYCLES_A_US)))
                times: dict[int, list[float]] = {0: [], delay: []}
                for scalar in (0, delay, delay, 0):
                    times[scalar] += self._blocks_us(link, elements, scalar, calls)
                missing_us = longer_us - (statistics.median(times[delay]) - statistics.median(times[0]))
                lost_us += missing_us / number  # Robbins and Monro, 1951: the noise of each try counts less and less.
            self._lost[size] = lost_us
        return self._lost[size]

    def _blocks_us(self, link: WorkerLink, elements: int, scalar: int, calls: int) -> list[float]:
        """K of the kernel in one process alone, in microseconds a call, by block."""
        call = ControlCall(SCHEMA.name, ((elements,),), (scalar,)).serialized()
        side = BenchSide(link, call, self._slots(elements))
        side.ask(PrepareTiming(call, calls, (Variation(Redraw.BLENDED),)))
        return [side.ask(TimeBlock(calls, "K", round=number)).own_us for number in range(PLANTED_BLOCKS)]

    def _slots(self, elements: int) -> int:
        """Sets of a call's input and result that there is room for."""
        return max(1, (MOST_BYTES_CPU if self._on_cpu else MOST_BYTES) // (2 * 4 * elements))

    def _time(
        self, sides: Sides, elements: int, scalar: int, quantity: str, number: int, *, full: bool = True
    ) -> Timing | Undecided:
        """Time the kernel on so many elements without a delay against the one with the delay of ``scalar``."""
        one, other = (ControlCall(SCHEMA.name, ((elements,),), (delay,)).serialized() for delay in (0, scalar))
        settings = self._settings
        if not full:
            settings = msgspec.structs.replace(settings, precisions=precisions_of("quick", settings.quantities))
        slots = self._slots(elements)
        with self._lock.exclusive():
            clock = PairedClock(
                BenchSide(sides.one, one, slots),
                BenchSide(sides.other, other, slots, trusted=False),  # As a kernel's: stopped while the other one runs.
                [one],
                settings=settings,
                seed=derive_seed(self._options.seed, "pair", number, quantity),
                look=lambda _places: None,
            )
            clock.prepare()
            [found] = clock.time(quantity)
            if isinstance(found, TooShort):
                return found.undecided
            assert isinstance(found, Timing), found
            return found


class BenchSide(WorkerSide):
    """A side that is given its own call, and as many sets of its input as there is room for."""

    def __init__(self, link: WorkerLink, own_call: bytes, slots: int, *, trusted: bool = True) -> None:
        super().__init__(link, trusted=trusted)
        self._own_call = own_call
        self._slots = slots

    def ask(self, request: msgspec.Struct) -> Any:
        if isinstance(request, PrepareTiming):
            request = msgspec.structs.replace(
                request,
                call=self._own_call,
                slots=min(request.slots, self._slots),
                variations=(Variation(Redraw.BLENDED),),  # As the referee would say of these numbers.
            )
        return super().ask(request)


def _print(record: Record) -> None:
    for quantity, counts in record.labels.items():
        pairs = [pair for pair in record.pairs if pair.quantity == quantity]
        timings = [pair.timing for pair in pairs if pair.timing is not None]
        effects = sorted(100 * math.expm1(-math.log(timing.speedup)) for timing in timings)
        shares = ", ".join(f"{label} {100 * counts.get(label, 0) / len(pairs):.1f} %" for label in Label)
        middle, low, high = (effects[int(q * (len(effects) - 1))] for q in (0.5, 0.01, 0.99))
        print(
            f"{quantity}: {len(pairs)} pairs, planted {record.planted_percent:g} %: {shares}; "
            f"found {middle:.2f} % (1st to 99th percentile {low:.2f} to {high:.2f} %); "
            f"control noise {100 * record.clock.noise.get(quantity, 0.0):.2f} %"
        )


if __name__ == "__main__":
    main()
