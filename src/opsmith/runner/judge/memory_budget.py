"""A memory budget for what is judged at a time: many small cases beside each other, large ones by themselves."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


def _nothing() -> None:
    """Nothing is held outside."""


class MemoryBudget:
    """So many bytes of arguments at a time, over all threads.

    Args:
        size_bytes: of all that is inside together; something larger goes in when it is alone.
    """

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._taken_bytes = 0
        self._inside = 0
        self._giving_back = 0
        #: Of those that are in it alone, or wait for that.
        self._wishes = 0
        self._is_one_alone = False
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def taken(self, size_bytes: int, give_back: Callable[[], None] = _nothing) -> Iterator[None]:
        """Wait until that much of it is free, and take it.

        Args:
            size_bytes: how much.
            give_back: gives up what is kept from one time to the next; called where somebody wants to be alone.
        """
        self._enter(size_bytes, give_back)
        try:
            yield
            if self._wishes:
                give_back()
        finally:
            with self._changed:
                self._taken_bytes -= size_bytes
                self._inside -= 1
                self._changed.notify_all()

    def _enter(self, size_bytes: int, give_back: Callable[[], None]) -> None:
        holds_something = True
        with self._changed:
            while self._wishes or (self._taken_bytes and self._taken_bytes + size_bytes > self._size_bytes):
                if self._wishes and holds_something:
                    holds_something = False
                    self._giving_back += 1
                    self._changed.release()
                    try:
                        give_back()
                    finally:
                        self._changed.acquire()
                        self._giving_back -= 1
                        self._changed.notify_all()
                else:
                    self._changed.wait()
            self._taken_bytes += size_bytes
            self._inside += 1

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until everybody has left, whatever they have taken; until the end nobody goes in."""
        with self._changed:
            self._wishes += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._inside and not self._giving_back and not self._is_one_alone)
            self._is_one_alone = True
        try:
            yield
        finally:
            with self._changed:
                self._is_one_alone = False
                self._wishes -= 1
                self._changed.notify_all()
