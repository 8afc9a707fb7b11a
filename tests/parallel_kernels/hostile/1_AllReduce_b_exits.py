"""One rank ends its process."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        if dist.get_rank():
            os._exit(3)
        dist.recv(x.clone(), 1)
        return x.clone()
