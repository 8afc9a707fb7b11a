"""The mean over ranks of gradients of several shapes, a bucket at a time.

After PyTorch, ``torch/csrc/distributed/c10d/reducer.cpp``: ``Reducer``, behind DistributedDataParallel.
"""

import torch
import torch.distributed as dist
from torch import nn

WIDTH, BUCKETS = 2048, 4
SMALL = {"WIDTH": 7}
CASES = {"single": {"WIDTH": 1}, "odd": {"WIDTH": 31}}
REPLICATED = (0, 1, 2, 3)
STRIDED = True


class Model(nn.Module):
    def forward(self, *gradients):
        world = dist.get_world_size()
        flat = [(gradient / world).reshape(-1).contiguous() for gradient in gradients]
        works = [dist.all_reduce(bucket, async_op=True) for bucket in flat]
        for work in works:
            work.wait()
        return tuple([bucket.view(like.shape) for bucket, like in zip(flat, gradients)])


def get_inputs(rank, world_size):
    return [torch.randn(WIDTH, WIDTH + number) for number in range(BUCKETS)]


def get_init_inputs():
    return []
