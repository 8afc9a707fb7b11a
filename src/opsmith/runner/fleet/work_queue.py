"""Work that several threads take piece by piece, and that comes back when whoever has it is lost."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

import msgspec

Item = TypeVar("Item")


class Piece(msgspec.Struct, Generic[Item]):
    """Something to do.

    Attributes:
        item: what.
        losses: how often somebody was lost who was at work on it.
    """

    item: Item
    losses: int = 0


class WorkQueue(Generic[Item]):
    """Pieces of work in the order in which they are taken; methods may be called from several threads.

    Attributes:
        stopped: nobody wants the rest.

    Args:
        items: what is to be done, the first first.
    """

    def __init__(self, items: Iterable[Item]) -> None:
        self._pieces = deque(Piece(item) for item in items)
        self._taken = 0
        self.stopped = False
        self._changed = threading.Condition()

    def take(self) -> Piece[Item] | None:
        """The next piece, or None when all is done or nobody wants the rest.

        Waits while there is none but others are at work: theirs may come back.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.stopped or self._pieces or not self._taken)
            if self.stopped or not self._pieces:
                return None
            self._taken += 1
            return self._pieces.popleft()

    def finish(self) -> None:
        """A piece that was taken is done."""
        with self._changed:
            self._taken -= 1
            self._changed.notify_all()

    def put_back(self, piece: Piece[Item]) -> None:
        """What was taken, or the rest of it, is the next that is taken again."""
        with self._changed:
            self._taken -= 1
            self._pieces.appendleft(piece)
            self._changed.notify_all()

    def stop(self) -> None:
        """Nobody wants the rest."""
        with self._changed:
            self.stopped = True
            self._changed.notify_all()

    def __len__(self) -> int:
        """How many pieces wait to be taken."""
        return len(self._pieces)
