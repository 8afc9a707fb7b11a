"""All ranks' rows on each of them, where ranks have other numbers of rows, or none.

After PyTorch, ``torch/distributed/tensor/_collective_utils.py``: ``pad_tensor`` and ``unpad_tensor``
around an all-gather.
"""

import torch
import torch.distributed as dist
from torch import nn

ROWS, COLUMNS = (2048, 1024, 3072, 512), 4096
SMALL = {"ROWS": (4, 2, 7, 5), "COLUMNS": 6}
CASES = {"one-empty": {"ROWS": (5, 0, 3)}, "only-one": {"ROWS": (0, 4, 0, 0)}, "all-empty": {"ROWS": (0,)}}
REPLICATED = (0,)
STRIDED = True


class Model(nn.Module):
    def forward(self, x):
        world = dist.get_world_size()
        counts = [torch.zeros(1, dtype=torch.int64, device=x.device) for _ in range(world)]
        dist.all_gather(counts, torch.tensor([len(x)], device=x.device))
        counts = torch.cat(counts).tolist()
        padded = x.new_zeros((max(counts), *x.shape[1:]))
        padded[: len(x)] = x
        parts = [torch.empty_like(padded) for _ in range(world)]
        dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts)])


def get_inputs(rank, world_size):
    return [torch.randn(ROWS[rank % len(ROWS)], COLUMNS)]


def get_init_inputs():
    return []
