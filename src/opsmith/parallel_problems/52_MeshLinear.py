"""A layer on a grid of ranks: weights gathered along its rows, products added up along its columns.

After torchtitan, ``torchtitan/models/llama3/infra/parallelize.py``: ``fully_shard`` and tensor parallelism on one mesh.
"""

import torch
import torch.distributed as dist
from torch import nn

ROWS, DEPTH, COLUMNS = 2048, 1024, 2048
SMALL = {"ROWS": 4, "DEPTH": 6, "COLUMNS": 5}
CASES = {"single": {"ROWS": 1, "DEPTH": 1, "COLUMNS": 1}, "deep": {"ROWS": 3, "DEPTH": 101}}
STRIDED = True


class Model(nn.Module):
    def forward(self, x, shard, row, column):
        of_row = [torch.empty(shard.shape, dtype=shard.dtype, device=shard.device) for _ in range(row.size())]
        dist.all_gather(of_row, shard.contiguous(), group=row)
        total = x @ torch.cat(of_row, 1)
        dist.all_reduce(total, group=column)
        return total


def get_inputs(rank, world_size):
    width = next(width for width in (4, 3, 2, 1) if world_size % width == 0 and width < max(world_size, 2))
    rows = [dist.new_group(list(range(start, start + width))) for start in range(0, world_size, width)]
    columns = [dist.new_group(list(range(start, world_size, width))) for start in range(width)]
    shard = torch.randn(DEPTH, COLUMNS) / DEPTH**0.5
    return [torch.randn(ROWS, DEPTH), shard, rows[rank // width], columns[rank % width]]


def get_init_inputs():
    return []
