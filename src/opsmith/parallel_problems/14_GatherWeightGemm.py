"""A rank's rows times a weight of which each rank holds a part of the columns.

After PyTorch, ``torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py``: ``foreach_all_gather`` ahead of a layer.
"""

import torch
import torch.distributed as dist
from torch import nn

ROWS, DEPTH, COLUMNS = 2048, 4096, 1024
SMALL = {"ROWS": 5, "DEPTH": 16, "COLUMNS": 3}
CASES = {"single": {"ROWS": 1, "DEPTH": 1, "COLUMNS": 1}, "deep": {"ROWS": 3, "DEPTH": 301}}
STRIDED = True


class Model(nn.Module):
    def forward(self, x, weight, bias):
        parts = [torch.empty(weight.shape, dtype=x.dtype, device=x.device) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, weight.contiguous())
        return x @ torch.cat(parts, dim=1) + bias


def get_inputs(rank, world_size, shared):
    bias = torch.randn(COLUMNS * world_size, generator=shared)
    return [torch.randn(ROWS, DEPTH), torch.randn(DEPTH, COLUMNS) / DEPTH**0.5, bias]


def get_init_inputs():
    return []
