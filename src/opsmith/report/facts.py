"""What a run's figures depend on, in words: the machine, and the clock.

A fact is a name and a value; one without a value is left out.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable

from opsmith.core.fresh_values import Freshness
from opsmith.core.run import RunManifest
from opsmith.core.timing import Ceilings, Clock
from opsmith.core.verdict import Part, Status
from opsmith.report.conventions import BASELINES
from opsmith.report.costs import costs
from opsmith.report.results import Results
from opsmith.report.tables import label_counts, ranks_apart, suspects, undecided

Fact = tuple[str, object]


def environment_facts(results: Results) -> Iterable[Fact]:
    """Where and how the run was judged."""
    manifest, environment = results.manifest, results.manifest.environment
    options = manifest.options
    yield "Started", manifest.started_utc
    yield "Finished", manifest.finished_utc or "not finished"
    yield "Judging took", None if manifest.wall_s is None else f"{manifest.wall_s:,.1f} s"
    yield "Of that", ", ".join(f"{stage} {seconds:,.1f} s" for stage, seconds in manifest.stages_s.items()) or None
    yield "Taken up again", f"{manifest.resumed} times" if manifest.resumed else None
    yield "Seed", manifest.seed if manifest.seed is not None else "secret until the run is finished"
    yield "dtypes", ", ".join(options.dtypes)
    yield "Judged with", f"tolerance {options.tolerance}, layout {options.layout}, timing {options.timing}"
    yield "Isolation", f"one worker per {options.isolation}"
    yield "Isolation layers", ", ".join(manifest.sandbox) or "none"
    yield "Device", f"{environment.device} ({environment.device_name})"
    yield "Devices", _devices(manifest)
    yield "CPU", f"{environment.cpu}, {environment.cpu_count} cores, {environment.memory_gib:.0f} GiB"
    yield "torch", environment.torch
    yield "triton", environment.triton
    yield "CUDA", environment.cuda
    yield "Driver", environment.driver
    yield "Compiler", environment.compiler
    yield "Python", environment.python
    yield "Platform", environment.platform
    yield "opsmith", environment.opsmith
    yield "Commit", environment.git_commit
    yield "Command", shlex.join(manifest.command)


def _devices(manifest: RunManifest) -> str | None:
    """How many there were, and where; None where it was one."""
    if len(manifest.devices) < 2:
        return None
    hosts = Counter(device.host for device in manifest.devices)
    lost = sum(device.lost for device in manifest.devices)
    where = ", ".join(f"{count} on {host}" for host, count in hosts.items())
    return f"{len(manifest.devices)} by executor {manifest.executor}: {where}{f'; {lost} lost' if lost else ''}"


def clock_facts(results: Results) -> Iterable[Fact]:
    """How kernels were timed, and how far the clock can be trusted; nothing of a run without one."""
    clock, options = results.manifest.clock, results.manifest.options
    if clock is None:
        return
    yield "Timed against", BASELINES[options.baseline]
    yield (
        "Caches",
        "warm: each call finds what the last one left" if options.warm else "cold: each call has inputs of its own",
    )
    for quantity in ("k", "e"):
        yield f"{quantity.upper()} of cases", label_counts(results.summary, quantity)
    yield "Passed, not timed", _not_timed(results)
    yield "Values", _repeated_values(results)
    yield "Noise", ", ".join(f"{name} {100 * share:.1f} %" for name, share in clock.noise.items())
    yield "Noise of ranks", _noise_of_ranks(clock)
    yield "Ranks", ranks_apart(results)
    yield "Round trip", f"{clock.trip_us:,.1f} us, taken off each block of E"
    yield "Empty graph node", None if clock.node_us is None else f"{clock.node_us:.2f} us, part of K"
    yield "Empty graph", None if clock.graph_us is None else f"{clock.graph_us:.2f} us, taken off each block of K"
    yield "Ceilings", _ceilings(clock.ceilings)
    yield "Throttling", _throttling(results, clock)
    yield "Disturbed", _disturbed(results)
    yield "Suspect", suspects(results)
    yield "Undecided", undecided(results)
    yield from ((name.capitalize(), sentence) for name, sentence in costs(results.timed_cases))


def _noise_of_ranks(clock: Clock) -> str | None:
    return ", ".join(f"{ranks}: {100 * share:.1f} %" for ranks, share in clock.noise_of_ranks.items()) or None


def _not_timed(results: Results) -> str | None:
    count = sum(
        verdict.status is Status.PASSED
        and verdict.part is Part.CASE
        and not verdict.expects_error
        and not verdict.timings
        for verdict in results.verdicts
    )
    return f"{count:,} cases; timings.jsonl has the reasons" if count else None


def _repeated_values(results: Results) -> str | None:
    """How many cases were timed on values that earlier calls had met, which a kernel might remember."""
    known = [timed.values for timed in results.timed_cases if timed.values is not None]
    partly, wholly = (known.count(which) for which in (Freshness.PARTLY, Freshness.FIXED))
    if not partly and not wholly:
        return "new in every call" if known else None
    return (
        f"new in every call, but for {partly:,} of {len(known):,} cases that repeat some and {wholly:,} that repeat all"
    )


def _ceilings(ceilings: Ceilings) -> str:
    rates = ", ".join(f"{dtype} {rate:,.0f}" for dtype, rate in ceilings.matmul_tflops.items())
    products = f"; matrix products in TFLOPS {rates}" if rates else ""
    cache = f"L2 {ceilings.l2_bytes / 2**20:,.0f} MiB"
    measured = f"measured {ceilings.measured_utc[:10]} with torch {ceilings.torch}"
    return f"copy {ceilings.copy_gbps:,.0f} GB/s{products}; {cache}; {measured}"


def _disturbed(results: Results) -> str | None:
    """Pairs that were measured again because others had the processor; None where there were none."""
    timings = [timing for verdict in results.verdicts for timing in verdict.timings]
    disturbed, kept = sum(each.disturbed for each in timings), sum(each.blocks for each in timings)
    return (
        f"{disturbed:,} of {disturbed + kept:,} pairs measured again, others had the processor" if disturbed else None
    )


def _throttling(results: Results, clock: Clock) -> str:
    timings = [timing for verdict in results.verdicts for timing in verdict.timings]
    discarded, kept = sum(each.discarded for each in timings), sum(each.blocks for each in timings)
    if clock.throttling is None:
        return "cannot be noticed on this device"
    return f"noticed by {clock.throttling}; {discarded:,} of {discarded + kept:,} pairs discarded"
