"""How E's blocks of equal processes vary on this host, and how a turn's blocks are best taken together.

    python -m benchmarks.clock.host_blocks --device cuda --processes 4 --turns 80 -o host-blocks.json

Eager runs in two processes, made anew so many times, on calls from mere overhead to what leaves every cache. In each of
its turns a side runs a quarter of a block of E of each call four times, one after another, where the judge runs one
block. The record holds all of them; the table says, for several ways to make one number of a turn's quarters, how many
pairs of turns it takes until ``--timing quick`` has enough, and what it says then.
"""

from __future__ import annotations

import argparse
import datetime as dt
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from opsmith.core.environment import Environment
from opsmith.core.run import write_atomically
from opsmith.core.seeds import derive_seed
from opsmith.core.timing import Label
from opsmith.evaluation.timing.statistics import LOOKS_APART, estimate, label_of, precisions_of
from opsmith.runner.clock.clock_setup import CONTROL, ControlCall
from opsmith.runner.clock.stopwatch import ClockSettings, PairedClock, clocked
from opsmith.runner.clock.timed_processes import RefereeSide
from opsmith.runner.machine.device_lock import DeviceLock, default_folder
from opsmith.runner.machine.environment import describe_environment
from opsmith.runner.processes.children import Processes
from opsmith.runner.processes.referee_link import RefereeLink
from opsmith.runner.processes.starting import start_processes
from opsmith.runner.protocol.limits import Limits
from opsmith.runner.protocol.referee_messages import DeviceOpened, OpenDevice
from opsmith.runner.protocol.timing_messages import Renewal, RenewInputs, TimeBlock, Warming, WarmUp

#: Calls that a host is busy with for longer than the device.
CALLS = (
    *CONTROL,
    ControlCall("div.Tensor", ((64, 64), (64, 64))),
    ControlCall("clone.default", ((256,),)),
    ControlCall("cumsum.default", ((64, 128),), (1,)),
    ControlCall("bmm.default", ((8, 32, 32), (8, 32, 32))),
    ControlCall("sigmoid.default", ((1 << 18,),)),
    ControlCall("_log_softmax.default", ((64, 256),), (1, False)),
)
PARTS = 4
#: Pairs of turns after which a pair is given up, as its time ends.
MOST_PAIRS = 55
#: What one number is made of the four.
WAYS: dict[str, Callable[[Sequence[float]], float]] = {
    "mean, as one block": statistics.fmean,
    "median": statistics.median,
    "least of the halves": lambda us: min(us[0] + us[1], us[2] + us[3]) / 2,
    "least of the quarters": min,
}


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One call in one pair of processes.

    Attributes:
        call: as the clock's control names it.
        reference_us: microseconds a call of each quarter, turn by turn.
        candidate_us: the same of the other process.
    """

    call: str
    reference_us: list[list[float]]
    candidate_us: list[list[float]]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is written."""

    command: tuple[str, ...]
    environment: Environment
    made_utc: str
    series: list[Series]


def main() -> None:
    """Measure, write the record, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--processes", type=int, default=4, help="pairs of processes")
    parser.add_argument("--turns", type=int, default=80, help="of each side")
    parser.add_argument("-o", "--out", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, start_processes(options.device) as processes:
        processes.wait_ready()
        first = _referee(processes, options.device, Path(folder))
        opened = first.ask(OpenDevice(), DeviceOpened)
        environment = describe_environment(processes.facts, device=options.device, device_name=opened.name)
        first.close()
        cores = tuple(sorted(os.sched_getaffinity(0)))
        series = []
        for number in range(options.processes):
            sides = [_referee(processes, options.device, Path(folder)) for _ in range(2)]
            with DeviceLock(default_folder(), opened.identity).exclusive():
                series += list(_measured(sides, options.device, cores, options.turns, number))
            for side in sides:
                side.close()
    record = Record(
        command=("python", "-m", "benchmarks.clock.host_blocks", *sys.argv[1:]),
        environment=environment,
        made_utc=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        series=series,
    )
    write_atomically(options.out, msgspec.json.encode(record))
    _print(series, "K" if options.device != "cpu" else "")


def _referee(processes: Processes, device: str, folder: Path) -> RefereeLink:
    return RefereeLink(
        processes, processes.scratch, device=device, builds=folder / "builds", threads=1, limits=Limits()
    )


def _measured(
    links: Sequence[RefereeLink], device: str, cores: tuple[int, ...], turns: int, number: int
) -> Iterator[Series]:
    quantities = "E" if device == "cpu" else "KE"
    sides = RefereeSide(links[0]), RefereeSide(links[1])
    clock = PairedClock(
        *sides,
        [call.serialized() for call in CALLS],
        settings=ClockSettings(precisions=precisions_of("quick", quantities), quantities=quantities, cores=cores),
        seed=derive_seed(number, "host blocks"),
        look=lambda _places: None,
    )
    clock.prepare()
    trip_us = min(clocked(side, TimeBlock(0, "E")).wall_us for side in sides for _ in range(9))
    found: list[tuple[list[list[float]], list[list[float]]]] = [([], []) for _ in clock.pairs]
    for turn in range(turns):
        for place in ((0, 1), (1, 0))[turn % 2]:
            side = sides[place]
            calls = [math.ceil(pair.calls["E"] / PARTS) for pair in clock.pairs]
            warm_ups = [pair.warm_up_calls(PARTS * count) for pair, count in zip(clock.pairs, calls, strict=True)]
            sets = [count + warm_up for count, warm_up in zip(calls, warm_ups, strict=True)]
            side.ask(RenewInputs(tuple([Renewal(turn + 1, count, pair) for pair, count in enumerate(sets)])))
            side.ask(WarmUp(tuple([Warming(*each) for each in zip(range(len(sets)), sets, warm_ups, strict=True)])))
            for n, count in enumerate(calls):
                blocks = [clocked(side, TimeBlock(count, "E", pair=n, more=True)).wall_us for _ in range(PARTS)]
                found[n][place].append([round(max(us - trip_us, 0.1) / count, 4) for us in blocks])
    clock.let_go()
    for call, (reference, candidate) in zip(CALLS, found, strict=True):
        yield Series(call=str(call), reference_us=reference, candidate_us=candidate)


def _print(series: Sequence[Series], with_k: str) -> None:
    precision = precisions_of("quick", f"{with_k}E")["E"]
    for name, way in WAYS.items():
        pairs, labels = [], []
        for one in series:
            reference, candidate = ([way(turn) for turn in turns] for turns in (one.reference_us, one.candidate_us))
            for first in range(0, len(reference) - MOST_PAIRS + 1, 5):
                count = precision.least_pairs
                while True:
                    found = estimate(reference[first : first + count], candidate[first : first + count])
                    if precision.is_enough(found, 0.0) or count >= MOST_PAIRS:
                        break
                    count = min(math.ceil(count * LOOKS_APART), MOST_PAIRS)
                pairs.append(count)
                labels.append(label_of(found, precision, 0.0))
        shares = ", ".join(f"{label} {100 * labels.count(label) / len(labels):.1f} %" for label in Label)
        print(f"{name:22} {statistics.fmean(pairs):5.1f} pairs; {shares}")


if __name__ == "__main__":
    main()
