"""What a collective means: one process computes every rank's result from all ranks' arguments.

Reductions of floats add up in float64 and round once, so that they are as right as the dtype allows,
whatever the number of ranks; those of integers wrap as the dtype does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

#: The arguments of one call on one rank.
Arguments = Sequence[Any]
#: Gives the result of each rank, given the arguments of each.
Meaning = Callable[[Sequence[Arguments]], list[Any]]


def reduced(tensors: Sequence[torch.Tensor], reduce_op: str) -> torch.Tensor:
    """The elementwise reduction of one tensor of each rank, in their dtype.

    Args:
        tensors: of equal shapes and dtypes.
        reduce_op: ``sum``, ``avg``, ``max``, ``min`` or ``product``.
    """
    dtype = tensors[0].dtype
    stacked = torch.stack([tensor.contiguous() for tensor in tensors])
    if reduce_op in ("max", "min"):
        return stacked.amax(0) if reduce_op == "max" else stacked.amin(0)
    wide = stacked.double() if dtype.is_floating_point else stacked
    if reduce_op == "product":
        return _combined(torch.mul, wide).to(dtype)
    total = _combined(torch.add, wide)
    return (total / len(tensors) if reduce_op == "avg" else total).to(dtype)


def _combined(combine: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], stacked: torch.Tensor) -> torch.Tensor:
    """One rank's after another: the dtype stays, where a sum over a dimension would widen integers."""
    return functools.reduce(combine, stacked.unbind())


def _all_reduce(calls: Sequence[Arguments]) -> list[Any]:
    total = reduced([call[0] for call in calls], calls[0][1])
    return [total.clone() for _ in calls]


def _all_reduce_in_place(calls: Sequence[Arguments]) -> list[Any]:
    total = reduced([call[0] for call in calls], calls[0][1])
    return [call[0].copy_(total) for call in calls]


def _all_gather(calls: Sequence[Arguments]) -> list[Any]:
    return [torch.cat([call[0] for call in calls]) for _ in calls]


def _reduce_scatter(calls: Sequence[Arguments]) -> list[Any]:
    total = reduced([call[0] for call in calls], calls[0][1])
    return [part.clone() for part in total.chunk(len(calls))]


def _all_to_all(calls: Sequence[Arguments]) -> list[Any]:
    """Of ``(input, output_split_sizes, input_split_sizes, group)``: rank r gets part r of every rank, in rank order."""
    parts = [call[0].split(call[2]) for call in calls]
    return [torch.cat([sent[rank] for sent in parts]) for rank in range(len(calls))]


def _broadcast(calls: Sequence[Arguments]) -> list[Any]:
    source = calls[calls[0][1]][0]
    return [source.clone(memory_format=torch.contiguous_format) for _ in calls]


def _broadcast_in_place(calls: Sequence[Arguments]) -> list[Any]:
    source = calls[calls[0][1]][0].clone()
    return [call[0].copy_(source) for call in calls]


def _coalesced(meaning: Meaning) -> Meaning:
    """The same for each tensor of a list."""

    def of_lists(calls: Sequence[Arguments]) -> list[Any]:
        count = len(calls[0][0])
        results = [meaning([(call[0][number], *call[1:]) for call in calls]) for number in range(count)]
        return [[result[rank] for result in results] for rank in range(len(calls))]

    return of_lists


def _all_gather_matmul(calls: Sequence[Arguments]) -> list[Any]:
    """Of ``(A_shard, Bs, gather_dim, group)``: the whole A, and its product with each of the rank's own Bs."""
    gathered = torch.cat([call[0] for call in calls], dim=calls[0][2])
    return [(gathered.clone(), [_product(gathered, factor) for factor in call[1]]) for call in calls]


def _matmul_reduce_scatter(calls: Sequence[Arguments]) -> list[Any]:
    """Of ``(A, B, reduce_op, scatter_dim, group)``: a rank's part of the reduction of all ranks' products."""
    dtype, reduce_op, dim = calls[0][0].dtype, calls[0][2], calls[0][3]
    total = reduced([call[0].double() @ call[1].double() for call in calls], reduce_op).to(dtype)
    return [part.clone(memory_format=torch.contiguous_format) for part in total.chunk(len(calls), dim)]


def _product(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one.double() @ other.double()).to(one.dtype)


_MEANINGS: dict[str, Meaning] = {
    "all_reduce.default": _all_reduce,
    "all_reduce_.default": _all_reduce_in_place,
    "all_reduce_coalesced.default": _coalesced(_all_reduce),
    "all_gather_into_tensor.default": _all_gather,
    "all_gather_into_tensor_coalesced.default": _coalesced(_all_gather),
    "reduce_scatter_tensor.default": _reduce_scatter,
    "reduce_scatter_tensor_coalesced.default": _coalesced(_reduce_scatter),
    "all_to_all_single.default": _all_to_all,
    "broadcast.default": _broadcast,
    "broadcast_.default": _broadcast_in_place,
    "wait_tensor.default": _all_reduce,  # What it waits for.
    "fused_all_gather_matmul.default": _all_gather_matmul,
    "fused_matmul_reduce_scatter.default": _matmul_reduce_scatter,
}


def world_reference(task: str) -> Callable[..., list[list[Any]]]:
    """A function of the programs of all ranks, as :mod:`.program` has them: for each rank the result of each call."""
    meaning = _MEANINGS[task]

    def answer(*programs: tuple[Sequence[Arguments], Sequence[int], Sequence[int]]) -> list[list[Any]]:
        count = len(programs[0][0])
        results = [meaning([calls[number] for calls, _, _ in programs]) for number in range(count)]
        return [[result[rank] for result in results] for rank in range(len(programs))]

    return answer
