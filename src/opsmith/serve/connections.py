"""Connections of clients: how long one may take to say what it wants, and how many an address may have."""

from __future__ import annotations

import asyncio
import ipaddress
import resource
from collections import Counter
from collections.abc import Sequence
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from opsmith.errors import BadInput
from opsmith.serve.access import counted_as

#: Seconds from a connection's begin, or a request's first byte, until its headers are there.
HEADERS_S = 10.0
#: Seconds in which a client takes some of what is sent to it.
TAKEN_S = 300.0
#: The share of the open files that this process may have which connections may take.
SHARE_OF_FILES = 0.5


class Connections:
    """Counts the connections of each address.

    Args:
        most: of one address.
        proxies: networks of proxies, which have any number; see :func:`parse_proxies`.
    """

    def __init__(self, most: int, proxies: Sequence[str] = ()) -> None:
        self._most = most
        self._proxies = [ipaddress.ip_network(proxy) for proxy in proxies]
        self._open: Counter[str] = Counter()
        self._most_of_all = int(SHARE_OF_FILES * resource.getrlimit(resource.RLIMIT_NOFILE)[0])

    def take(self, address: str) -> bool:
        """Whether one more may be open; it is counted then, and :meth:`give_back` follows."""
        of = counted_as(address)
        if self._open.total() >= self._most_of_all or (self._open[of] >= self._most and not self._is_proxy(address)):
            return False
        self._open[of] += 1
        return True

    def give_back(self, address: str) -> None:
        """One is closed."""
        of = counted_as(address)
        self._open[of] -= 1
        if not self._open[of]:
            del self._open[of]

    def _is_proxy(self, address: str) -> bool:
        return any(ipaddress.ip_address(address) in proxy for proxy in self._proxies)

    def protocol(self) -> type[H11Protocol]:
        """What uvicorn makes for each connection."""
        counted = self

        class Protocol(_Limited):
            connections_of = counted

        return Protocol


class _Limited(H11Protocol):
    """HTTP/1.1 that waits for nobody for ever."""

    connections_of: Connections

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._address: str | None = None
        self._waiting: asyncio.TimerHandle | None = None
        self._seen: object = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, unless its address has too many already."""
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        if not self.connections_of.take(address):
            transport.abort()
            return
        self._address = address
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        """Take some of a request."""
        super().data_received(data)
        if self.cycle is not self._seen:  # The headers of a further request are there.
            self._seen = self.cycle
            self._expect_nothing()
        elif self._waiting is None and (self.cycle is None or self.cycle.response_complete):
            self._expect_headers()

    def pause_writing(self) -> None:
        """More is sent than is taken."""
        super().pause_writing()
        self._wait(TAKEN_S)

    def resume_writing(self) -> None:
        """What was sent is taken."""
        super().resume_writing()
        self._expect_nothing()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed, by whomever."""
        super().connection_lost(exc)
        self._expect_nothing()
        if self._address is not None:
            self.connections_of.give_back(self._address)
            self._address = None

    def _expect_headers(self) -> None:
        self._wait(HEADERS_S)

    def _wait(self, seconds: float) -> None:
        self._expect_nothing()
        self._waiting = self.loop.call_later(seconds, self.transport.abort)

    def _expect_nothing(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


def parse_proxies(texts: Sequence[str]) -> tuple[str, ...]:
    """Networks of trusted proxies, from addresses and networks.

    Raises:
        BadInput: one is neither.
    """
    try:
        return tuple(str(ipaddress.ip_network(text)) for text in texts)
    except ValueError as exc:
        raise BadInput(f"--trusted-proxy takes an address or a network such as 10.0.0.0/8: {exc}") from exc
