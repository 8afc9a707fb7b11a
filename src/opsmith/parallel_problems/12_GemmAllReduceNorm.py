"""The end of a tensor-parallel block: products added up over ranks, the residual added, RMS norm.

After vLLM, ``vllm/compilation/passes/fusion/allreduce_rms_fusion.py``: all-reduce, residual and RMS norm after a
row-parallel layer.
"""

import torch
import torch.distributed as dist
from torch import nn

ROWS, DEPTH, COLUMNS, EPSILON = 256, 1792, 4096, 1e-5
SMALL = {"ROWS": 6, "DEPTH": 24, "COLUMNS": 20}
CASES = {"decode": {"ROWS": 1}, "wide": {"ROWS": 3, "COLUMNS": 301}}
REPLICATED = (0, 1)
STRIDED = True


class Model(nn.Module):
    def forward(self, x, weight, residual, scale):
        total = x @ weight
        dist.all_reduce(total)
        hidden = total + residual
        wide = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
        normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON)
        return normed.to(hidden.dtype) * scale, hidden


def get_inputs(rank, world_size, shared):
    residual = torch.randn(ROWS, COLUMNS, generator=shared)
    scale = torch.rand(COLUMNS, generator=shared) + 0.5
    return [torch.randn(ROWS, DEPTH), torch.randn(DEPTH, COLUMNS) / DEPTH**0.5, residual, scale]


def get_init_inputs():
    return []
