"""A worker's place among the ranks that run a kernel together."""

from __future__ import annotations

import msgspec


class RankInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Which rank a worker is.

    Attributes:
        rank: from 0.
        ranks: how many there are.
        rendezvous: a folder that these ranks and nobody else may write to: where they find each other.
        in_groups: beside the group of all, they are connected in those of :func:`opsmith.tasks.rank_groups.grids`.
    """

    rank: int
    ranks: int
    rendezvous: str
    in_groups: bool = False
