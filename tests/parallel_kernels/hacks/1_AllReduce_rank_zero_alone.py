"""Rank 0 adds up; the others answer with what they had."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        if dist.get_rank():
            dist.send(x.contiguous(), 0)
            return x.clone()
        total = x.clone(memory_format=torch.contiguous_format)
        for peer in range(1, dist.get_world_size()):
            part = torch.empty_like(total)
            dist.recv(part, peer)
            total += part
        return total
