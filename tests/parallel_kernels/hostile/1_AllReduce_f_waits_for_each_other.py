"""All ranks receive, and nobody sends."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        dist.recv(x.clone(), 1 - dist.get_rank())
        return x.clone()
