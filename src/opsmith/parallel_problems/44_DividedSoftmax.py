"""Softmax of rows that are divided among ranks, in parts of different widths.

After PyTorch, ``torch/distributed/tensor/_ops/_math_ops.py``: softmax over a sharded dimension.
"""

import torch
import torch.distributed as dist
from torch import nn

ROWS, COLUMNS = 4096, (8192, 4096, 2048, 16384)
SMALL = {"ROWS": 5, "COLUMNS": (6, 3, 9, 4)}
CASES = {"narrow": {"COLUMNS": (1, 2)}, "wide": {"COLUMNS": (301, 5)}, "single": {"ROWS": 1, "COLUMNS": (1,)}}
STRIDED = True


class Model(nn.Module):
    def forward(self, x):
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        largest = wide.amax(-1, keepdim=True)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        exponentials = (wide - largest).exp()
        total = exponentials.sum(-1, keepdim=True)
        dist.all_reduce(total)
        return (exponentials / total).to(x.dtype)


def get_inputs(rank, world_size):
    return [torch.randn(ROWS, COLUMNS[rank % len(COLUMNS)]) * 4]


def get_init_inputs():
    return []
