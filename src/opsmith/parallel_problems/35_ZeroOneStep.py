"""A step of AdamW of which each rank does a part: gradients scattered, weights gathered again.

After DeepSpeed, ``deepspeed/runtime/zero/stage_1_and_2.py``: ``DeepSpeedZeroOptimizer.step``.
"""

import torch
import torch.distributed as dist
from torch import nn

SIZE = 1 << 24  # Of a rank's part.
RATE, DECAY, EPSILON = 1e-2, 0.1, 1e-6
SMALL = {"SIZE": 13}
CASES = {"single": {"SIZE": 1}, "many": {"SIZE": 1001}}
REPLICATED = (0,)
STRIDED = True
DTYPES = ("f32",)  # Optimizers keep their state in it.


class Model(nn.Module):
    def forward(self, weights, gradient, first, second, step):
        rank, world = dist.get_rank(), dist.get_world_size()
        parts = [part.contiguous() for part in gradient.chunk(world)]
        own = torch.empty_like(parts[0])
        dist.reduce_scatter(own, parts)
        weight, first, second = adam(weights.chunk(world)[rank], own / world, first, second, step)
        of_ranks = [torch.empty_like(own) for _ in range(world)]
        dist.all_gather(of_ranks, weight.contiguous())
        return torch.cat(of_ranks), first, second


def adam(weight, gradient, first, second, step):
    first = first * 0.9 + gradient * 0.1
    second = second * 0.95 + gradient.square() * 0.05
    corrected = (first / (1 - 0.9**step)) / ((second / (1 - 0.95**step)).sqrt() + EPSILON)
    return weight - RATE * (corrected + DECAY * weight), first, second


def get_inputs(rank, world_size, shared):
    weights = torch.randn(SIZE * world_size, generator=shared)
    gradient = torch.randn(SIZE * world_size)
    return [weights, gradient, torch.randn(SIZE) * 0.1, torch.rand(SIZE) + 0.1, 3]


def get_init_inputs():
    return []
