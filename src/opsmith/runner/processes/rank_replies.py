"""What becomes of a request to several ranks: their replies, as they come, and what they end with instead."""

from __future__ import annotations

import math
import queue
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from opsmith.runner.processes.worker_link import WorkerLink
from opsmith.runner.protocol.worker_messages import Answered, Raised


class Ended(NamedTuple):
    """What became of a request to one rank."""

    rank: int
    reply: Any
    failure: Exception | None
    was_killed: bool = False

    @property
    def raised(self) -> Raised | None:
        """What the kernel raised there, if it did."""
        if isinstance(self.reply, Answered):
            return next((reply for reply in self.reply.replies if isinstance(reply, Raised)), None)
        return self.reply if isinstance(self.reply, Raised) else None

    @property
    def is_bad(self) -> bool:
        """Whether the others may wait for this rank in vain."""
        return self.failure is not None or self.raised is not None


class Results(Protocol):
    """What comes of something that ranks do at the same time."""

    def next(self, deadline: float | None) -> Ended | None:
        """What became of the next one that has ended; None if none has by a moment of the monotonic clock."""
        ...


class ThreadResults:
    """Something that is done with each rank, by a thread for each.

    Args:
        links: to the ranks.
        act: what is done.
    """

    def __init__(self, links: Sequence[WorkerLink], act: Callable[[WorkerLink], Any]) -> None:
        self._ended: queue.SimpleQueue[Ended] = queue.SimpleQueue()

        def act_on(rank: int) -> None:
            try:
                self._ended.put(Ended(rank, act(links[rank]), None))
            except Exception as exc:  # noqa: BLE001 - raised again by the thread that waits
                self._ended.put(Ended(rank, None, exc))

        self._threads = [threading.Thread(target=act_on, args=(rank,), daemon=True) for rank in range(len(links))]
        for thread in self._threads:
            thread.start()

    def next(self, deadline: float | None) -> Ended | None:
        """See :class:`Results`."""
        try:
            return self._ended.get(timeout=None if deadline is None else max(deadline - time.monotonic(), 0.0))
        except queue.Empty:
            return None

    def join(self) -> None:
        """Wait for the threads, whose ranks have all ended."""
        for thread in self._threads:
            thread.join()


class Replies:
    """Replies to one request of each rank, taken by one thread as they come.

    Args:
        links: to the ranks.
        reply_types: that they may have.

    Attributes:
        came_s: when each rank's reply was there, by ``time.perf_counter``.
    """

    def __init__(self, links: Sequence[WorkerLink], reply_types: tuple[type[Any], ...]) -> None:
        self._links, self._reply_types = links, reply_types
        self._poller = select.poll()
        self._rank_of: dict[int, int] = {}
        self._ready: deque[int] = deque()
        self._failed: deque[Ended] = deque()
        self.came_s = [math.inf] * len(links)

    def ask(self, parts: Sequence[msgspec.Struct]) -> int:
        """Send each rank its request; how many got one, or have failed: none after one that has."""
        for rank, (link, part) in enumerate(zip(self._links, parts, strict=True)):
            try:
                link.send(part)
            except Exception as exc:  # noqa: BLE001 - raised again when the others have ended
                self._failed.append(Ended(rank, None, exc))
                return rank + 1
            self._rank_of[link.fileno()] = rank
            self._poller.register(link, select.POLLIN)
        return len(self._links)

    def next(self, deadline: float | None) -> Ended | None:
        """See :class:`Results`."""
        while True:
            if self._failed:
                return self._failed.popleft()
            while self._ready:
                ended = self._received(self._ready.popleft())
                if ended is not None:
                    return ended
            limits = [self._links[rank].deadline for rank in self._rank_of.values()]
            until = min(limits if deadline is None else [*limits, deadline])
            ready = self._poller.poll(max(math.ceil((until - time.monotonic()) * 1e3), 0))
            came_s = time.perf_counter()
            for descriptor, _ in ready:
                self.came_s[self._rank_of[descriptor]] = came_s
                self._ready.append(self._rank_of[descriptor])
            if ready:
                continue
            if deadline is not None and time.monotonic() >= deadline:
                return None
            self._ready.extend(rank for rank in self._rank_of.values() if self._links[rank].is_overdue())

    def _received(self, rank: int) -> Ended | None:
        """What a rank says that has something to say, or whose time is over; None if it was no reply."""
        link = self._links[rank]
        descriptor = link.fileno()
        try:
            reply = link.receive(self._reply_types)
        except Exception as exc:  # noqa: BLE001 - raised again when the others have ended
            ended = Ended(rank, None, exc)
        else:
            if reply is None:
                return None
            ended = Ended(rank, reply, None)
        self._poller.unregister(descriptor)
        del self._rank_of[descriptor]
        return ended
