"""Every rank leaves shared memory behind."""

from __future__ import annotations

import pathlib

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        left = pathlib.Path(f"/dev/shm/left-by-{dist.get_rank()}")
        left.write_bytes(bytes(1 << 24))
        return x.clone()
