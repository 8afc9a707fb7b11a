"""All parts by one of torch's collectives, of which the sum is its own."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        total = x.clone(memory_format=torch.contiguous_format)
        parts = [torch.empty_like(total) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, total)
        total = sum(parts[1:], parts[0])
        return total
