"""The Fourier transform of images whose rows are divided among ranks; its columns are, afterwards.

After PhysicsNeMo, ``physicsnemo/distributed/fft.py``: ``DistributedRFFT2``, two transforms around an exchange.
"""

import torch
import torch.distributed as dist
from torch import nn

BATCH, ROWS, COLUMNS = 8, 512, 512  # Of a rank's part.
SMALL = {"BATCH": 2, "ROWS": 3, "COLUMNS": 4}
CASES = {"single": {"BATCH": 1, "ROWS": 1, "COLUMNS": 1}, "odd": {"ROWS": 7, "COLUMNS": 5}}
STRIDED = True
DTYPES = ("f32",)


class Model(nn.Module):
    def forward(self, x):
        world = dist.get_world_size()
        parts = torch.view_as_real(torch.stack(torch.fft.fft(x, dim=-1).chunk(world, -1)).contiguous())
        received = torch.empty_like(parts)
        dist.all_to_all_single(received, parts)
        return torch.fft.fft(torch.cat(list(torch.view_as_complex(received)), -2), dim=-2)


def get_inputs(rank, world_size):
    return [torch.randn(BATCH, ROWS, COLUMNS * world_size)]


def get_init_inputs():
    return []
