"""One rank reads address 0."""

from __future__ import annotations

import ctypes

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        if dist.get_rank():
            ctypes.string_at(0)
        dist.recv(x.clone(), 1)
        return x.clone()
