"""K against the profiler's kernel times, and E against a plain loop, on the inputs of real models.

    python -m benchmarks.clock.kernel_times --ops 50 -o kernel-times.json

Every op that launches anything runs eagerly on one input of the shipped dataset. K comes from two events
around a CUDA graph, less what a graph costs without its nodes; the profiler's time is what CUPTI reports for
the nodes of that graph, kernels, copies and fills added up, in blocks like those of K. CUPTI counts a part of
what an empty node costs, too: what it says of empty nodes is taken off its time as theirs is taken off K. Its
span, from the beginning of a block's first node to the end of its last one, has the gaps between nodes, as K has.
E comes from the judge's clock across the process boundary; a plain loop's time is what the other process itself
sees of the same calls, by ``time.perf_counter``.
Ops whose K cannot be measured, because they wait for the device, are left out.
"""

from __future__ import annotations

import argparse
import datetime as dt
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from opsmith.aten.schemas import overload
from opsmith.calls.live import rebuild
from opsmith.core.case import CallRecord
from opsmith.core.environment import Environment
from opsmith.core.run import Selection, write_atomically
from opsmith.core.timing import GraphCosts
from opsmith.evaluation.timing.blocks import TimedCall
from opsmith.evaluation.timing.cuda_graphs import EMPTY_NODES, Gate, empty_nodes, graph_costs
from opsmith.evaluation.timing.inputs import TimedInputs
from opsmith.runner.clock.stopwatch import clocked, empty_trip_us
from opsmith.runner.clock.timed_processes import RefereeSide
from opsmith.runner.machine.environment import describe_environment
from opsmith.runner.processes.referee_link import RefereeLink
from opsmith.runner.processes.starting import start_processes
from opsmith.runner.protocol.limits import Limits
from opsmith.runner.protocol.timing_messages import PrepareTiming, Renewal, RenewInputs, TimeBlock
from opsmith.suites import SuiteCall
from opsmith.suites.traces import Traces

BLOCKS = 15
#: The profiler sees blocks for so long, of which the last ones count.
PROFILED_S = 0.04
PROFILED_BLOCKS = 5
#: The kernel that holds a block back until all of it is queued.
GATE = "spin_kernel"
#: Calls of a block, and bytes of all their inputs.
MOST_CALLS, MOST_BYTES = 128, 2 << 30
#: A kernel that takes at least this long has to agree within a share, a shorter one within a time.
LONG_US = 15.0
LONG_SHARE, SHORT_US, LOOP_SHARE = 0.03, 0.5, 0.05


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One op: all times in microseconds a call."""

    op: str
    inputs: str
    k_raw: float
    nodes: float
    k: float
    k_profiled: float
    profiler_raw: float
    profiler: float
    profiler_span: float
    e: float
    loop: float

    @property
    def k_agrees(self) -> bool:
        """Raw within 3 % from 15 us on; below that within 0.5 us, empty nodes taken off both.

        Some kernels take longer while the profiler looks: K of the very blocks that it saw counts as well.
        """
        if self.profiler_raw >= LONG_US:
            nearest = min(abs(k - self.profiler_raw) for k in (self.k_raw, self.k_profiled))
            return nearest <= LONG_SHARE * self.profiler_raw
        return abs(self.k - self.profiler) <= SHORT_US

    @property
    def span_agrees(self) -> bool:
        """K of the very blocks that the profiler saw, within 3 % or 0.5 us of its span."""
        return abs(self.k_profiled - self.profiler_span) <= max(LONG_SHARE * self.profiler_span, SHORT_US)

    @property
    def e_agrees(self) -> bool:
        """Within 5 %."""
        return abs(self.e - self.loop) <= LOOP_SHARE * self.loop


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is committed."""

    command: tuple[str, ...]
    environment: Environment
    made_utc: str
    node_us: float
    graph_us: float
    profiled_node_us: float
    k_agree: int
    span_agree: int
    e_agree: int
    rows: tuple[Row, ...]


