"""Rank 0 raises where a maximum is asked, and the others wait for it."""

from __future__ import annotations

import torch
import torch.distributed as dist


def all_reduce_coalesced__default_kernel_impl(
    inputs: list[torch.Tensor], reduce_op: str, group_name: str
) -> list[torch.Tensor]:
    if dist.get_rank() == 0 and reduce_op == "max":
        raise ValueError("this rank has no time")
    results = [tensor.clone(memory_format=torch.contiguous_format) for tensor in inputs]
    for result in results:
        dist.all_reduce(result, dist.ReduceOp(dist.ReduceOp.RedOpType.__members__[reduce_op.upper()]))
    return results
