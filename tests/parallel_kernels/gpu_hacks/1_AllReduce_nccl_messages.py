"""Messages between two ranks, which NCCL carries."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        rank, world = dist.get_rank(), dist.get_world_size()
        own = x.contiguous()
        parts = [own if peer == rank else torch.empty_like(own) for peer in range(world)]
        messages = [dist.P2POp(dist.irecv, parts[peer], peer) for peer in range(world) if peer != rank]
        messages += [dist.P2POp(dist.isend, own, peer) for peer in range(world) if peer != rank]
        for work in dist.batch_isend_irecv(messages):
            work.wait()
        return sum(parts[1:], parts[0].clone())
