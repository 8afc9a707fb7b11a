"""A worker's place among the ranks that run a kernel together."""

from __future__ import annotations

import msgspec


class RankInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Which rank a worker is.

    Attributes:
        rank: from 0.
        ranks: how many there are.
        rendezvous: a folder that these ranks and nobody else may write to: where they find each other.
    """

    rank: int
    ranks: int
    rendezvous: str
