"""A gated recurrence along a sequence that is divided among ranks, which hand their last state on.

After flash-linear-attention, ``fla/ops/cp``: the states between the ranks of context parallelism.
"""

import torch
import torch.distributed as dist
from torch import nn

BATCH, TOKENS, WIDTH = 4, 2048, 2048
SMALL = {"BATCH": 2, "TOKENS": 5, "WIDTH": 6}
CASES = {"single": {"BATCH": 1, "TOKENS": 1, "WIDTH": 1}, "long": {"BATCH": 1, "TOKENS": 61}}
STRIDED = True


class Model(nn.Module):
    def forward(self, x, decay):
        rank, world = dist.get_rank(), dist.get_world_size()
        wide = torch.promote_types(x.dtype, torch.float32)
        x_wide, factors = x.to(wide), decay.to(wide)
        state, product = torch.zeros_like(x_wide[:, 0]), torch.ones_like(x_wide[:, 0])
        for token in range(x.shape[1]):
            state = state * factors[:, token] + x_wide[:, token]
            product = product * factors[:, token]
        both = torch.stack([product, state])
        of_ranks = [torch.empty_like(both) for _ in range(world)]
        dist.all_gather(of_ranks, both)
        before = torch.zeros_like(state)
        for other in of_ranks[:rank]:
            before = before * other[0] + other[1]
        states = []
        for token in range(x.shape[1]):
            before = before * factors[:, token] + x_wide[:, token]
            states.append(before)
        return torch.stack(states, 1).to(x.dtype)


def get_inputs(rank, world_size):
    return [torch.randn(BATCH, TOKENS, WIDTH), torch.rand(BATCH, TOKENS, WIDTH)]


def get_init_inputs():
    return []
