"""Rows sent from each rank to each other one, as many as a matrix of counts says.

After torchrec, ``torchrec/distributed/dist_data.py``: ``KJTAllToAll``, whose lengths go ahead of the values.
"""

import torch
import torch.distributed as dist
from torch import nn

MOST, COLUMNS = 512, 1024
SMALL = {"MOST": 4, "COLUMNS": 5}
CASES = {"one": {"MOST": 1}, "none": {"MOST": 0}, "many": {"MOST": 37}}
STRIDED = True


class Model(nn.Module):
    def forward(self, rows, counts):
        received = torch.empty_like(counts)
        dist.all_to_all_single(received, counts)
        result = rows.new_empty((int(received.sum()), rows.shape[1]))
        dist.all_to_all_single(result, rows.contiguous(), received.tolist(), counts.tolist())
        return result, received


def get_inputs(rank, world_size):
    # How many rows go where is the same under every seed; some ranks send each other none.
    counts = torch.tensor([(3 * rank + 5 * to) % (MOST + 1) for to in range(world_size)])
    return [torch.randn(int(counts.sum()), COLUMNS), counts]


def get_init_inputs():
    return []
