"""Slower ops: right ones whose timed cases point to slower than the baseline, with certainty."""

from __future__ import annotations

from opsmith.core.run import Summary
from opsmith.report.outcome import Direction, direction


def slower_ops(summary: Summary) -> dict[str, str]:
    """Op -> what is said of its speed.

    Kernel time decides where the device has one, else call time. An op is slower if some case is, beyond doubt, and
    none is faster.
    """
    found: dict[str, str] = {}
    for name, op in summary.per_op.items():
        quantity = "K" if op.labels_k else "E"
        labels, speedup = op.labels_k or op.labels_e, op.speedup(quantity)
        if op.accepted and speedup is not None and direction(labels) is Direction.SLOWER:
            found[name] = f"{quantity} {speedup:.2f}x: slower than the baseline"
    return found
