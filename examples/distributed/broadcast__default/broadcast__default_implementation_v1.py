"""``broadcast`` as a binomial tree: in every step the ranks that have the data double.

``log2(n)`` steps instead of the ``n - 1`` of a source that sends to one rank after another.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group


def broadcast__default_kernel_impl(input: torch.Tensor, src: int, group_name: str) -> torch.Tensor:  # noqa: A002
    """The input of rank ``src``, on every rank."""
    group = _resolve_process_group(group_name)
    ranks = group.size()
    place = (group.rank() - src) % ranks  # The source is at place 0.
    data = input.clone(memory_format=torch.contiguous_format)
    have = 1
    while have < ranks:
        if place < have and place + have < ranks:
            dist.send(data, group_dst=(src + place + have) % ranks, group=group)
        elif have <= place < 2 * have:
            dist.recv(data, group_src=(src + place - have) % ranks, group=group)
        have *= 2
    return data
