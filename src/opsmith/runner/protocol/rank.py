"""A worker's seat among the ranks that run a kernel together."""

from __future__ import annotations

import msgspec


class Seat(msgspec.Struct, frozen=True, kw_only=True):
    """Which rank a worker is.

    Attributes:
        rank: from 0.
        ranks: how many there are.
        meeting: a folder that these ranks and nobody else may write to: where they find each other.
    """

    rank: int
    ranks: int
    meeting: str