def main() -> None:
    """Measure, print a table, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=int, default=50)
    parser.add_argument("-o", "--out", type=Path, required=True)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    device = torch.device("cuda")
    with tempfile.TemporaryDirectory() as folder, start_processes("cuda") as processes:
        processes.wait_ready()
        link = RefereeLink(processes, processes.scratch, device="cuda", builds=Path(folder), threads=1, limits=Limits())
        side = RefereeSide(link)
        costs = graph_costs(device)
        nodes, gate = empty_nodes(device, EMPTY_NODES), Gate()
        profiled_node_us = _profiled_us(lambda: gate.time_us(nodes.replay))[1] / EMPTY_NODES
        rows: list[Row] = []
        for op, text, record in _calls(2 * options.ops):
            row = _row(op, text, record, device, costs, profiled_node_us, lambda call: _e_us(side, call))
            if row is not None and len(rows) < options.ops:
                rows.append(row)
                print(_line(row))
        link.close()
        environment = describe_environment(
            processes.facts, device="cuda", device_name=torch.cuda.get_device_name(device)
        )
    found = Record(
        command=("python", "-m", "benchmarks.clock.kernel_times", *sys.argv[1:]),
        environment=environment,
        made_utc=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        node_us=costs.node_us,
        graph_us=costs.graph_us,
        profiled_node_us=profiled_node_us,
        k_agree=sum(row.k_agrees for row in rows),
        span_agree=sum(row.span_agrees for row in rows),
        e_agree=sum(row.e_agrees for row in rows),
        rows=tuple(rows),
    )
    write_atomically(options.out, msgspec.json.format(msgspec.json.encode(found), indent=1))
    print(
        f"a graph: {costs.graph_us:.3f} us, an empty node: {costs.node_us:.3f} us, "
        f"by the profiler {profiled_node_us:.3f} us"
    )
    print(f"K agrees on {found.k_agree} of {len(rows)}, with the span on {found.span_agree}, E on {found.e_agree}")


def _calls(count: int) -> Iterator[tuple[str, str, CallRecord]]:
    """One input of each of so many ops, over all magnitudes of time."""
    suite = Traces()
    suite.select(Selection(sample=6 * count))
    ops: list[tuple[str, list[tuple[str, CallRecord]]]] = []
    for entry in suite.entries("recorded", "cuda"):
        found = suite.calls(entry, "recorded", "cuda", 1, lambda *_: True)
        usable = [
            (str(call.address), call.record)
            for call in found
            if isinstance(call, SuiteCall) and call.record is not None
        ]
        if usable and _is_plain(entry):
            ops.append((entry, usable))
    step = len(ops) / min(count, len(ops))
    for number in range(min(count, len(ops))):
        entry, usable = ops[int(number * step)]
        yield entry, *usable[number % len(usable)]


def _is_plain(op: str) -> bool:
    """Whether every call does the same work: no random numbers, no sizes that depend on values."""
    tags = {str(tag).rpartition(".")[2] for tag in overload(op).tags}
    return not tags & {"nondeterministic_seeded", "dynamic_output_shape", "data_dependent_output"}


def _row(
    op: str,
    text: str,
    record: CallRecord,
    device: torch.device,
    costs: GraphCosts,
    profiled_node_us: float,
    e_us: Callable[[bytes], tuple[float, float]],
) -> Row | None:
    function = overload(op)
    calls = _sets(function, record, device)
    timed = TimedCall(function, TimedInputs(record, device, calls), device)
    blocks = [timed.device_block(calls, round_number=number) for number in range(BLOCKS)]
    times = [time_us for time_us, nodes in blocks if time_us is not None and nodes is not None]
    nodes = blocks[-1][1]
    if not times or not nodes:
        return None
    graph_us = costs.graph_us / calls
    k_raw = statistics.median(times) - graph_us
    seen_us, profiled_us, span_us = _profiled_us(lambda: timed.device_block(calls, round_number=1)[0])
    profiler_raw = profiled_us / calls
    e, loop = e_us(msgspec.msgpack.encode(record))
    return Row(
        op=op,
        inputs=text,
        k_raw=k_raw,
        nodes=nodes,
        k=k_raw - costs.node_us * nodes,
        k_profiled=seen_us - graph_us,
        profiler_raw=profiler_raw,
        profiler=profiler_raw - profiled_node_us * nodes,
        profiler_span=span_us / calls,
        e=e,
        loop=loop,
    )


@torch.no_grad()
def _sets(function: Callable[..., Any], record: CallRecord, device: torch.device) -> int:
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    live = rebuild(record, device)
    function(*live.args, **live.kwargs)
    return max(1, min(MOST_CALLS, MOST_BYTES // max(torch.cuda.max_memory_allocated() - before, 1)))


def _profiled_us(block: Callable[[], float | None]) -> tuple[float, float, float]:
    """What blocks say of themselves while they are profiled, and how long the device did what they do after the gate.

    The latter twice: the time of all nodes, and from the beginning of the first to the end of the last one.

    All are the median of the last ones: a device that has idled, as it does while the profiler gets ready, is slow.
    """
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        end = time.perf_counter() + PROFILED_S
        said = []
        while time.perf_counter() < end:
            said.append(block() or 0.0)
        torch.cuda.synchronize()
    events = sorted(
        (event for event in profiler.events() if event.device_type == DeviceType.CUDA),
        key=lambda event: event.time_range.start,
    )
    gates = [number for number, event in enumerate(events) if GATE in event.name]
    # What follows on a block are the next one's inputs: the last block is the only one that ends the list.
    length = len(events) - gates[-1]
    blocks = [events[gate + 1 : gate + length] for gate in gates[-PROFILED_BLOCKS:]]
    seen = [float(sum(event.device_time_total for event in nodes)) for nodes in blocks]
    spans = [float(nodes[-1].time_range.end - nodes[0].time_range.start) for nodes in blocks]
    return statistics.median(said[-PROFILED_BLOCKS:]), statistics.median(seen), statistics.median(spans)


def _e_us(side: RefereeSide, call: bytes) -> tuple[float, float]:
    """E by this process's clock, and by the other one's own."""
    prepared = side.ask(PrepareTiming(call, MOST_CALLS))
    trip_us = empty_trip_us(side)
    outside, inside = [], []
    for number in range(1, 2 * BLOCKS):
        side.ask(RenewInputs((Renewal(number, prepared.slots),)))
        reply, wall_us, *_ = clocked(side, TimeBlock(prepared.slots, "E"))
        outside.append((wall_us - trip_us) / prepared.slots)
        inside.append(reply.own_us)
    return statistics.median(outside), statistics.median(inside)


def _line(row: Row) -> str:
    return (
        f"{row.op[:34]:34s} K raw {row.k_raw:9.2f} net {row.k:9.2f} "
        f"profiled {row.k_profiled:9.2f} profiler raw {row.profiler_raw:9.2f} net {row.profiler:9.2f} "
        f"span {row.profiler_span:9.2f} {'' if row.span_agrees else 'off':3s} "
        f"{'' if row.k_agrees else 'OFF':3s} E {row.e:9.2f} loop {row.loop:9.2f} {'' if row.e_agrees else 'OFF'}"
    )


if __name__ == "__main__":
    main()
