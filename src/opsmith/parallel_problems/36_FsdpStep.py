"""A training step whose weights are divided: gathered for the layer, gradients scattered, AdamW on a part.

After torchtitan, ``torchtitan/train.py``: a step under ``fully_shard``.
"""

import torch
import torch.distributed as dist
from torch import nn

TOKENS, WIDTH, ROWS = 2048, 4096, 512
RATE, DECAY, EPSILON = 1e-2, 0.1, 1e-6
SMALL = {"TOKENS": 5, "WIDTH": 6, "ROWS": 3}
CASES = {"single": {"TOKENS": 1, "WIDTH": 1, "ROWS": 1}, "many": {"TOKENS": 33, "WIDTH": 31}}
STRIDED = True
DTYPES = ("f32",)  # Optimizers keep their state in it.


class Model(nn.Module):
    def forward(self, x, target, shard, first, second):
        world = dist.get_world_size()
        of_ranks = [torch.empty(shard.shape, dtype=shard.dtype, device=shard.device) for _ in range(world)]
        dist.all_gather(of_ranks, shard.contiguous())
        weight = torch.cat(of_ranks)
        error = x @ weight.t() - target
        loss = error.square().mean()
        gradient = 2 * error.t() @ x / error.numel()
        parts = [part.contiguous() for part in gradient.chunk(world)]
        own = torch.empty_like(parts[0])
        dist.reduce_scatter(own, parts)
        return loss, *adam(shard, own / world, first, second, 2)


def adam(weight, gradient, first, second, step):
    first = first * 0.9 + gradient * 0.1
    second = second * 0.95 + gradient.square() * 0.05
    corrected = (first / (1 - 0.9**step)) / ((second / (1 - 0.95**step)).sqrt() + EPSILON)
    return weight - RATE * (corrected + DECAY * weight), first, second


def get_inputs(rank, world_size):
    shard, first = torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH) * 0.1
    target = torch.randn(TOKENS, ROWS * world_size)
    return [torch.randn(TOKENS, WIDTH), target, shard, first, torch.rand(ROWS, WIDTH) + 0.1]


def get_init_inputs():
    return []
