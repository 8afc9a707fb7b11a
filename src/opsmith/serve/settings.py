"""What a server is started with."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one client may ask of the server.

    Attributes:
        request_bytes: of one request's body.
        requests_per_s: of one token, on average.
        burst: of one token, at a time.
        refused_per_minute: attempts without a valid token of one address.
    """

    request_bytes: int = 8 << 20
    requests_per_s: float = 50.0
    burst: int = 200
    refused_per_minute: int = 60
