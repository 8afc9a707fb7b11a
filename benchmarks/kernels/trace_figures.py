"""What a timed run of suite traces says of a backend, in the figures that a user of it asks for.

    python -m benchmarks.kernels.trace_figures -o FILE RUN [RUN...]

Several runs count as one: parts of a set, or the public set and opsmith's own. An op that several of them have asked
counts as the last of these has it. Ops whose work eager leaves to cuBLAS, cuDNN or flash attention are the library
class and counted apart. An op's figure is the median over its timed inputs, the geometric mean goes over ops. ``as
installed`` counts a declined input as 1.0, since eager answers it then. Rows above 50 MB are those that are no matrix
product and have that much to move; their percent of floor is against the device's own copy. Rows that wait for their
launch are those of which eager's kernels take less than half of the time of its call.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from benchmarks.models.records import write

from opsmith.core.op import matches
from opsmith.core.run import RunDirectory
from opsmith.core.timing import Timing
from opsmith.core.verdict import Part, Status, Verdict

#: Ops whose work is that of cuBLAS, cuDNN or flash attention in eager mode.
LIBRARY_CLASS = (
    *("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "_addmm_activation", "_grouped_mm"),
    *("convolution*", "_scaled_dot_product_*", "_flash_attention_*", "_efficient_attention_*", "_cudnn_rnn*"),
)
LARGE_BYTES = 50e6


class Class(msgspec.Struct, frozen=True, kw_only=True):
    """Speed of some ops in one quantity.

    Attributes:
        ops: how many were timed.
        inputs: timed inputs of theirs.
        geomean: over the ops' medians.
        geomean_as_installed: likewise, with declined inputs as 1.0.
        slowest: the ops with a median below 0.95, slowest first -> median.
    """

    ops: int
    inputs: int
    geomean: float | None
    geomean_as_installed: float | None
    slowest: dict[str, float]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is committed.

    Attributes:
        runs: names of the folders.
        device: what they ran on.
        statuses: of the inputs.
        ops: asked, answered, and correct in every input that was asked.
        not_passed: op -> statuses of what did not pass.
        declined: op -> its declined inputs.
        unanswered: ops without a kernel.
        served_share: of the occurrences in models that the asked inputs stand for, the share whose input passed.
        k: kernel time, by class.
        e: the whole call, by class.
        e_waiting: the same of the rows that wait for their launch.
        large_rows: inputs above 50 MB.
        large_percent_of_floor: median over them.
        large_slowest: ops with rows above 50 MB, lowest median of percent of floor first.
    """

    runs: tuple[str, ...]
    device: str
    statuses: dict[str, int]
    ops: dict[str, int]
    not_passed: dict[str, dict[str, int]]
    declined: dict[str, tuple[str, ...]]
    unanswered: tuple[str, ...]
    served_share: float
    k: dict[str, Class]
    e: dict[str, Class]
    e_waiting: dict[str, Class]
    large_rows: int
    large_percent_of_floor: float | None
    large_slowest: dict[str, float]


def figures(runs: Sequence[RunDirectory]) -> Record:
    """Of all runs together."""
    last = {op.op: (run, op.kernel_hash is not None) for run in runs for op in run.plan().ops}
    planned = {op: is_answered for op, (_, is_answered) in last.items()}
    verdicts = [
        verdict
        for run in runs
        for verdict in run.verdicts()
        if verdict.part is Part.CASE and last[verdict.op][0] is run
    ]
    traffic = {
        (timed.case, timed.kernel): timed.work.traffic_bytes
        for run in runs
        for timed in run.timed_cases()
        if timed.work is not None and not timed.work.matmul_flops
    }
    failed: dict[str, Counter[str]] = defaultdict(Counter)
    declined: dict[str, list[str]] = defaultdict(list)
    for verdict in verdicts:
        if verdict.status is Status.UNSUPPORTED:
            declined[verdict.op].append(f"{verdict.inputs}: {verdict.detail}")
        if verdict.status is not Status.PASSED:
            failed[verdict.op][str(verdict.status)] += 1
    floors = _large_floors(verdicts, traffic)
    occurrences = sum(verdict.count for verdict in verdicts)
    return Record(
        runs=tuple(run.path.name for run in runs),
        device=runs[0].manifest().environment.device_name or runs[0].manifest().environment.cpu,
        statuses=dict(Counter(str(verdict.status) for verdict in verdicts)),
        ops={
            "asked": len(planned),
            "answered": sum(planned.values()),
            "correct": sum(answered and op not in failed for op, answered in planned.items()),
        },
        not_passed={op: dict(statuses) for op, statuses in sorted(failed.items())},
        declined={op: tuple(inputs) for op, inputs in sorted(declined.items())},
        unanswered=tuple(sorted(op for op, answered in planned.items() if not answered)),
        served_share=sum(verdict.count for verdict in verdicts if verdict.status is Status.PASSED) / occurrences,
        k=_classes(verdicts, "K"),
        e=_classes(verdicts, "E"),
        e_waiting=_classes(filter(_waits_for_launch, verdicts), "E"),
        large_rows=sum(map(len, floors.values())),
        large_percent_of_floor=statistics.median(itertools.chain(*floors.values())) if floors else None,
        large_slowest=_ascending({op: statistics.median(shares) for op, shares in floors.items()}),
    )


