"""What both sides of a timed pair do when they are asked to get ready for blocks, and for a block."""

from __future__ import annotations

import time
from collections.abc import Mapping

from opsmith.evaluation.timing import TimedCall
from opsmith.runner.protocol import BlockTimed, RenewInputs, TimeBlock


def renewed(timed: Mapping[int, TimedCall], request: RenewInputs) -> BlockTimed:
    """Write the values that are asked for, of several calls with one wait for the device."""
    *others, last = request.renewals
    for renewal in others:
        timed[renewal.pair].queue_renewal(renewal.round, renewal.calls)
    timed[last.pair].renew(last.round, last.calls)
    return BlockTimed(None)


def timed_block(timed: TimedCall, request: TimeBlock) -> BlockTimed:
    """Run the block that is asked for."""
    if request.quantity == "E":
        start = time.perf_counter()
        timed.host_block(request.calls)
        return BlockTimed((time.perf_counter() - start) * 1e6 / max(request.calls, 1))
    own_us, nodes = timed.device_block(
        request.calls,
        round_number=request.round,
        replays=request.replays,
        steady=request.steady,
        captured=request.captured,
    )
    return BlockTimed(own_us, nodes)
