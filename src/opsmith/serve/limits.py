"""What a client may not exceed: the size of a request, how long it takes to send one, and how many of them."""

from __future__ import annotations

import asyncio
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


class _Refused(Exception):
    """The body is not read any further."""


class LimitedBody:
    """Refuses a body that is larger than allowed, before it is sent where its length is told; or that takes too long.

    Args:
        app: what is served.
        most_bytes: of a body.
        most_s: until all of it is there.
    """

    def __init__(self, app: ASGIApp, most_bytes: int, most_s: float) -> None:
        self._app, self._most_bytes, self._most_s = app, most_bytes, most_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        too_large = (413, f"the request is larger than {self._most_bytes:,} bytes")
        told = dict(scope["headers"]).get(b"content-length", b"0")
        if not told.isdigit() or int(told) > self._most_bytes:
            await _refuse(send, *too_large)
            return
        came, whole, began = 0, False, False
        refusal: tuple[int, str] | None = None
        deadline = time.monotonic() + self._most_s

        async def counted() -> Message:
            nonlocal came, refusal, whole
            try:
                # What comes after the body is the end of the connection, however late.
                message = await (receive() if whole else asyncio.wait_for(receive(), deadline - time.monotonic()))
            except TimeoutError:
                refusal = 408, f"the request was not there within {self._most_s:g} s"
                raise _Refused from None
            whole = not message.get("more_body", False)
            came += len(message.get("body", b""))
            if came > self._most_bytes:
                refusal = too_large
                raise _Refused
            return message

        async def noted(message: Message) -> None:
            nonlocal began
            if refusal and not began:
                return  # What the application makes of the interruption is not the answer.
            began = True
            await send(message)

        with contextlib.suppress(_Refused):
            await self._app(scope, counted, noted)
        if refusal and not began:
            await _refuse(send, *refusal)


async def _refuse(send: Send, status: int, detail: str) -> None:
    body = json.dumps({"detail": detail}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
