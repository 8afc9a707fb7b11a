"""What kernels cost beside their time: first calls, which compile and tune, and memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opsmith.core.run import TimedCase
from opsmith.report.strangers import one_line

#: First calls that took longer than this together are worth a line.
LONG_FIRST_CALLS_S = 1.0
#: More than this many times the reference's memory is worth a line,
MUCH_MEMORY = 1.5
#: if it is also this much more: allocators round small sizes up.
MORE_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Excess:
    """Timed cases whose kernel takes much more memory than the reference.

    Attributes:
        cases: how many.
        measured: cases where both sides' memory is known.
        op: the op with the largest ratio.
        ratio: that ratio, kernel over reference; infinite where the reference takes none.
        peak_bytes: what the kernel takes there.
    """

    cases: int
    measured: int
    op: str
    ratio: float
    peak_bytes: int


def first_calls_s(timed_cases: Iterable[TimedCase]) -> float | None:
    """Seconds of all first calls if they are long, else None."""
    total_s = math.fsum(timed.first_call_s or 0.0 for timed in timed_cases)
    return total_s if total_s > LONG_FIRST_CALLS_S else None


def memory_excess(timed_cases: Iterable[TimedCase]) -> Excess | None:
    """The cases that take much more memory than the reference; None without one."""
    measured = [
        (timed.peak_bytes, timed.reference_peak_bytes, timed.op)
        for timed in timed_cases
        if timed.peak_bytes is not None and timed.reference_peak_bytes is not None
    ]
    greedy = [
        (_ratio(peak, reference), peak, op)
        for peak, reference, op in measured
        if peak > MUCH_MEMORY * reference and peak - reference >= MORE_BYTES
    ]
    if not greedy:
        return None
    ratio, peak_bytes, op = max(greedy)
    return Excess(cases=len(greedy), measured=len(measured), op=op, ratio=ratio, peak_bytes=peak_bytes)


def costs(timed_cases: Sequence[TimedCase]) -> Iterable[tuple[str, str]]:
    """What is worth a line, in words: (name, sentence)."""
    if (seconds := first_calls_s(timed_cases)) is not None:
        yield "compiling", f"first calls took {seconds:,.1f} s in all, compiling included; not in K or E"
    if (excess := memory_excess(timed_cases)) is not None:
        times = f"{excess.ratio:.1f}x" if math.isfinite(excess.ratio) else "where the reference takes none"
        worst = f"worst {one_line(excess.op)}, {times}, {excess.peak_bytes / 2**20:,.0f} MiB"
        cases = f"{excess.cases:,} of {excess.measured:,} timed cases"
        yield "memory", f"more than {MUCH_MEMORY:g}x the reference's in {cases}; {worst}"


def _ratio(peak_bytes: int, reference_peak_bytes: int) -> float:
    return peak_bytes / reference_peak_bytes if reference_peak_bytes else math.inf
