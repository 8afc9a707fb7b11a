"""The gradients of attention over a sequence whose ranks exchange tokens for heads.

After veOmni, ``veomni/distributed/sequence_parallel/ulysses.py``: ``_SeqAllToAll.backward``, around attention.
"""

import torch
import torch.distributed as dist
from torch import nn

BATCH, TOKENS, HEADS_OF_A_RANK, WIDTH = 2, 2048, 8, 128
SMALL = {"BATCH": 1, "TOKENS": 4, "HEADS_OF_A_RANK": 2, "WIDTH": 8}
CASES = {"single": {"TOKENS": 1, "HEADS_OF_A_RANK": 1, "WIDTH": 2}, "long": {"TOKENS": 23}}
STRIDED = True


class Model(nn.Module):
    def forward(self, gradient, q, k, v):
        wide = torch.promote_types(q.dtype, torch.float32)
        gradient, q, k, v = (heads_for_tokens(each.to(wide)).transpose(1, 2) for each in (gradient, q, k, v))
        scale = q.shape[-1] ** -0.5
        weights = (q @ k.transpose(-1, -2) * scale).softmax(-1)
        of_weights = gradient @ v.transpose(-1, -2)
        of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True)) * scale
        results = of_scores @ k, of_scores.transpose(-1, -2) @ q, weights.transpose(-1, -2) @ gradient
        return tuple([tokens_for_heads(each.transpose(1, 2)) for each in results])


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
    return [torch.randn(BATCH, TOKENS, HEADS_OF_A_RANK * world_size, WIDTH) for _ in range(4)]


def get_init_inputs():
    return []
