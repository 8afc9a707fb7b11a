"""Who may be at the device at the same time; threads are real, what they do is to wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from opsmith.runner.judge.memory_budget import MemoryBudget

#: After so long a thread that is not inside is taken to be waiting.
WAITING_S = 0.05


class Guest:
    """A thread that is inside until it is told to leave; without a size it is inside alone.

    Attributes:
        gave_back: how often it was asked to.
    """

    def __init__(self, budget: MemoryBudget, size_bytes: int | None) -> None:
        self._budget = budget
        self._size_bytes = size_bytes
        self.gave_back = 0
        self._is_inside = threading.Event()
        self._may_leave = threading.Event()
        self._thread = threading.Thread(target=self._visit, daemon=True)  # It may wait for ever.
        self._thread.start()

    def _visit(self) -> None:
        with (
            self._budget.alone() if self._size_bytes is None else self._budget.taken(self._size_bytes, self._give_back)
        ):
            self._is_inside.set()
            self._may_leave.wait(10)

    def _give_back(self) -> None:
        self.gave_back += 1

    def gets_in(self) -> bool:
        return self._is_inside.wait(10)

    def has_to_wait(self) -> bool:
        return not self._is_inside.wait(WAITING_S)

    def leave(self) -> None:
        self._may_leave.set()
        self._thread.join(10)


@contextmanager
def guests(budget: MemoryBudget, *sizes: int | None) -> Iterator[list[Guest]]:
    """Guests that come one after another; all leave at the end, in the order in which they came."""
    found: list[Guest] = []
    try:
        for size in sizes:
            found.append(Guest(budget, size))
            found[-1].has_to_wait()
        yield found
    finally:
        for guest in found:
            guest.leave()


def test_small_ones_are_inside_beside_each_other() -> None:
    """As many as there is room for, to the last byte."""
    with guests(MemoryBudget(100), 40, 40, 20) as inside:
        assert all(guest.gets_in() for guest in inside)


def test_one_more_than_there_is_room_for_waits() -> None:
    """Until somebody leaves."""
    with guests(MemoryBudget(100), 60, 40, 1) as (first, second, third):
        assert first.gets_in()
        assert second.gets_in()
        assert third.has_to_wait()
        second.leave()
        assert third.gets_in()


def test_a_large_one_goes_in_when_it_is_alone() -> None:
    """It would wait for ever otherwise."""
    with guests(MemoryBudget(100), 1_000) as [large]:
        assert large.gets_in()


def test_a_large_one_waits_for_the_others_to_leave() -> None:
    """For all of them."""
    with guests(MemoryBudget(100), 1, 1, 1_000) as (first, second, large):
        assert large.has_to_wait()
        first.leave()
        assert large.has_to_wait()
        second.leave()
        assert large.gets_in()


def test_nobody_goes_in_beside_a_large_one() -> None:
    """Not even a small one."""
    with guests(MemoryBudget(100), 1_000, 1) as (large, small):
        assert large.gets_in()
        assert small.has_to_wait()
        large.leave()
        assert small.gets_in()


def test_everybody_for_whom_there_is_room_is_let_in_at_once() -> None:
    """One that leaves may make room for several."""
    with guests(MemoryBudget(100), 100, 30, 30, 30) as (first, *others):
        assert all(other.has_to_wait() for other in others)
        first.leave()
        assert all(other.gets_in() for other in others)


def test_what_fails_inside_gives_its_room_back() -> None:
    """Else one lost device would stop the run."""
    budget = MemoryBudget(100)
    with pytest.raises(ZeroDivisionError), budget.taken(100):
        raise ZeroDivisionError
    with guests(budget, 100) as [guest]:
        assert guest.gets_in()


def test_a_guest_without_size_goes_in_beside_a_full_room() -> None:
    """It needs none."""
    with guests(MemoryBudget(100), 100, 0) as (_, other):
        assert other.gets_in()


def test_one_that_wants_to_be_alone_waits_for_all_others() -> None:
    """Those without size, too."""
    with guests(MemoryBudget(100), 1, 0, None) as (first, second, alone):
        assert alone.has_to_wait()
        first.leave()
        assert alone.has_to_wait()
        second.leave()
        assert alone.gets_in()


def test_nobody_goes_in_before_one_that_wants_to_be_alone() -> None:
    """Else there would always be somebody inside, where a dozen come and go."""
    with guests(MemoryBudget(100), 1, None, 1, 0) as (first, alone, *others):
        assert all(other.has_to_wait() for other in others)
        first.leave()
        assert alone.gets_in()
        assert all(other.has_to_wait() for other in others)
        alone.leave()
        assert all(other.gets_in() for other in others)


def test_two_that_want_to_be_alone_are_alone_one_after_the_other() -> None:
    """Whoever else waits."""
    with guests(MemoryBudget(100), None, None, 1) as (first, second, other):
        assert first.gets_in()
        assert second.has_to_wait()
        first.leave()
        assert second.gets_in()
        assert other.has_to_wait()


def test_what_others_keep_is_given_back_to_one_that_wants_to_be_alone() -> None:
    """By those that leave for it and by those that wait behind it, once."""
    budget = MemoryBudget(100)
    with guests(budget, 1) as [before]:
        before.leave()
        assert 0 == before.gave_back
    with guests(budget, 1, None, 1) as (first, alone, waits):
        assert (0, 1) == (first.gave_back, waits.gave_back)
        first.leave()
        assert alone.gets_in()
        assert 1 == first.gave_back
        alone.leave()
        assert waits.gets_in()
        waits.leave()
        assert 1 == waits.gave_back
