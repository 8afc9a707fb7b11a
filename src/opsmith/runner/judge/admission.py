"""Admission to a device: as many cases beside each other as memory lets, or one by itself; none while it is timed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from opsmith.runner.judge.memory_budget import MemoryBudget
from opsmith.runner.machine.device_lock import DeviceLock

#: Arguments of all cases that are judged at a time.
BYTES_AT_A_TIME = 8 << 30


class Sibling(Protocol):
    """A slot, as the others of its device see it.

    Attributes:
        in_use: held while it judges.
    """

    in_use: threading.Lock

    def give_memory_back(self) -> None:
        """Give the device what is kept for the next case."""
        ...


class Admission:
    """Admits the slots of one lane to its device.

    Attributes:
        lock: of the device, over all processes of a user; set once it is known which device that is.
    """

    lock: DeviceLock

    def __init__(self) -> None:
        self._budget = MemoryBudget(BYTES_AT_A_TIME)
        self._siblings: list[Sibling] = []

    def join(self, slot: Sibling) -> None:
        """Let one more slot be asked for its memory."""
        self._siblings.append(slot)

    @contextlib.contextmanager
    def beside_others(self, size_bytes: int, give_back: Callable[[], None]) -> Iterator[None]:
        """Judge with arguments of so many bytes, while nobody times.

        Args:
            size_bytes: of all arguments.
            give_back: called where another slot needs the device by itself.
        """
        with self._budget.taken(size_bytes, give_back), self.lock.shared():
            yield

    @contextlib.contextmanager
    def by_itself(self) -> Iterator[None]:
        """Judge while nobody times, and no other slot judges or keeps memory."""
        with self._budget.alone(), self.lock.shared():
            for slot in self._siblings:
                if slot.in_use.acquire(blocking=False):  # Those that judge have been told at the door.
                    try:
                        slot.give_memory_back()
                    finally:
                        slot.in_use.release()
            yield
