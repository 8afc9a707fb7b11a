"""Parts go round a ring twice: added up on the first way, handed out on the second."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        rank, world = dist.get_rank(), dist.get_world_size()
        parts = [part.clone() for part in x.contiguous().flatten().tensor_split(world)]
        for step in range(world - 1):
            sent, got = (rank - step) % world, (rank - step - 1) % world
            parts[got] += passed_on(parts[sent], parts[got])
        for step in range(world - 1):
            sent, got = (rank + 1 - step) % world, (rank - step) % world
            parts[got] = passed_on(parts[sent], parts[got])
        return torch.cat(parts).view(x.shape)


def passed_on(sent, like):
    rank, world = dist.get_rank(), dist.get_world_size()
    received = torch.empty_like(like)
    messages = [dist.P2POp(dist.isend, sent, (rank + 1) % world)] if len(sent) else []
    messages += [dist.P2POp(dist.irecv, received, (rank - 1) % world)] if len(like) else []
    for work in dist.batch_isend_irecv(messages) if messages else ():
        work.wait()
    return received
