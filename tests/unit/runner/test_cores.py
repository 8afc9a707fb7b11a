"""Which processor is fast just now."""

from __future__ import annotations

import os
from collections.abc import Collection
from types import SimpleNamespace

import pytest

from opsmith.runner.machine import cores


class Processors:
    """Processors of different speeds, of which this thread is on one."""

    def __init__(self, times: dict[int, float]) -> None:
        self.times = times
        self.now = 0.0
        self.allowed: set[int] = {*times}
        self.readings = 0

    def pin(self, _pid: int, allowed: Collection[int]) -> None:
        self.allowed = {*allowed}

    def perf_counter(self) -> float:
        """A loop takes its time, once in a while ten times as long; a migration takes long, and is no loop."""
        [processor] = self.allowed
        self.readings += 1
        is_disturbed = self.readings % 7 == 0
        self.now += self.times[processor] * (10 if is_disturbed else 1)
        return self.now


def test_the_fastest_processor_is_found_whatever_disturbs_single_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """And this thread may run afterwards where it could before."""
    machine = Processors({0: 2.0, 1: 1.1, 2: 1.0, 3: 1.9})
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: machine.allowed)
    monkeypatch.setattr(os, "sched_setaffinity", machine.pin)
    monkeypatch.setattr(cores, "time", SimpleNamespace(perf_counter=machine.perf_counter))
    assert 2 == cores.quickest((0, 1, 2, 3))
    assert 1 == cores.quickest((0, 1, 3))
    assert {0, 1, 2, 3} == machine.allowed


def test_a_thread_that_tries_processors_is_free_again() -> None:
    """On this machine."""
    allowed = os.sched_getaffinity(0)
    assert cores.quickest(sorted(allowed)) in allowed
    assert allowed == os.sched_getaffinity(0)
