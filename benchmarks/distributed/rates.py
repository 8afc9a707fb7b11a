"""Bandwidths of collectives, as nccl-tests defines them.

*Algorithm bandwidth* is size over time. *Bus bandwidth* multiplies it by the share of the size that every rank has to
send over its link at least, so that it can be held against the link's rate, whatever the number of ranks. The factors
are those of https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md.
"""

from __future__ import annotations

from collections.abc import Callable

#: Collective -> what of its size a rank sends at least, by the number of ranks. The size is that of the input of an
#: all-reduce and a broadcast, and of what all ranks have together of the others.
SENT: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "all_gather": lambda ranks: (ranks - 1) / ranks,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
    "all_to_all": lambda ranks: (ranks - 1) / ranks,
    "broadcast": lambda ranks: 1.0,  # noqa: ARG005 - the root sends all of it, or each rank passes it on
}


def algorithm_gb_s(size_bytes: int, seconds: float) -> float:
    """Size over time, in GB/s (1e9 bytes).

    Args:
        size_bytes: of the collective, see :data:`SENT`.
        seconds: of one collective, on the slowest rank.
    """
    return size_bytes / seconds / 1e9


def bus_gb_s(collective: str, ranks: int, size_bytes: int, seconds: float) -> float:
    """What a link carries in one direction at least, in GB/s (1e9 bytes).

    Args:
        collective: a key of :data:`SENT`.
        ranks: how many there are.
        size_bytes: of the collective.
        seconds: of one collective, on the slowest rank.
    """
    return algorithm_gb_s(size_bytes, seconds) * SENT[collective](ranks)
