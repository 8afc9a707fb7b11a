"""RMS norm of rows that are divided among ranks, with the residual.

After vLLM, ``vllm/model_executor/layers/mamba/linear_attn.py``: ``MiniMaxText01RMSNormTP``.
"""

import torch
import torch.distributed as dist
from torch import nn

ROWS, WIDTH, EPSILON = 4096, 2048, 1e-5
SMALL = {"ROWS": 6, "WIDTH": 10}
CASES = {"single": {"ROWS": 1, "WIDTH": 1}, "wide": {"ROWS": 2, "WIDTH": 301}}
STRIDED = True


class Model(nn.Module):
    def forward(self, x, residual, scale):
        hidden = x + residual
        wide = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
        squares = wide.square().sum(-1, keepdim=True)
        dist.all_reduce(squares)
        mean = squares / (hidden.shape[-1] * dist.get_world_size())
        return (wide * torch.rsqrt(mean + EPSILON)).to(x.dtype) * scale, hidden


def get_inputs(rank, world_size):
    return [torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH) * 3, torch.rand(WIDTH) + 0.5]


def get_init_inputs():
    return []
