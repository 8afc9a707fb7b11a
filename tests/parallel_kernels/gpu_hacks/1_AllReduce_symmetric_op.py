"""Torch's own collective over symmetric memory."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._symmetric_memory import get_symm_mem_workspace


class ModelNew(nn.Module):
    def forward(self, x):
        name = dist.group.WORLD.group_name
        memory = get_symm_mem_workspace(name, x.numel() * x.element_size())
        part = memory.get_buffer(memory.rank, x.shape, x.dtype)
        part.copy_(x)
        return torch.ops.symm_mem.one_shot_all_reduce(part, "sum", name)
