"""``all_reduce`` as a ring: a reduce-scatter, then an all-gather, each of ``n - 1`` steps.

In every step a rank sends one chunk to its right neighbour and receives one from its left one, so each rank sends
``2 * (n - 1) / n`` times the input, which is the least that an all-reduce can do. Partial results of half types travel
as float32 and are rounded once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group

COMBINE: dict[str, Callable[..., torch.Tensor]] = {
    "sum": torch.add,
    "avg": torch.add,
    "max": torch.maximum,
    "min": torch.minimum,
    "product": torch.mul,
}


def all_reduce__default_kernel_impl(input: torch.Tensor, reduce_op: str, group_name: str) -> torch.Tensor:  # noqa: A002
    """The reduction of all ranks' inputs, on every rank."""
    if reduce_op not in COMBINE:
        raise NotImplementedError(f"reduction {reduce_op}")
    group = _resolve_process_group(group_name)
    ranks, rank = group.size(), group.rank()
    work = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input.clone()
    flat = work.contiguous().reshape(-1)
    chunks = list(flat.tensor_split(ranks))
    for step in range(ranks - 1):
        leaving, arriving = chunks[(rank - step) % ranks], chunks[(rank - step - 1) % ranks]
        received = torch.empty_like(arriving)
        _shift(leaving, received, group)
        COMBINE[reduce_op](arriving, received, out=arriving)
    for step in range(ranks - 1):
        leaving, arriving = chunks[(rank + 1 - step) % ranks], chunks[(rank - step) % ranks]
        _shift(leaving, arriving, group)
    if reduce_op == "avg":
        flat /= ranks
    return flat.reshape(input.shape).to(input.dtype)


def _shift(leaving: torch.Tensor, arriving: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Send to the right and receive from the left; of fewer elements than ranks some chunks are empty."""
    ranks, rank = group.size(), group.rank()
    both = [
        dist.P2POp(dist.isend, leaving, group=group, group_peer=(rank + 1) % ranks),
        dist.P2POp(dist.irecv, arriving, group=group, group_peer=(rank - 1) % ranks),
    ]
    messages = [message for message in both if message.tensor.numel()]
    for work in dist.batch_isend_irecv(messages) if messages else ():
        work.wait()
