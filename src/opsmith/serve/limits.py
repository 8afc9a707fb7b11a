"""What a client may not exceed: the size of a request, and how many of them."""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections import OrderedDict

from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Clients that are remembered; of more the one that was idle longest begins anew.
MOST_CLIENTS = 10_000


class Rate:
    """So many requests a second on average, and so many at a time, for each client.

    Args:
        per_s: requests that a client gets back each second.
        burst: requests that a client has at most.
    """

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s, self._burst = per_s, burst
        self._left: OrderedDict[object, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, client: object) -> int:
        """Take one request; returns 0, or the seconds after which there is one again."""
        return self._ask(client, taken=1.0)

    def peek(self, client: object) -> int:
        """As :meth:`take`, and nothing is taken."""
        return self._ask(client, taken=0.0)

    def _ask(self, client: object, *, taken: float) -> int:
        now = time.monotonic()
        with self._lock:
            left, since = self._left.pop(client, (float(self._burst), now))
            left = min(self._burst, left + (now - since) * self._per_s)
            allowed = left >= 1.0
            self._left[client] = (left - taken if allowed else left, now)
            if len(self._left) > MOST_CLIENTS:
                self._left.popitem(last=False)
        return 0 if allowed else math.ceil((1.0 - left) / self._per_s)


class _TooLarge(Exception):
    """More came than is allowed."""


class LimitedBody:
    """Refuses requests whose body is larger than allowed: before it is sent where its length is told, else on the way.

    Args:
        app: what is served.
        most_bytes: of a body.
    """

    def __init__(self, app: ASGIApp, most_bytes: int) -> None:
        self._app, self._most_bytes = app, most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        told = dict(scope["headers"]).get(b"content-length", b"0")
        if not told.isdigit() or int(told) > self._most_bytes:
            await self._refuse(send)
            return
        came, began = 0, False

        async def counted() -> Message:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            if came > self._most_bytes:
                raise _TooLarge
            return message

        async def noted(message: Message) -> None:
            nonlocal began
            if came > self._most_bytes and not began:
                return  # What the application makes of the interruption is not the answer.
            began = True
            await send(message)

        with contextlib.suppress(_TooLarge):
            await self._app(scope, counted, noted)
        if not began:
            await self._refuse(send)

    async def _refuse(self, send: Send) -> None:
        body = json.dumps({"detail": f"the request is larger than {self._most_bytes:,} bytes"}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": body})
