"""The sum of all ranks' products on each of them: a row-parallel layer, prefill or decode.

After vLLM, ``vllm/model_executor/layers/linear.py``: ``RowParallelLinear``.
"""

import torch
import torch.distributed as dist
from torch import nn

ROWS, DEPTH, COLUMNS = 2048, 1792, 4096
SMALL = {"ROWS": 6, "DEPTH": 24, "COLUMNS": 9}
CASES = {"decode": {"ROWS": 1}, "deep": {"ROWS": 3, "DEPTH": 301, "COLUMNS": 7}}
REPLICATED = (0,)
STRIDED = True


class Model(nn.Module):
    def forward(self, x, weight):
        total = x @ weight
        dist.all_reduce(total)
        return total


def get_inputs(rank, world_size):
    return [torch.randn(ROWS, DEPTH), torch.randn(DEPTH, COLUMNS) / DEPTH**0.5]


def get_init_inputs():
    return []
