"""A sum over all ranks in two levels: within the rows of a grid of ranks, then along its columns.

After DeepSpeed, ``deepspeed/runtime/comm/coalesced_collectives.py``: a reduction within nodes, then
between them.
"""

import torch
import torch.distributed as dist
from torch import nn

ROWS, COLUMNS = 2048, 8192
SMALL = {"ROWS": 6, "COLUMNS": 10}
CASES = {"single": {"ROWS": 1, "COLUMNS": 1}}
STRIDED = True


class Model(nn.Module):
    def forward(self, x, row, column):
        within = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(within, group=row)
        total = within.clone()
        dist.all_reduce(total, group=column)
        return total, within


def get_inputs(rank, world_size):
    width = next(width for width in (4, 3, 2, 1) if world_size % width == 0 and width < max(world_size, 2))
    rows = [dist.new_group(list(range(start, start + width))) for start in range(0, world_size, width)]
    columns = [dist.new_group(list(range(start, world_size, width))) for start in range(width)]
    return [torch.randn(ROWS, COLUMNS), rows[rank // width], columns[rank % width]]


def get_init_inputs():
    return []
