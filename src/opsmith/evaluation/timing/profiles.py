"""Profiles of single calls: what ran when, by torch's profiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from opsmith.core.evidence import CallProfile, Span

WARM_UPS = 3
#: More of them make no picture.
MOST_SPANS = 400
MOST_NAME_CHARS = 120


def profiled(run: Callable[[], object], device: str, *, warm_ups: int = WARM_UPS) -> CallProfile:
    """Profile one call: kernels and copies of a device, or ops on the CPU.

    Args:
        run: makes the call.
        device: torch device string.
        warm_ups: calls before it.
    """
    on_device = device.startswith("cuda")
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_device else [])]
    for _ in range(warm_ups):
        run()
    with profile(activities=activities) as profiler:
        run()
        if on_device:
            torch.cuda.synchronize()
    events = list(profiler.events() or ())
    if on_device:
        chosen = [event for event in events if event.device_type == DeviceType.CUDA]
    else:
        chosen = _telling([event for event in events if event.cpu_parent is None])
    chosen.sort(key=lambda event: event.time_range.start)
    begin = chosen[0].time_range.start if chosen else 0.0
    spans = tuple([
        Span(
            event.name[:MOST_NAME_CHARS],
            round(event.time_range.start - begin, 3),
            round(event.time_range.end - event.time_range.start, 3),
        )
        for event in chosen[:MOST_SPANS]
    ])  # fmt: skip
    return CallProfile(device=device, spans=spans, left_out=max(len(chosen) - MOST_SPANS, 0))


def _telling(events: list[Any]) -> list[Any]:
    """The outermost ops; of a single one that spends most of its time in others, those."""
    while len(events) == 1 and 2 * events[0].self_cpu_time_total < events[0].cpu_time_total:
        events = list(events[0].cpu_children)
    return events
