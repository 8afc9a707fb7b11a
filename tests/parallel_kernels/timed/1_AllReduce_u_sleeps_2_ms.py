"""What the problem itself does, and the last rank sleeps first."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        if dist.get_rank() == dist.get_world_size() - 1:
            time.sleep(2e-3)
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total
