"""The sum of all ranks' rows, of which each rank keeps its part.

After Megatron-LM, ``megatron/core/tensor_parallel/mappings.py``: ``_reduce_scatter_along_first_dim``, where a
layer's output goes back to divided sequences.
"""

import torch
import torch.distributed as dist
from torch import nn

ROWS, COLUMNS = 2048, 8192
SMALL = {"ROWS": 3, "COLUMNS": 10}
CASES = {"single": {"ROWS": 1, "COLUMNS": 1}, "large": {"ROWS": 101, "COLUMNS": 257}}
STRIDED = True


class Model(nn.Module):
    def forward(self, x):
        parts = [part.contiguous() for part in x.chunk(dist.get_world_size())]
        own = torch.empty_like(parts[0])
        dist.reduce_scatter(own, parts)
        return own


def get_inputs(rank, world_size):
    return [torch.randn(ROWS * world_size, COLUMNS)]


def get_init_inputs():
    return []
