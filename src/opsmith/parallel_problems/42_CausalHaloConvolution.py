"""A causal convolution of each channel along a sequence that is divided among ranks.

After savanna, ``savanna/model/operators/hyena/distributed_a2a.py``: filters of Hyena on divided sequences.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

BATCH, CHANNELS, TOKENS, TAPS = 2, 4096, 2048, 4
SMALL = {"CHANNELS": 3, "TOKENS": 6}
CASES = {"short": {"TOKENS": 3}, "single": {"BATCH": 1, "CHANNELS": 1, "TOKENS": 3}, "long": {"TOKENS": 71}}
STRIDED = True


class Model(nn.Module):
    def forward(self, x, filters):
        rank, world = dist.get_rank(), dist.get_world_size()
        before = x.new_zeros((*x.shape[:2], filters.shape[1] - 1))
        messages = []
        if rank < world - 1:
            messages.append(dist.P2POp(dist.isend, x[..., 1 - filters.shape[1] :].contiguous(), rank + 1))
        if rank > 0:
            messages.append(dist.P2POp(dist.irecv, before, rank - 1))
        for work in dist.batch_isend_irecv(messages) if messages else ():
            work.wait()
        return F.conv1d(torch.cat([before, x], -1), filters[:, None], groups=x.shape[1])


def get_inputs(rank, world_size, shared):
    return [torch.randn(BATCH, CHANNELS, TOKENS), torch.randn(CHANNELS, TAPS, generator=shared)]


def get_init_inputs():
    return []
