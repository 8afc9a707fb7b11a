"""What ranks are given that is no plain data: groups of some ranks, and linear layers.

A group stands in a case by its name, ``group:0,2``, and a layer by its weights. A kernel is given the process group of
these ranks, and a layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_map

PREFIX = "group:"
#: The key of a dict that stands for a layer.
LAYER = "torch.nn"


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


def plain(leaf: Any) -> Any:
    """What stands in a case for an argument."""
    if isinstance(leaf, dist.ProcessGroup):
        return named(dist.get_process_group_ranks(leaf))
    if type(leaf) is torch.nn.Linear:
        return {LAYER: "Linear", "weight": leaf.weight.detach(), "bias": _detached(leaf.bias)}
    return leaf


def live(arguments: Any) -> Any:
    """The arguments that a kernel is given, of those that stand in a case.

    Raises:
        LookupError: a group is named that this rank is not connected in.
    """
    return tree_map(_live, arguments, is_leaf=_is_layer)


def _is_layer(value: Any) -> bool:
    return isinstance(value, dict) and LAYER in value


def _live(leaf: Any) -> Any:
    if not _is_layer(leaf):
        return group_named(leaf)
    weight, bias = leaf["weight"], leaf["bias"]
    layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        layer.bias = torch.nn.Parameter(bias, requires_grad=False)
    return layer


def _detached(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.detach()


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
