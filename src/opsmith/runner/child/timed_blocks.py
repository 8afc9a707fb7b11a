"""What both sides of a timed pair do when they are asked to get ready for blocks, and for a block."""

from __future__ import annotations

import time
from collections.abc import Mapping, MutableMapping
from typing import Any

import torch

from opsmith.evaluation.timing.blocks import TimedCall
from opsmith.evaluation.timing.cuda_graphs import give_memory_back
from opsmith.runner.protocol.timing_messages import BlockTimed, RenewInputs, TimeBlock, WarmUp

#: Device memory that a process keeps from one group of calls for the next, where nothing but the two of a pair works
#: on it; giving memory back and asking for it again takes milliseconds.
MAX_KEPT_WHILE_ALONE_BYTES = 32 << 30


def forget(timed: MutableMapping[int, Any], device: torch.device) -> None:
    """Forget the calls that were timed so far, and what they leave if it is much: the other side needs room."""
    timed.clear()
    give_memory_back(device, MAX_KEPT_WHILE_ALONE_BYTES)


def renewed(timed: Mapping[int, TimedCall], request: RenewInputs) -> BlockTimed:
    """Write the values that are asked for, of several calls with one wait for the device."""
    *others, last = request.renewals
    for renewal in others:
        timed[renewal.pair].queue_renewal(renewal.round, renewal.sets)
    timed[last.pair].renew(last.round, last.sets)
    return BlockTimed(None)


def warmed_up(timed: Mapping[int, TimedCall], request: WarmUp) -> BlockTimed:
    """Run the calls that come before blocks."""
    for warming in request.warmings:
        timed[warming.pair].warm_up(warming.sets, warming.calls)
    return BlockTimed(None)


def ready(timed: TimedCall, captured: int) -> BlockTimed:
    """Capture so many calls, if they can be, and say what nodes that gave."""
    graph = timed.captured(captured)
    return BlockTimed(None, None if graph is None else graph.nodes / captured)


def timed_block(timed: TimedCall, request: TimeBlock) -> BlockTimed:
    """Run the block that is asked for."""
    if request.quantity == "E":
        start = time.perf_counter()
        timed.host_block(request.calls)
        return BlockTimed((time.perf_counter() - start) * 1e6 / max(request.calls, 1))
    # Ranks on devices are not timed yet. They have to start together: a barrier of all ranks on their devices belongs
    # between the kernel that waits and the first event, where ``Gate.time_us`` records that (see ranks.md, "Times").
    own_us, nodes = timed.device_block(
        request.calls,
        round_number=request.round,
        replays=request.replays,
        steady=request.steady,
        captured=request.captured,
    )
    return BlockTimed(own_us, nodes)
