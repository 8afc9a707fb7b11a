"""Kernels that go round through the stations of a service: claimed, judged on a device, written down.

A station serves so many at a time, first come first served. A kernel visits the stations of its route one after
another; when it has been judged, its slot takes the next one. Nothing is ever idle for want of kernels: what is
simulated is the most that can be judged.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple


class Step(NamedTuple):
    """One part of a kernel's way.

    Attributes:
        station: its number among the stations; None where nobody has to wait for anybody.
        mean_s: seconds that it takes.
        varies: whether they are exponentially distributed; else they are always the same.
    """

    station: int | None
    mean_s: float
    varies: bool = True


class Outcome(NamedTuple):
    """What was simulated.

    Attributes:
        kernels: that reached the end of their route.
        seconds: that were counted, the time after the warm-up; or until the last kernel's end.
        busy: of each station the share of the time that its servers worked.
    """

    kernels: int
    seconds: float
    busy: tuple[float, ...]

    @property
    def kernels_per_s(self) -> float:
        """The rate."""
        return self.kernels / self.seconds


def simulate(
    stations: Sequence[int],
    routes: Sequence[Sequence[Step]],
    *,
    seconds: float = float("inf"),
    warm_up_s: float = 0.0,
    kernels: int | None = None,
    seed: int = 0,
) -> Outcome:
    """Send kernels round until so many seconds are over, or so many kernels are judged.

    Args:
        stations: how many each serves at a time.
        routes: one for each slot; a slot takes its kernels one after another.
        seconds: to be simulated.
        warm_up_s: of them, at the beginning, are not counted.
        kernels: to be judged together; None for as many as fit into the time.
        seed: of the times.
    """
    world = _World(stations, routes, random.Random(seed), warm_up_s)  # noqa: S311 - no secret
    left = float("inf") if kernels is None else kernels
    for slot in range(len(routes)):
        if left > 0:
            left -= 1
            world.begin(slot)
    judged, now = 0, 0.0
    while world.events and world.events[0][0] <= seconds:
        now, _, slot, place = heapq.heappop(world.events)
        if not world.advance(now, slot, place):
            continue
        judged += now >= warm_up_s
        if left > 0:
            left -= 1
            world.begin(slot, now)
    end = now if kernels is not None else seconds
    return Outcome(judged, end - warm_up_s, world.busy(end))


class _World:
    def __init__(
        self, stations: Sequence[int], routes: Sequence[Sequence[Step]], chance: random.Random, warm_up_s: float
    ) -> None:
        #: (time, number, slot, place in its route that ends), the number so that equal times keep their order.
        self.events: list[tuple[float, int, int, int]] = []
        self._stations, self._routes, self._chance, self._warm_up_s = stations, routes, chance, warm_up_s
        self._free = list(stations)
        self._waiting: list[deque[tuple[int, int]]] = [deque() for _ in stations]
        self._worked = [0.0] * len(stations)
        self._number = 0

    def begin(self, slot: int, now: float = 0.0) -> None:
        """A slot takes a kernel."""
        self._arrive(now, slot, 0)

    def advance(self, now: float, slot: int, place: int) -> bool:
        """A part of a route ends; returns whether it was the last one."""
        station = self._routes[slot][place].station
        if station is not None:
            if self._waiting[station]:
                self._serve(now, *self._waiting[station].popleft())
            else:
                self._free[station] += 1
        if place + 1 == len(self._routes[slot]):
            return True
        self._arrive(now, slot, place + 1)
        return False

    def busy(self, end: float) -> tuple[float, ...]:
        """Of each station the share of its servers' time."""
        counted = max(end - self._warm_up_s, 1e-9)
        return tuple(worked / counted / servers for worked, servers in zip(self._worked, self._stations, strict=True))

    def _arrive(self, now: float, slot: int, place: int) -> None:
        station = self._routes[slot][place].station
        if station is None or self._free[station]:
            if station is not None:
                self._free[station] -= 1
            self._serve(now, slot, place)
        else:
            self._waiting[station].append((slot, place))

    def _serve(self, now: float, slot: int, place: int) -> None:
        step = self._routes[slot][place]
        took = self._chance.expovariate(1 / step.mean_s) if step.varies and step.mean_s else step.mean_s
        if step.station is not None and now >= self._warm_up_s:
            self._worked[step.station] += took
        self._number += 1
        heapq.heappush(self.events, (now + took, self._number, slot, place))
