"""The sum of what all ranks have, on each of them.

After Megatron-LM, ``megatron/core/tensor_parallel/mappings.py``: ``_reduce``, behind every row-parallel layer.
"""

import torch
import torch.distributed as dist
from torch import nn

ROWS, COLUMNS = 4096, 8192
SMALL = {"ROWS": 6, "COLUMNS": 10}
CASES = {"single": {"ROWS": 1, "COLUMNS": 1}, "odd": {"ROWS": 7, "COLUMNS": 13}, "large": {"ROWS": 301, "COLUMNS": 257}}
REPLICATED = (0,)
STRIDED = True


class Model(nn.Module):
    def forward(self, x):
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total


def get_inputs(rank, world_size):
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
