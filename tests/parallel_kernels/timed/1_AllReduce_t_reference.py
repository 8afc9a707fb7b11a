"""What the problem itself does."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total
