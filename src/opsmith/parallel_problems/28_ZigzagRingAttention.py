"""Causal attention where each rank has a block from the front and one from the back of the sequence.

After ring-flash-attention, ``ring_flash_attn/zigzag_ring_flash_attn.py``: equal work for all ranks.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

HEADS, BLOCK, WIDTH = 16, 1024, 128
SMALL = {"HEADS": 2, "BLOCK": 3, "WIDTH": 8}
CASES = {"single": {"BLOCK": 1, "WIDTH": 2}, "long": {"HEADS": 1, "BLOCK": 19}}
STRIDED = True


class Model(nn.Module):
    def forward(self, q, k, v):
        rank, world = dist.get_rank(), dist.get_world_size()
        block = q.shape[1] // 2
        places = torch.arange(2 * block * world, device=q.device).view(2 * world, block)
        of_ranks = torch.stack([places[[r, 2 * world - 1 - r]].flatten() for r in range(world)])
        keys, values = gathered(k), gathered(v)
        mask = of_ranks.flatten()[None, :] <= of_ranks[rank][:, None]
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)


def gathered(own):
    parts = [torch.empty(own.shape, dtype=own.dtype, device=own.device) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, own.contiguous())
    return torch.cat(parts, 1)


def get_inputs(rank, world_size):
    return [torch.randn(HEADS, 2 * BLOCK, WIDTH) for _ in range(3)]


def get_init_inputs():
    return []
