"""What one rank does in a case: start its calls, then wait for them in an order of its own.

A case is ``(calls, order, late)`` for each rank. ``calls`` holds the arguments of one call or of several that are in
flight together, ``order`` their numbers in the order in which they are waited for, and a rank that is ``late`` starts a
while after the others: who returns what has not arrived yet is found out by that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_map

from opsmith.tasks.collectives import FUSED, WAIT, overload
from opsmith.tasks.entry import enter

#: How long a late rank is; messages between processes of one machine take some 0.1 ms.
LATE_S = 0.02

#: The name of the group of all ranks, which torch gives to the first one.
GROUP = "0"


class RankProgram:
    """A kernel as what a rank runs it as; see the module's docstring.

    Args:
        function: the kernel. Its result may be waited for as that of torch's own collectives.
        task: what it answers. A kernel of ``wait_tensor`` is given what torch's ``all_reduce`` has started.
    """

    def __init__(self, function: Callable[..., Any], task: str) -> None:
        kernel = partial(enter, function)
        self._start = overload("all_reduce.default") if task == WAIT else kernel
        self._wait = kernel if task == WAIT else overload(WAIT)

    def __call__(self, calls: Sequence[Sequence[Any]], order: Sequence[int], late: bool) -> list[Any]:  # noqa: FBT001
        """Run the program; the result of each call, in the order of the calls."""
        if late:
            time.sleep(LATE_S)
        results = [self._start(*call) for call in calls]
        for number in order:
            results[number] = tree_map(self._finished, results[number])
        return results

    def _finished(self, leaf: Any) -> Any:
        return self._wait(leaf) if isinstance(leaf, torch.Tensor) else leaf


def answer_of_torch(task: str, device: torch.device) -> Callable[..., Any]:
    """What torch itself answers a task with; of the fused ones off CUDA, collective and matmul one after the other."""
    if task not in FUSED or device.type == "cuda":
        of_torch: Callable[..., Any] = overload(task)
        return of_torch
    return _gather_then_multiply if task.startswith("fused_all_gather") else _multiply_then_scatter


def _gather_then_multiply(shard: torch.Tensor, factors: Sequence[torch.Tensor], gather_dim: int, group: str) -> Any:
    rows = shard.movedim(gather_dim, 0).contiguous()
    ranks = torch.distributed.get_world_size()
    started = overload("all_gather_into_tensor.default")(rows, ranks, group)
    gathered = overload(WAIT)(started).movedim(0, gather_dim)
    return gathered, [gathered @ factor for factor in factors]


def _multiply_then_scatter(
    one: torch.Tensor, other: torch.Tensor, reduce_op: str, scatter_dim: int, group: str
) -> torch.Tensor:
    rows = (one @ other).movedim(scatter_dim, 0).contiguous()
    ranks = torch.distributed.get_world_size()
    started = overload("reduce_scatter_tensor.default")(rows, reduce_op, ranks, group)
    finished: torch.Tensor = overload(WAIT)(started).movedim(0, scatter_dim)
    return finished
