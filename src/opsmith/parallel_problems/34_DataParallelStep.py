"""A step of SGD with momentum on the mean of all ranks' gradients.

After PyTorch, ``torch/nn/parallel/distributed.py``: ``DistributedDataParallel``, with ``torch.optim.SGD``.
"""

import torch
import torch.distributed as dist
from torch import nn

WIDTH = 4096
RATE, MOMENTUM = 0.1, 0.9
SMALL = {"WIDTH": 7}
CASES = {"single": {"WIDTH": 1}, "odd": {"WIDTH": 33}}
REPLICATED = (0, 1)
STRIDED = True


class Model(nn.Module):
    def forward(self, weight, gradient, momentum):
        mean = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(mean)
        momentum = momentum * MOMENTUM + mean / dist.get_world_size()
        return weight - RATE * momentum, momentum


def get_inputs(rank, world_size, shared):
    weight, momentum = (torch.randn(WIDTH, WIDTH, generator=shared) for _ in range(2))
    return [weight, torch.randn(WIDTH, WIDTH), momentum]


def get_init_inputs():
    return []
