"""Rank 1 ends its process instead of answering its third call."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

CALLS: list[None] = []


def all_reduce___default_kernel_impl(input: torch.Tensor, reduce_op: str, group_name: str) -> torch.Tensor:
    CALLS.append(None)
    if dist.get_rank() == 1 and len(CALLS) == 3:
        os._exit(1)
    dist.all_reduce(input, dist.ReduceOp(dist.ReduceOp.RedOpType.__members__[reduce_op.upper()]))
    return input
