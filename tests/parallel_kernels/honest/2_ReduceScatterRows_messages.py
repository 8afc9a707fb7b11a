"""Every rank sends each other one its part, and adds up what it is sent."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        rank, world = dist.get_rank(), dist.get_world_size()
        parts = [part.contiguous() for part in x.chunk(world)]
        got = [parts[rank] if peer == rank else torch.empty_like(parts[rank]) for peer in range(world)]
        messages = [dist.P2POp(dist.irecv, got[peer], peer) for peer in range(world) if peer != rank]
        messages += [dist.P2POp(dist.isend, parts[peer], peer) for peer in range(world) if peer != rank]
        for work in dist.batch_isend_irecv(messages) if messages else ():
            work.wait()
        return sum(got[1:], got[0].clone())
