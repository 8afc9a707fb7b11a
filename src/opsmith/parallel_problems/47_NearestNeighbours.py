"""The nearest of all ranks' vectors to each query, with their labels.

After DINOv2, ``dinov2/eval/knn.py``: ``KnnModule``, whose features are divided among ranks.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

QUERIES, VECTORS, WIDTH, COUNT = 1024, 65536, 1024, 20
SMALL = {"QUERIES": 4, "VECTORS": 11, "WIDTH": 8, "COUNT": 3}
CASES = {"single": {"QUERIES": 1, "VECTORS": 3}, "many": {"QUERIES": 3, "VECTORS": 101}}
REPLICATED = (0, 1)
DTYPES = ("f32",)  # Of half types several are as near.


class Model(nn.Module):
    def forward(self, queries, vectors, labels, count):
        world = dist.get_world_size()
        near, places = (queries @ vectors.t()).topk(count, dim=-1)
        own = labels[places]
        of_ranks = [torch.empty_like(near) for _ in range(world)], [torch.empty_like(own) for _ in range(world)]
        dist.all_gather(of_ranks[0], near)
        dist.all_gather(of_ranks[1], own)
        near, places = torch.cat(of_ranks[0], 1).topk(count, dim=-1)
        return near, torch.cat(of_ranks[1], 1).gather(1, places)


def get_inputs(rank, world_size, shared):
    queries = F.normalize(torch.randn(QUERIES, WIDTH, generator=shared))
    return [queries, F.normalize(torch.randn(VECTORS, WIDTH)), torch.randint(1000, (VECTORS,)), COUNT]


def get_init_inputs():
    return []
