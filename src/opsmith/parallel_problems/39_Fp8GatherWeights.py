"""Weights that travel as FP8 with one scale, gathered for a layer.

After torchao, ``torchao/float8/fsdp_utils.py``: ``WeightWithDynamicFloat8CastTensor.fsdp_pre_all_gather``.
"""

import torch
import torch.distributed as dist
from torch import nn

ROWS, COLUMNS, LARGEST = 2048, 4096, 448.0
SMALL = {"ROWS": 4, "COLUMNS": 6}
CASES = {"single": {"ROWS": 1, "COLUMNS": 2}, "many": {"ROWS": 33, "COLUMNS": 31}}
REPLICATED = (0, 1)
DTYPES = ("f32",)


class Model(nn.Module):
    def forward(self, shard):
        world = dist.get_world_size()
        amax = shard.abs().amax()
        dist.all_reduce(amax, dist.ReduceOp.MAX)
        scale = LARGEST / amax
        codes = (shard * scale).to(torch.float8_e4m3fn).view(torch.uint8)
        of_ranks = [torch.empty_like(codes) for _ in range(world)]
        dist.all_gather(of_ranks, codes)
        return torch.cat(of_ranks).view(torch.float8_e4m3fn).to(shard.dtype) / scale, scale


def get_inputs(rank, world_size, shared):
    # No value lies between two numbers of FP8, so that every way of rounding finds the same.
    codes = torch.randint(0, 126, (ROWS, COLUMNS), dtype=torch.uint8)
    values = codes.view(torch.float8_e4m3fn).float() * (torch.rand(ROWS, COLUMNS) * 0.02 + 0.99)
    values *= torch.randint(2, (ROWS, COLUMNS)) * 2 - 1
    if rank == world_size - 1:
        values[0, 0] = LARGEST
    return [values.clamp(-LARGEST, LARGEST) * 2.0 ** torch.randint(-12, -4, (1,), generator=shared)]


def get_init_inputs():
    return []
