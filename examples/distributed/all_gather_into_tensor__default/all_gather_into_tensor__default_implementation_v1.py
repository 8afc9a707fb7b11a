"""``all_gather_into_tensor`` directly: every rank sends its input to every other one, all messages at a time.

Each rank sends ``n - 1`` times its input and receives as much, straight into its place of the result.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group


def all_gather_into_tensor__default_kernel_impl(
    input: torch.Tensor,  # noqa: A002
    group_size: int,
    group_name: str,
) -> torch.Tensor:
    """The inputs of all ranks, one after another along the first dimension."""
    group = _resolve_process_group(group_name)
    rank = group.rank()
    sent = input.contiguous()
    result = input.new_empty((group_size * input.shape[0], *input.shape[1:]))
    parts = result.chunk(group_size)
    peers = [peer for peer in range(group_size) if peer != rank]
    messages = [dist.P2POp(dist.irecv, parts[peer], group=group, group_peer=peer) for peer in peers]
    messages += [dist.P2POp(dist.isend, sent, group=group, group_peer=peer) for peer in peers]
    works = dist.batch_isend_irecv(messages)
    parts[rank].copy_(sent)
    for work in works:
        work.wait()
    return result
