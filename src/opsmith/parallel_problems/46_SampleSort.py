"""All ranks' numbers in order: each rank gets as many as it had, the smallest the first rank.

After Ray Data, ``python/ray/data/_internal/planner/exchange/sort_task_spec.py``: sorts by sampled boundaries.
"""

import torch
import torch.distributed as dist
from torch import nn

COUNTS = (1 << 22, 1 << 21, 3 << 20, 1 << 20)
SMALL = {"COUNTS": (7, 4, 9, 2)}
CASES = {"one-empty": {"COUNTS": (5, 0, 8)}, "only-one": {"COUNTS": (0, 6, 0, 0)}, "many": {"COUNTS": (301, 101)}}
STRIDED = True


class Model(nn.Module):
    def forward(self, x):
        rank, world = dist.get_rank(), dist.get_world_size()
        counts = [torch.zeros(1, dtype=torch.int64, device=x.device) for _ in range(world)]
        dist.all_gather(counts, torch.tensor([len(x)], device=x.device))
        counts = torch.cat(counts).tolist()
        padded = x.new_full((max(counts),), float("inf"))
        padded[: len(x)] = x
        parts = [torch.empty_like(padded) for _ in range(world)]
        dist.all_gather(parts, padded)
        ordered = torch.cat([part[:count] for part, count in zip(parts, counts)]).sort().values
        return ordered.split(counts)[rank].clone()


def get_inputs(rank, world_size):
    return [torch.randn(COUNTS[rank % len(COUNTS)])]


def get_init_inputs():
    return []
