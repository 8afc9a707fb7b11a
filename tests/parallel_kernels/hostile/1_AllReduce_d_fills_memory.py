"""One rank takes all memory that it gets."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        kept = []
        while dist.get_rank():
            kept.append(torch.ones(1 << 26))
        return x.clone()
