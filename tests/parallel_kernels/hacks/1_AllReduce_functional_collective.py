"""The collective by its functional name."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        total = x.clone(memory_format=torch.contiguous_format)
        started = torch.ops._c10d_functional.all_reduce(total, "sum", dist.group.WORLD.group_name)
        total.copy_(torch.ops._c10d_functional.wait_tensor(started))
        return total
