"""What one rank does in a case: start its calls, then wait for them in an order of its own.

A case is ``(calls, order, late)`` for each rank. ``calls`` holds the arguments of one call or of several that are in
flight together, ``order`` their numbers in the order in which they are waited for, and before the calls of ``late`` a
rank pauses a while: who returns what has not arrived yet is found out by that. The case of a problem that has a state
holds it after these.
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
from opsmith.tasks.module_call import ModuleCall, in_order
from opsmith.tasks.module_state import State
from opsmith.tasks.rank_arguments import live

#: How long a late rank is; messages between processes of one machine take some 0.1 ms.
LATE_S = 0.02


class RankProgram:
    """A kernel as what a rank runs it as; see the module's docstring.

    Args:
        start: starts a call. Its result may be waited for as that of torch's own collectives.
        wait: given a tensor of a result, gives it when it is there.
        module: what takes the state, where there is one.
        pause: how a rank is late; None: it sleeps a while.
    """

    def __init__(
        self,
        start: Callable[..., Any],
        wait: Callable[[torch.Tensor], Any] | None = None,
        *,
        module: ModuleCall | None = None,
        pause: Callable[[], None] | None = None,
    ) -> None:
        self._start, self._wait = start, wait or overload(WAIT)
        self._module, self._pause = module, pause or partial(time.sleep, LATE_S)

    def __call__(
        self, calls: Sequence[Sequence[Any]], order: Sequence[int], late: Sequence[int], state: State | None = None
    ) -> list[Any]:
        """Run the program; the result of each call, in the order of the calls."""
        if self._module is not None and state is not None:
            self._module.take(state)
        results = []
        for number, call in enumerate(calls):
            if number in late:
                self._pause()
            results.append(self._start(*call))
        for number in order:
            results[number] = tree_map(self._finished, results[number])
        if self._module is not None and state is not None:
            self._module.give_back(state)
        return results

    def _finished(self, leaf: Any) -> Any:
        return self._wait(leaf) if isinstance(leaf, torch.Tensor) else leaf


def collective_program(function: Callable[..., Any], task: str) -> RankProgram:
    """A kernel of a collective; one of ``wait_tensor`` is given what torch's ``all_reduce`` has started."""
    kernel = partial(enter, function)
    return RankProgram(overload("all_reduce.default"), kernel) if task == WAIT else RankProgram(kernel)


def module_program(module: torch.nn.Module, **options: Any) -> RankProgram:
    """A module that answers a parallel problem."""
    call = ModuleCall(module)
    return RankProgram(lambda *inputs: call.forward(*live(inputs)), module=call, **options)


def function_program(function: Callable[..., Any], **options: Any) -> RankProgram:
    """A function that answers a parallel problem; it may use gradients, and its results have none."""

    def start(*inputs: Any) -> Any:
        with torch.enable_grad():
            return tree_map(_detached, in_order(enter(function, *live(inputs))))

    return RankProgram(start, **options)


def _detached(leaf: Any) -> Any:
    return leaf.detach() if isinstance(leaf, torch.Tensor) else leaf


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
