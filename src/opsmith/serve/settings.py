"""What a server is started with."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one client may ask of the server.

    Attributes:
        request_bytes: of one request's body.
        request_s: until all of a request's body is there.
        requests_per_s: of one token, on average.
        burst: of one token, at a time.
        refused_per_minute: attempts without a valid token of one address.
        connections: open at a time, of one address.
        live_s: that a page is told what is live, before its browser has to ask again.
    """

    request_bytes: int = 8 << 20
    request_s: float = 60.0
    requests_per_s: float = 50.0
    burst: int = 200
    refused_per_minute: int = 60
    connections: int = 200
    live_s: float = 600.0
