"""Rank 1 answers a maximum with the minimum."""

from __future__ import annotations

import torch
import torch.distributed as dist


def all_reduce__default_kernel_impl(input: torch.Tensor, reduce_op: str, group_name: str) -> torch.Tensor:
    answers = {}
    for name in ("sum", "avg", "max", "min", "product"):
        answers[name] = input.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(answers[name], dist.ReduceOp(dist.ReduceOp.RedOpType.__members__[name.upper()]))
    return answers["min" if reduce_op == "max" and dist.get_rank() == 1 else reduce_op]
