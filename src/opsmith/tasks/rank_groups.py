"""Groups of some ranks: which of them ranks are connected in, and how a case names one.

A case's arguments are plain data. A group among them stands there by its name, ``group:0,2``, and is given to a kernel
as the process group of these ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.distributed as dist

PREFIX = "group:"


def grids(ranks: int) -> list[tuple[int, ...]]:
    """Rows and columns of every grid that the ranks fill, but for the group of all: the groups of meshes.

    Of 4 ranks each one alone, (0, 1) and (2, 3), (0, 2) and (1, 3).
    """
    found: dict[tuple[int, ...], None] = {}
    for width in range(1, ranks):
        if ranks % width == 0:
            found |= dict.fromkeys(tuple(range(start, start + width)) for start in range(0, ranks, width))
            found |= dict.fromkeys(tuple(range(start, ranks, width)) for start in range(width))
    found.pop(tuple(range(ranks)), None)
    return list(found)


def named(ranks: Sequence[int]) -> str:
    """The name of the group of these ranks."""
    return PREFIX + ",".join(map(str, ranks))


def names_group(leaf: Any) -> bool:
    """Whether an argument is the name of a group."""
    return isinstance(leaf, str) and leaf.startswith(PREFIX)


def group_named(leaf: Any) -> Any:
    """The group that an argument names, of those that this rank is connected in; what names none is as it was.

    Raises:
        LookupError: there is no such group.
    """
    if not names_group(leaf):
        return leaf
    for group, ranks in dist.distributed_c10d._world.pg_group_ranks.items():
        if named(sorted(ranks)) == leaf:
            return group
    raise LookupError(f"this rank is in no {leaf}; groups are rows and columns of a grid of all ranks")
