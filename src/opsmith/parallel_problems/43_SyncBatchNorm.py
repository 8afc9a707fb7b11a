"""Batch norm over the samples of all ranks, which have different numbers of them.

After apex, ``apex/parallel/optimized_sync_batchnorm_kernel.py``: ``SyncBatchnormFunction.forward``.
"""

import torch
import torch.distributed as dist
from torch import nn

SAMPLES, CHANNELS, SIZE, EPSILON = (32, 16, 48, 8), 256, 3136, 1e-5
SMALL = {"SAMPLES": (3, 2, 5, 1), "CHANNELS": 4, "SIZE": 6}
CASES = {"one-empty": {"SAMPLES": (4, 0, 3)}, "single": {"SAMPLES": (1,), "CHANNELS": 1}}
STRIDED = True


class Model(nn.Module):
    def forward(self, x, scale, shift):
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        count = wide.new_full((1,), x.shape[0] * x.shape[2])
        sums = torch.cat([wide.sum((0, 2)), count])
        dist.all_reduce(sums)
        mean = sums[:-1] / sums[-1]
        squares = (wide - mean[:, None]).square().sum((0, 2))
        dist.all_reduce(squares)
        variance = squares / sums[-1]
        normed = (wide - mean[:, None]) * torch.rsqrt(variance + EPSILON)[:, None]
        return (normed * scale[:, None] + shift[:, None]).to(x.dtype), mean, variance


def get_inputs(rank, world_size, shared):
    scale, shift = torch.rand(CHANNELS, generator=shared) + 0.5, torch.randn(CHANNELS, generator=shared)
    return [torch.randn(SAMPLES[rank % len(SAMPLES)], CHANNELS, SIZE) * 2 + 1, scale, shift]


def get_init_inputs():
    return []
