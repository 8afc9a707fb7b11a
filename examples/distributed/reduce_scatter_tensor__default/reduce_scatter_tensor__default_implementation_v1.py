"""``reduce_scatter_tensor`` directly: every rank gets its part of every input and reduces them itself.

Each rank sends ``(n - 1) / n`` times its input, as a ring does, in one step instead of ``n - 1``. The parts are added
in the order of the ranks, half types in float32, so that they are rounded once.
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


def reduce_scatter_tensor__default_kernel_impl(
    input: torch.Tensor,  # noqa: A002
    reduce_op: str,
    group_size: int,
    group_name: str,
) -> torch.Tensor:
    """A rank's part, along the first dimension, of the reduction of all ranks' inputs."""
    if reduce_op not in COMBINE:
        raise NotImplementedError(f"reduction {reduce_op}")
    group = _resolve_process_group(group_name)
    rank = group.rank()
    parts = input.contiguous().chunk(group_size)
    received = [torch.empty_like(parts[rank]) for _ in range(group_size)]
    peers = [peer for peer in range(group_size) if peer != rank]
    messages = [dist.P2POp(dist.irecv, received[peer], group=group, group_peer=peer) for peer in peers]
    messages += [dist.P2POp(dist.isend, parts[peer], group=group, group_peer=peer) for peer in peers]
    received[rank] = parts[rank]
    for work in dist.batch_isend_irecv(messages):
        work.wait()
    narrow = input.dtype in (torch.float16, torch.bfloat16)
    total = received[0].float() if narrow else received[0].clone()
    for part in received[1:]:
        COMBINE[reduce_op](total, part, out=total)
    if reduce_op == "avg":
        total /= group_size
    return total.to(input.dtype)
