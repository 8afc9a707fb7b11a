"""What both sides of a timed pair do when they are asked for a block."""

from __future__ import annotations

import time

from opsmith.evaluation.timing import TimedCall
from opsmith.runner.protocol import BlockTimed, TimeBlock


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
