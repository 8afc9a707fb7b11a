"""A rank's rows of the sum of all ranks' products: a row-parallel layer of divided sequences.

After Megatron-LM, ``megatron/core/tensor_parallel/layers.py``: ``RowParallelLinear`` with ``sequence_parallel``.
"""

import torch
import torch.distributed as dist
from torch import nn

ROWS, DEPTH, COLUMNS = 2048, 1792, 4096
SMALL = {"ROWS": 5, "DEPTH": 24, "COLUMNS": 9}
CASES = {"single": {"ROWS": 1, "DEPTH": 1, "COLUMNS": 1}, "deep": {"ROWS": 3, "DEPTH": 301, "COLUMNS": 7}}
STRIDED = True


class Model(nn.Module):
    def forward(self, x, weight):
        parts = list((x @ weight).chunk(dist.get_world_size()))
        own = torch.empty_like(parts[0])
        dist.reduce_scatter(own, parts)
        return own


def get_inputs(rank, world_size):
    return [torch.randn(ROWS * world_size, DEPTH), torch.randn(DEPTH, COLUMNS) / DEPTH**0.5]


def get_init_inputs():
    return []
