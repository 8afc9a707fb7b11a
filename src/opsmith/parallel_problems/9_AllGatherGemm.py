"""The product of all ranks' rows with a rank's own columns of a weight: a column-parallel layer of divided sequences.

After Megatron-LM, ``megatron/core/tensor_parallel/layers.py``: ``LinearWithGradAccumulationAndAsyncCommunication``.
"""

import torch
import torch.distributed as dist
from torch import nn

ROWS, DEPTH, COLUMNS = 2048, 4096, 1792
SMALL = {"ROWS": 5, "DEPTH": 24, "COLUMNS": 9}
CASES = {"single": {"ROWS": 1, "DEPTH": 1, "COLUMNS": 1}, "deep": {"ROWS": 3, "DEPTH": 301, "COLUMNS": 7}}
STRIDED = True


class Model(nn.Module):
    def forward(self, x, weight):
        parts = [torch.empty(x.shape, dtype=x.dtype, device=x.device) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts) @ weight


def get_inputs(rank, world_size):
    return [torch.randn(ROWS, DEPTH), torch.randn(DEPTH, COLUMNS) / DEPTH**0.5]


def get_init_inputs():
    return []
