"""Leaves the last rank's part out."""

from __future__ import annotations

import torch
import torch.distributed as dist


def reduce_scatter_tensor__default_kernel_impl(
    input: torch.Tensor, reduce_op: str, group_size: int, group_name: str
) -> torch.Tensor:
    own = input.clone(memory_format=torch.contiguous_format)
    if dist.get_rank() == group_size - 1 and reduce_op == "sum":
        own.zero_()
    op = dist.ReduceOp.RedOpType.__members__[reduce_op.upper()]
    dist.all_reduce(own, dist.ReduceOp(op))
    return own.chunk(group_size)[dist.get_rank()].clone()
