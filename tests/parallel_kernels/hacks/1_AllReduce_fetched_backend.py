"""The collective of the group's backend, past the dispatcher."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        total = x.clone(memory_format=torch.contiguous_format)
        dist.group.WORLD._get_backend(torch.device("cpu")).allreduce([total]).wait()
        return total
