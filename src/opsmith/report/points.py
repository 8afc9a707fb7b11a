"""Timed cases as points of the page's plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from opsmith.core.timing import Label, Work
from opsmith.core.verdict import Verdict
from opsmith.report.results import Results
from opsmith.report.strangers import one_line

#: Points that the page holds; of more it takes every so many.
POINTS = 4_000
#: Characters of a case's inputs in a point's note.
INPUTS_CHARACTERS = 160

Item = TypeVar("Item")


class Point(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One timed case as the page script draws it.

    Attributes:
        op: the op.
        inputs: its arguments in one line, shortened.
        k: speedup of K.
        e: speedup of E.
        label_k: what K shows.
        label_e: what E shows.
        time_us: of one call: K where there is one, else E.
        reference_us: the same of the reference.
        traffic_bytes: what a good implementation moves.
        matmul_flops: of a matrix product.
        dtype: of the product's operands.
        suspect: faster than the device was ever measured to be.
    """

    op: str
    inputs: str
    time_us: float
    reference_us: float
    k: float | None = None
    e: float | None = None
    label_k: Label | None = None
    label_e: Label | None = None
    traffic_bytes: int | None = None
    matmul_flops: int = 0
    dtype: str | None = None
    suspect: bool = False


def points(results: Results, limit: int = POINTS) -> list[Point]:
    """At most ``limit`` of the timed cases, evenly chosen in the order of op and case."""
    timed = sorted((verdict for verdict in results.verdicts if verdict.timings), key=lambda each: (each.op, each.case))
    works = {(each.case, each.kernel): each.work for each in results.timed_cases}
    return [point(verdict, works.get((verdict.case, verdict.kernel))) for verdict in evenly(timed, limit)]


def evenly(items: Sequence[Item], limit: int) -> list[Item]:
    """All of them, or ``limit`` at equal distances."""
    if len(items) <= limit:
        return list(items)
    return [items[number * len(items) // limit] for number in range(limit)]


def speedup_logs(results: Results, quantity: str) -> list[float]:
    """The base-2 logarithm of every timed case's speedup in one quantity, ascending."""
    return sorted(
        round(math.log2(timing.speedup), 3)
        for verdict in results.verdicts
        for timing in verdict.timings
        if timing.quantity == quantity
    )


def point(verdict: Verdict, work: Work | None) -> Point:
    """A verdict with timings as a point, with the work of its case where that is known."""
    timings = {timing.quantity: timing for timing in verdict.timings}
    kernel, call = timings.get("K"), timings.get("E")
    shown = kernel or call
    assert shown is not None, "a verdict with timings has one of K or E"
    return Point(
        op=verdict.op,
        inputs=one_line(verdict.inputs, INPUTS_CHARACTERS),
        time_us=_short(shown.candidate_us),
        reference_us=_short(shown.reference_us),
        k=_short(kernel.speedup) if kernel else None,
        e=_short(call.speedup) if call else None,
        label_k=kernel.label if kernel else None,
        label_e=call.label if call else None,
        traffic_bytes=work.traffic_bytes if work else None,
        matmul_flops=work.matmul_flops if work else 0,
        dtype=work.matmul_dtype if work else None,
        suspect=shown.suspect,
    )


def _short(value: float) -> float:
    """To four digits: a plot shows no more, and the page stays small."""
    return float(f"{value:.4g}")
