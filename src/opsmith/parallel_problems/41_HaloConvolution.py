"""A convolution of an image whose rows are divided among ranks, which exchange their borders.

After DistriFuser, ``distrifuser/modules/pp/conv2d.py``: ``DistriConv2dPP``.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

BATCH, CHANNELS, FILTERS, ROWS, COLUMNS = 2, 320, 320, 32, 128
SMALL = {"CHANNELS": 3, "FILTERS": 2, "ROWS": 4, "COLUMNS": 7}
CASES = {"one-row": {"ROWS": 1}, "single": {"BATCH": 1, "CHANNELS": 1, "FILTERS": 1, "ROWS": 1, "COLUMNS": 1}}
STRIDED = True


class Model(nn.Module):
    def forward(self, x, weight, bias):
        rank, world = dist.get_rank(), dist.get_world_size()
        above, below = (x.new_zeros((*x.shape[:2], 1, x.shape[3])) for _ in range(2))
        messages = []
        if rank > 0:
            messages.append(dist.P2POp(dist.isend, x[:, :, :1].contiguous(), rank - 1))
            messages.append(dist.P2POp(dist.irecv, above, rank - 1))
        if rank < world - 1:
            messages.append(dist.P2POp(dist.isend, x[:, :, -1:].contiguous(), rank + 1))
            messages.append(dist.P2POp(dist.irecv, below, rank + 1))
        for work in dist.batch_isend_irecv(messages) if messages else ():
            work.wait()
        return F.conv2d(torch.cat([above, x, below], 2), weight, bias, padding=(0, 1))


def get_inputs(rank, world_size, shared):
    weight = torch.randn(FILTERS, CHANNELS, 3, 3, generator=shared) * (9 * CHANNELS) ** -0.5
    bias = torch.randn(FILTERS, generator=shared)
    return [torch.randn(BATCH, CHANNELS, ROWS, COLUMNS), weight, bias]


def get_init_inputs():
    return []
