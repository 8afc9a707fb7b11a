"""What a time means beside the work that was done in it: possible, doubtful, or more than physics allows."""

from __future__ import annotations

import enum
from typing import NamedTuple

from opsmith.core.timing import Ceilings, Work
from opsmith.evaluation.roofline.datasheets import Datasheet

#: A time this much below what the device was measured to need is doubtful.
MEASURED_HEADROOM = 1.05


class Plausibility(enum.StrEnum):
    """What to think of a time.

    IMPOSSIBLE rests on the vendor's figures alone; SUSPECT on what was measured, and is no accusation.
    """

    PLAUSIBLE = "PLAUSIBLE"
    SUSPECT = "SUSPECT"
    IMPOSSIBLE = "IMPOSSIBLE"


class TimeJudgement(NamedTuple):
    """What to think of a time, and why in one line; the line is empty for a plausible one."""

    plausibility: Plausibility
    evidence: str = ""


class _Limits(NamedTuple):
    """Rates that a time is held against, and who says so."""

    gbps: float
    tflops: dict[str, float]
    l2_bytes: int
    headroom: float
    source: str


def impossible_us(work: Work, datasheet: Datasheet, sets: int) -> float:
    """Microseconds below which no kernel can make a call; 0 where nothing is known.

    Args:
        work: of one call.
        datasheet: of the device.
        sets: calls that run one after another, each on inputs and results of its own. What one round of them
            leaves in the cache the next round may find there, so that much is taken off once a round.
    """
    limits = _of_datasheet(datasheet)
    return max(_memory_us(work, limits, sets), _products_us(work, limits)) / limits.headroom


def bound_us(work: Work, ceilings: Ceilings, node_us: float | None = None) -> float | None:
    """Microseconds that a good implementation needs on this device, for ``percent_of_floor``.

    Args:
        work: of one call.
        ceilings: of the device.
        node_us: what an empty node of a CUDA graph costs; None counts as 0.

    Returns:
        None where there is nothing to do, as for a view, and for a product of a dtype whose rate is not known.
    """
    has_rate = not work.matmul_flops or work.matmul_dtype in ceilings.matmul_tflops
    if not has_rate or not (work.traffic_bytes or work.matmul_flops):
        return None
    moving_us = work.traffic_bytes / ceilings.copy_gbps / 1e3
    return (node_us or 0.0) + max(moving_us, _products_us(work, _of_ceilings(ceilings)))


def judge_time(
    time_us: float, work: Work, *, datasheet: Datasheet | None, ceilings: Ceilings | None, sets: int
) -> TimeJudgement:
    """Hold the time of one call against what its work needs at least.

    Args:
        time_us: of one call, launch and all: nothing is taken off for it.
        work: of one call.
        datasheet: of the device; without one nothing is IMPOSSIBLE.
        ceilings: of the device; without them nothing is SUSPECT.
        sets: as in :func:`impossible_us`.
    """
    if datasheet is not None:
        limits = _of_datasheet(datasheet, ceilings)
        if evidence := _excess(time_us, work, limits, sets):
            return TimeJudgement(Plausibility.IMPOSSIBLE, evidence)
    if ceilings is not None and (evidence := _excess(time_us, work, _of_ceilings(ceilings), sets)):
        return TimeJudgement(Plausibility.SUSPECT, evidence)
    return TimeJudgement(Plausibility.PLAUSIBLE)


def _of_datasheet(datasheet: Datasheet, ceilings: Ceilings | None = None) -> _Limits:
    """The vendor's limits, raised to what this device was measured to be where that is more."""
    gbps, l2_bytes = datasheet.bandwidth_gbps, datasheet.l2_bytes
    tflops = dict(datasheet.matmul_tflops)
    if ceilings is not None:
        gbps, l2_bytes = max(gbps, ceilings.copy_gbps), max(l2_bytes, ceilings.l2_bytes)
        tflops = {dtype: max(rate, ceilings.matmul_tflops.get(dtype, 0.0)) for dtype, rate in tflops.items()}
    return _Limits(gbps, tflops, l2_bytes, datasheet.headroom, f"{_article(datasheet.name)} (data sheet)")


def _of_ceilings(ceilings: Ceilings) -> _Limits:
    source = f"{_article(ceilings.device)} (measured)"
    return _Limits(ceilings.copy_gbps, ceilings.matmul_tflops, ceilings.l2_bytes, MEASURED_HEADROOM, source)


def _uncached_bytes(work: Work, limits: _Limits, sets: int) -> float:
    return max(work.least_bytes - limits.l2_bytes / sets, 0.0)


def _memory_us(work: Work, limits: _Limits, sets: int) -> float:
    return _uncached_bytes(work, limits, sets) / limits.gbps / 1e3


def _products_us(work: Work, limits: _Limits) -> float:
    rate = limits.tflops.get(work.matmul_dtype) if work.matmul_dtype else None
    return 0.0 if rate is None else work.matmul_flops / rate / 1e6


def _excess(time_us: float, work: Work, limits: _Limits, sets: int) -> str:
    """By what a time exceeds the limits, or nothing."""
    moving_us, multiplying_us = _memory_us(work, limits, sets), _products_us(work, limits)
    if time_us * limits.headroom >= max(moving_us, multiplying_us):
        return ""
    if moving_us >= multiplying_us:
        done = _uncached_bytes(work, limits, sets) / 1e6
        what = f"moves at least {done:,.0f} MB past the cache"
        most, unit = f"{limits.gbps / 1e3:.2f}", "TB/s"
    else:
        done = work.matmul_flops / 1e6
        what = f"computes {done / 1e3:,.0f} Gflop of {work.matmul_dtype} products"
        most, unit = f"{limits.tflops[work.matmul_dtype or '']:,.0f}", "TFLOPS"
    reached = f"{done / time_us:,.1f}" if time_us > 0 else "infinitely many"
    return f"{what} in {time_us:.1f} us: {reached} {unit}, more than the {most} {unit} of {limits.source}"


def _article(name: str) -> str:
    return f"{'an' if name[:1] in 'AEIOUaeiou' or name.startswith('NVIDIA') else 'a'} {name}"
