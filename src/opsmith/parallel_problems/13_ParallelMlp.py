"""A SwiGLU layer divided among ranks by its hidden units.

After Megatron-LM, ``megatron/core/transformer/mlp.py``: ``MLP``, column-parallel and then row-parallel.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

ROWS, WIDTH, HIDDEN = 1024, 4096, 1792
SMALL = {"ROWS": 4, "WIDTH": 12, "HIDDEN": 9}
CASES = {"decode": {"ROWS": 1}, "wide": {"ROWS": 3, "WIDTH": 33, "HIDDEN": 101}}
REPLICATED = (0,)
STRIDED = True


class Model(nn.Module):
    def forward(self, x, gate, up, down):
        total = (F.silu(x @ gate) * (x @ up)) @ down
        dist.all_reduce(total)
        return total


def get_inputs(rank, world_size, shared):
    x = torch.randn(ROWS, WIDTH, generator=shared)
    scale = WIDTH**-0.5
    gate, up = torch.randn(WIDTH, HIDDEN) * scale, torch.randn(WIDTH, HIDDEN) * scale
    return [x, gate, up, torch.randn(HIDDEN, WIDTH) * HIDDEN**-0.5]


def get_init_inputs():
    return []
