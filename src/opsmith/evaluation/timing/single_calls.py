"""How long one call of eager takes, next to a launch of nothing: what a dataset says of its inputs.

Each call is timed by itself, between two events on the device's stream, and its launch is inside. That
is what the public dataset's figures are. A comparison of two kernels is :mod:`.timing`'s.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial

import torch

from opsmith.devices import kind_of

#: Calls that are timed, unless the first of them took longer than ``LONG_MS``.
TIMES = 5
LONG_MS = 20.0
#: Launches of nothing are cheap to repeat, and everything is divided by them.
EMPTY_TIMES = 201


def runtime_ms(run: Callable[[], object], device: torch.device) -> float:
    """The median time of one call; it runs once before, untimed.

    Raises:
        Exception: whatever the call raises.
    """
    run()
    times: list[float] = []
    for elapsed in _timed(run, device):
        times.append(elapsed)
        if len(times) == TIMES or times[0] > LONG_MS:
            break
    return statistics.median(times)


def launch_ms(device: torch.device) -> float:
    """The median time of launching nothing: an empty kernel, or on the CPU a call that makes no element."""
    nothing = partial(kind_of(device.type).launch_nothing, device)
    for _ in range(EMPTY_TIMES):
        nothing()
    return statistics.median([elapsed for elapsed, _ in zip(_timed(nothing, device), range(EMPTY_TIMES), strict=False)])


def _timed(run: Callable[[], object], device: torch.device) -> Iterator[float]:
    """Times of call after call in milliseconds."""
    kind = kind_of(device.type)
    while True:
        yield kind.elapsed_ms(run, device)
