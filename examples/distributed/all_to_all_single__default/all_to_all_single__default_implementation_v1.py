"""``all_to_all_single`` in pairs: every rank sends each other one its rows, all messages at a time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group


def all_to_all_single__default_kernel_impl(
    input: torch.Tensor,  # noqa: A002
    output_split_sizes: Sequence[int],
    input_split_sizes: Sequence[int],
    group_name: str,
) -> torch.Tensor:
    """Part ``rank`` of every rank's input, in the order of the ranks."""
    group = _resolve_process_group(group_name)
    rank = group.rank()
    leaving = input.contiguous().split(list(input_split_sizes))
    result = input.new_empty((sum(output_split_sizes), *input.shape[1:]))
    arriving = result.split(list(output_split_sizes))
    arriving[rank].copy_(leaving[rank])
    peers = [peer for peer in range(group.size()) if peer != rank]
    messages = [dist.P2POp(dist.irecv, arriving[peer], group=group, group_peer=peer) for peer in peers]
    messages += [dist.P2POp(dist.isend, leaving[peer], group=group, group_peer=peer) for peer in peers]
    messages = [message for message in messages if message.tensor.numel()]
    for work in dist.batch_isend_irecv(messages) if messages else ():
        work.wait()
    return result
