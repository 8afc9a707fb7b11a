"""Attention over a divided sequence: each rank exchanges its tokens for all tokens of some heads.

After DeepSpeed, ``deepspeed/sequence/layer.py``: ``DistributedAttention``, called Ulysses.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

BATCH, TOKENS, HEADS_OF_A_RANK, WIDTH = 2, 2048, 8, 128
SMALL = {"BATCH": 2, "TOKENS": 4, "HEADS_OF_A_RANK": 2, "WIDTH": 8}
CASES = {"single": {"BATCH": 1, "TOKENS": 1, "HEADS_OF_A_RANK": 1, "WIDTH": 2}, "long": {"BATCH": 1, "TOKENS": 41}}
STRIDED = True


class Model(nn.Module):
    def forward(self, q, k, v):
        q, k, v = (heads_for_tokens(each).transpose(1, 2) for each in (q, k, v))
        result = F.scaled_dot_product_attention(q, k, v)
        return tokens_for_heads(result.transpose(1, 2))


def heads_for_tokens(x):
    """Of (batch, own tokens, heads, width) the tokens of all ranks and the rank's own heads."""
    world = dist.get_world_size()
    parts = torch.stack(x.chunk(world, 2))
    received = torch.empty_like(parts)
    dist.all_to_all_single(received, parts)
    return torch.cat(list(received), 1)


def tokens_for_heads(x):
    """The way back."""
    world = dist.get_world_size()
    parts = torch.stack(x.chunk(world, 1))
    received = torch.empty_like(parts)
    dist.all_to_all_single(received, parts)
    return torch.cat(list(received), 2)


def get_inputs(rank, world_size):
    return [torch.randn(BATCH, TOKENS, HEADS_OF_A_RANK * world_size, WIDTH) for _ in range(3)]


def get_init_inputs():
    return []
