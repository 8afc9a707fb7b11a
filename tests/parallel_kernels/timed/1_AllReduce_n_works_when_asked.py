"""Does its work when it is asked."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import nn

#: Processor time that an answer takes, seconds.
WORK_S = 5e-3


def work() -> None:
    end = time.thread_time() + WORK_S
    while time.thread_time() < end:
        pass


def exchanged(own: torch.Tensor) -> list[torch.Tensor]:
    """What all ranks have, rank by rank; all of one shape."""
    rank, world = dist.get_rank(), dist.get_world_size()
    own = own.contiguous()
    parts = [own if peer == rank else torch.empty_like(own) for peer in range(world)]
    messages = [dist.P2POp(dist.irecv, parts[peer], peer) for peer in range(world) if peer != rank]
    messages += [dist.P2POp(dist.isend, own, peer) for peer in range(world) if peer != rank]
    for waiting in dist.batch_isend_irecv(messages) if messages else ():
        waiting.wait()
    return parts


class ModelNew(nn.Module):
    def forward(self, x):
        work()
        first, *others = exchanged(x)
        total = first.clone()
        for part in others:
            total += part
        return total
