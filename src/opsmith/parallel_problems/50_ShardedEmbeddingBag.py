"""Sums of rows of a table that is divided by rows among ranks, which own samples each.

After torchrec, ``torchrec/distributed/sharding/rw_sharding.py``: ``RwPooledEmbeddingDist`` and its sparse counterpart.
"""

import torch
import torch.distributed as dist
from torch import nn

SAMPLES, PER_SAMPLE, ROWS, WIDTH = 4096, 20, 1 << 20, 128
SMALL = {"SAMPLES": 5, "PER_SAMPLE": 3, "ROWS": 11, "WIDTH": 6}
CASES = {"single": {"SAMPLES": 1, "PER_SAMPLE": 1, "ROWS": 1}, "none": {"PER_SAMPLE": 0}, "many": {"SAMPLES": 37}}
STRIDED = True


class Model(nn.Module):
    def forward(self, indices, table):
        rank, world = dist.get_rank(), dist.get_world_size()
        of_ranks = [torch.empty_like(indices) for _ in range(world)]
        dist.all_gather(of_ranks, indices)
        asked = torch.cat(of_ranks) - rank * len(table)
        is_own = (asked >= 0) & (asked < len(table))
        wide = torch.promote_types(table.dtype, torch.float32)
        sums = (table.to(wide)[asked.where(is_own, 0)] * is_own[..., None]).sum(1)
        own = torch.empty_like(sums[: len(indices)])
        dist.reduce_scatter(own, [part.contiguous() for part in sums.chunk(world)])
        return own.to(table.dtype)


def get_inputs(rank, world_size):
    return [torch.randint(ROWS * world_size, (SAMPLES, PER_SAMPLE)), torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return []
