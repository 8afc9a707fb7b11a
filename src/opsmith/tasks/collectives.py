"""The collectives that are asked, as one table; what each of them means is in :mod:`.reference`.

Tasks are named as in the dispatcher, without its namespace: ``all_reduce.default`` is
``_c10d_functional::all_reduce``. The fused ones are those of ``symm_mem``.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.distributed._functional_collectives
import torch.distributed._symmetric_memory

from opsmith.core.op import OpSchema, TaskKind, Variant

FLOATS = ("f64", "f32", "f16", "bf16")
INTEGERS = ("i64", "i32", "i8", "u8")
BOOL = "b8"

#: What a fused matmul is asked in.
MATMUL_DTYPES = ("f32", "f16", "bf16")

#: Task -> the namespace of its overload.
NAMESPACES = {
    **dict.fromkeys(
        (
            "all_reduce.default",
            "all_reduce_.default",
            "all_reduce_coalesced.default",
            "all_gather_into_tensor.default",
            "all_gather_into_tensor_coalesced.default",
            "reduce_scatter_tensor.default",
            "reduce_scatter_tensor_coalesced.default",
            "all_to_all_single.default",
            "broadcast.default",
            "broadcast_.default",
            "wait_tensor.default",
        ),
        "_c10d_functional",
    ),
    **dict.fromkeys(("fused_all_gather_matmul.default", "fused_matmul_reduce_scatter.default"), "symm_mem"),
}

_IN_PLACE = ("all_reduce_.default", "broadcast_.default")
#: They reduce; the others move elements, wait, or multiply and then reduce.
REDUCTIONS = tuple(task for task in NAMESPACES if task.startswith(("all_reduce", "reduce_scatter")))
#: They move elements and compute nothing.
MOVES = tuple(task for task in NAMESPACES if task.startswith(("all_gather", "all_to_all", "broadcast")))
FUSED = tuple(task for task in NAMESPACES if task.startswith("fused"))
WAIT = "wait_tensor.default"


def reduce_ops(dtype: str) -> tuple[str, ...]:
    """The reductions that gloo and NCCL both have for a dtype, by its short name."""
    if dtype == BOOL:
        return ("max", "min")
    return ("sum", "avg", "max", "min", "product") if dtype in FLOATS else ("sum", "max", "min", "product")


def dtypes(task: str) -> tuple[str, ...]:
    """The dtypes, by their short names, that a task is asked in."""
    return MATMUL_DTYPES if task in FUSED else (*FLOATS, *INTEGERS, BOOL)


def overload(task: str) -> Any:
    """The ``OpOverload`` of a task."""
    packet, _, name = task.rpartition(".")
    return getattr(getattr(getattr(torch.ops, NAMESPACES[task]), packet), name)


@functools.cache
def collective_schemas() -> dict[str, OpSchema]:
    """What torch says about every collective that is asked, by task."""
    return {
        task: OpSchema(
            name=task,
            schema=str(overload(task)._schema),
            variant=Variant.INPLACE if task in _IN_PLACE else Variant.FUNCTIONAL,
            kind=TaskKind.COLLECTIVE,
        )
        for task in NAMESPACES
    }