def _classes(verdicts: Iterable[Verdict], quantity: str) -> dict[str, Class]:
    speedups: dict[str, list[float]] = defaultdict(list)
    declined: Counter[str] = Counter()
    for verdict in verdicts:
        timing = _timing(verdict, quantity)
        if timing is not None:
            speedups[verdict.op].append(timing.speedup)
        declined[verdict.op] += verdict.status is Status.UNSUPPORTED
    library = {op for op in speedups if _is_library(op)}
    of_class = {"library class": library, "all others": set(speedups) - library}
    return {name: _class({op: speedups[op] for op in ops}, declined) for name, ops in of_class.items()}


def _class(speedups: Mapping[str, list[float]], declined: Mapping[str, int]) -> Class:
    medians = {op: statistics.median(values) for op, values in speedups.items()}
    installed = [statistics.median([*values, *[1.0] * declined[op]]) for op, values in speedups.items()]
    return Class(
        ops=len(medians),
        inputs=sum(map(len, speedups.values())),
        geomean=_geomean(medians.values()),
        geomean_as_installed=_geomean(installed),
        slowest=_ascending({op: median for op, median in medians.items() if median < 0.95}),
    )


def _large_floors(verdicts: Iterable[Verdict], traffic: Mapping[tuple[str, str], int]) -> dict[str, list[float]]:
    """Op -> percent of floor of its rows above 50 MB, without the library class."""
    floors: dict[str, list[float]] = defaultdict(list)
    for verdict in verdicts:
        timing = _timing(verdict, "K")
        large = traffic.get((verdict.case, verdict.kernel), 0) > LARGE_BYTES
        if large and timing is not None and timing.percent_of_floor is not None and not _is_library(verdict.op):
            floors[verdict.op].append(timing.percent_of_floor)
    return floors


def _waits_for_launch(verdict: Verdict) -> bool:
    kernel, call = _timing(verdict, "K"), _timing(verdict, "E")
    return kernel is not None and call is not None and kernel.reference_us < 0.5 * call.reference_us


def _is_library(op: str) -> bool:
    return any(matches(op, pattern) for pattern in LIBRARY_CLASS)


def _timing(verdict: Verdict, quantity: str) -> Timing | None:
    return next((timing for timing in verdict.timings if timing.quantity == quantity), None)


def _geomean(values: Collection[float]) -> float | None:
    return round(statistics.geometric_mean(values), 4) if values else None


def _ascending(values: Mapping[str, float]) -> dict[str, float]:
    return {op: round(value, 3) for op, value in sorted(values.items(), key=lambda item: item[1])}


def main(arguments: Sequence[str] | None = None) -> None:
    """Count, print, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("-o", "--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    record = figures([RunDirectory.open(run) for run in options.runs])
    write(options.out, record)
    print(f"ops {record.ops}, inputs {record.statuses}, served {100 * record.served_share:.2f} % of the occurrences")
    for quantity, classes in (("K", record.k), ("E", record.e), ("E where a call waits", record.e_waiting)):
        for name, of_class in classes.items():
            print(f"{quantity} {name}: {of_class.geomean}x, as installed {of_class.geomean_as_installed}x,", end=" ")
            print(f"{of_class.ops} ops, {of_class.inputs} inputs, below 0.95: {of_class.slowest or 'none'}")
    print(f"{record.large_rows} rows above 50 MB: {record.large_percent_of_floor} % of the floor")
    print(f"by op: {record.large_slowest}")
    print(f"not passed: {record.not_passed}")


if __name__ == "__main__":
    main()
